"""A Parquet file written batch by batch: complete or missing, also with several writers."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from excite.errors import ExciteError
from excite.tags.corpus import RowGroupWriter


def batch(*tags):
    return pa.record_batch({"tag": list(tags)})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_two_at_once_do_not_meet(tmp_path):
    path, schema = tmp_path / "a.parquet", batch("x").schema
    with RowGroupWriter(path, schema) as first:
        first.add(batch("sea"))
        with RowGroupWriter(path, schema) as second:
            second.add(batch("sky", "sun"))
        assert pq.read_table(path)["tag"].to_pylist() == ["sky", "sun"]
        first.add(batch("sand"))
    assert pq.read_table(path)["tag"].to_pylist() == ["sea", "sand"]
    assert names(tmp_path) == ["a.parquet"]


def write(path, tag, rows=1000, fail=None):
    """Write one row, with a writer that may fail at it."""
    with RowGroupWriter(path, batch("x").schema, rows=rows) as file:
        if fail is not None:
            file._writer.write_table = fail
        file.add(batch(tag))


def full(*_):
    raise OSError(28, "No space left on device")


def interrupted(*_):
    raise KeyboardInterrupt


def test_an_interruption_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.parquet"
    write(path, "old")
    with pytest.raises(KeyboardInterrupt):
        write(path, "new", rows=1, fail=interrupted)
    assert pq.read_table(path)["tag"].to_pylist() == ["old"]
    assert names(tmp_path) == ["a.parquet"]


@pytest.mark.parametrize("rows", [1, 1000])
def test_no_room(tmp_path, rows):
    """At a row group, or at the very end: one clear error, and nothing is left."""
    with pytest.raises(ExciteError, match=r"cannot write '.*a\.parquet': No space left on device; is there room"):
        write(tmp_path / "a.parquet", "sea", rows, fail=full)
    assert names(tmp_path) == []
