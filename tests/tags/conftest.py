import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "dev"))  # the generator of corpora


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Whatever is fetched is kept here, and servers of tests are asked directly."""
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "home"


@pytest.fixture(scope="session")
def write_rows():
    """Writes (image, tags, user) as Parquet."""

    def write(path, rows, group=1500):
        from excite.tags.corpus import schema

        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema(), strict=True)]
        pq.write_table(pa.table(arrays, schema=schema()), path, row_group_size=group)
        return path

    return write


@pytest.fixture(scope="session")
def encoded():
    """The bytes of a small picture."""

    def encode(colour="red", kind="JPEG", size=(6, 4)):
        file = io.BytesIO()
        Image.new("RGB", size, colour).save(file, kind)
        return file.getvalue()

    return encode
