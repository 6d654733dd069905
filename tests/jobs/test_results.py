"""The result store: exact, whole at every moment, for one run at a time; and its exports."""

import itertools
import json
import os
import signal
import sqlite3
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import Forked, results, wait_for_lines

from excite.errors import ExciteError
from excite.jobs import ResultStore
from excite.jobs.parquet import read_parquet, save_parquet

pa = pytest.importorskip("pyarrow")

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
ENTRIES = st.lists(
    st.fixed_dictionaries({"key": st.text(st.characters(), max_size=2), "image": VALUES}, optional={"more": VALUES})
)
WRITER = """
import time
from pathlib import Path
from excite.jobs import ResultStore
store = ResultStore(Path("records.jsonl"), ("image",))
for n in range(10**9):
    store.add({"key": f"k{n}", "image": f"{n}.jpg"})
    time.sleep(0.001)
"""


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *fields, **options: ResultStore(tmp_path / "records.jsonl", fields or ("image",), **options)


def entry(n, **more):
    return {"key": f"k{n}", "image": f"{n}.jpg", "p": n / 3, "size": [n, 2], **more}


def fill(store, *numbers):
    for n in numbers:
        store.add(entry(n))
    store.close()


def files(folder="."):
    return sorted(path.name for path in Path(folder).iterdir())


@given(ENTRIES)
@settings(max_examples=40, deadline=None)
def test_whatever_a_result_holds_comes_back_exactly(tmp_path_factory, found):
    """While it runs, afterwards, and when the next run adds to it; a later one with the same key takes its place."""
    store = ResultStore(tmp_path_factory.mktemp("store") / "records.jsonl", ("image",))
    expected = {}
    for one in found:
        store.add(one)
        expected[one["key"]] = one
    assert json.dumps(list(store.read().items())) == json.dumps(list(expected.items()))
    store.close()
    assert json.dumps(list(store.read().items())) == json.dumps(list(expected.items()))
    store.add(entry(1))
    assert json.dumps(list(store.read().values())) == json.dumps([*expected.values(), entry(1)])
    store.close()


def test_lines_are_left_and_nothing_else(opened):
    fill(opened(), 1, 2)
    fill(opened(), 3)
    assert files() == ["records.jsonl"]
    path = Path("records.jsonl")
    assert list(map(json.loads, path.read_text().splitlines())) == [entry(1), entry(2), entry(3)]
    before = path.stat().st_mtime_ns
    assert set(opened().read()) == {"k1", "k2", "k3"}
    assert path.stat().st_mtime_ns == before


def test_lines_that_are_damaged_or_outdated_are_no_results(opened, tmp_path):
    """As an older version may have left them."""
    others = ['{"key": 4, "image": 1}', '{"key": "old"}', "[" * 100_000, "\0", '{"key": "k2", "ima']
    (tmp_path / "records.jsonl").write_text("\n".join([json.dumps(entry(1)), *others]))
    assert dict(opened().read()) == {"k1": entry(1)}
    fill(opened(), 2)
    assert (tmp_path / "records.jsonl").read_text() == "".join(json.dumps(entry(n)) + "\n" for n in (1, 2))
    assert not opened("image", "boxes").read()


def test_killed_again_and_again(opened, tmp_path):
    """Nothing that was added before is lost, torn or twice; the end of the log may be cut off besides."""
    path, least = tmp_path / "records.jsonl", 0
    for torn in (False, True):
        process = Forked(WRITER)
        try:
            wait_for_lines(path, least + 30, process)
            least = len(results(path))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if torn:
            log = tmp_path / "records.sqlite-wal"
            os.truncate(log, log.stat().st_size - 7)
        found = opened().read()
        assert list(found) == [f"k{n}" for n in range(len(found))]
        assert len(found) >= least - torn
        assert files() == ["records.jsonl"]


def test_two_runs_at_once(opened):
    store = opened()
    store.add(entry(1))
    for refused in (opened().read, lambda: opened().add(entry(2)), opened().clear):
        with pytest.raises(ExciteError, match="another run is writing"):
            refused()
    store.close()
    fill(opened(), 2)
    assert set(opened().read()) == {"k1", "k2"}


def test_a_full_disk(opened):
    """What does not fit is an error, and the rest is kept."""
    store = opened()
    store.add(entry(1))
    store._connection.execute("PRAGMA max_page_count = 10")
    added = itertools.count(2)
    with pytest.raises(ExciteError, match=r"cannot write .*disk is full.*room"):
        deque((store.add(entry(n)) for n in added), maxlen=0)
    store.close()
    assert list(opened().read()) == [f"k{n}" for n in range(1, next(added) - 1)]


def test_no_room_for_the_lines(opened, monkeypatch):
    """The database stays, and the next run goes on with it."""
    store = opened()
    store.add(entry(1))
    with monkeypatch.context() as patched:
        patched.setattr("excite.jobs.results.atomic_write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
        with pytest.raises(ExciteError, match=r"cannot write .*No space"):
            store.close()
    assert dict(opened().read()) == {"k1": entry(1)}


@pytest.mark.parametrize("content", [b"mine, and no database" * 300, None])
def test_somebody_elses_database(opened, tmp_path, content):
    path = tmp_path / "records.sqlite"
    if content is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE VIEW results AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i")
        other.close()
    else:
        path.write_bytes(content)
    for use in (opened().read, lambda: opened().add(entry(1))):
        with pytest.raises(ExciteError, match=r"records\.sqlite' .*(not written by excite|is damaged)") as error:
            use()
        assert "\n" not in str(error.value)
    assert path.exists()


@pytest.mark.parametrize("wrong", [lambda path: path.mkdir(), lambda path: path.parent.rmdir() or path.parent.touch()])
def test_something_in_the_way(tmp_path, wrong):
    (tmp_path / "out").mkdir()
    path = tmp_path / "out/records.jsonl"
    wrong(path)
    with pytest.raises(ExciteError, match=r"cannot read .*use another --out"):
        ResultStore(path, ()).read()
    with pytest.raises(ExciteError, match=r"cannot (read|write) .*another --out"):
        ResultStore(path, ()).add(entry(1))


class TestParquet:
    def test_what_other_programs_see(self, opened):
        fill(opened(parquet=True), 1, 2)
        assert files() == ["records.jsonl", "records.parquet"]
        table = pa.parquet.read_table("records.parquet")
        assert table.column_names == ["key", "image", "p", "size"]
        assert table["p"].to_pylist() == [1 / 3, 2 / 3]
        assert table["size"].to_pylist() == ["[1, 2]", "[2, 2]"]
        opened().clear()
        assert (files(), files("records.parquet")) == (["records.parquet"], [])
        assert not opened().read()

    @given(ENTRIES.filter(bool))
    @settings(max_examples=40, deadline=None)
    def test_every_value(self, tmp_path_factory, found):
        """Whatever the kinds of a field, each row has it; only what is no text is spelled otherwise."""
        folder = tmp_path_factory.mktemp("parquet")
        save_parquet(folder, found)
        for one, back in zip(found, read_parquet(folder), strict=True):
            for name, value in back.items():
                if not isinstance(value, str):
                    assert json.dumps(value) == json.dumps(one.get(name))

    def test_that_of_an_older_version_is_read(self, opened, tmp_path):
        kinds = {"key": "string", "image": "string", "size": "json"}
        schema = pa.schema([(name, "string") for name in (*kinds, "odd_row")], {"excite": json.dumps(kinds)})
        odd = {"key": "\udcfe", "image": "\udcff.jpg"}
        rows = [{"key": "k1", "image": "1.jpg", "size": "[1, 2]"}, {"key": "?", "odd_row": json.dumps(odd)}]
        (tmp_path / "records.parquet").mkdir()
        for number, row in enumerate(rows):
            table = pa.Table.from_pylist([row], schema=schema)
            pa.parquet.write_table(table, tmp_path / f"records.parquet/part-0000{number}.parquet")
        assert dict(opened().read()) == {"k1": {"key": "k1", "image": "1.jpg", "size": [1, 2]}, "\udcfe": odd}
        fill(opened(parquet=True), 2)
        assert files("records.parquet") == ["part-00000.parquet"]
        assert list(opened().read()) == ["k1", "\udcfe", "k2"]

    def test_somebody_elses_or_a_damaged_file(self, opened, tmp_path):
        path = tmp_path / "records.parquet/part-00000.parquet"
        path.parent.mkdir()
        pa.parquet.write_table(pa.table({"key": ["mine"]}), path)
        with pytest.raises(ExciteError, match="not written by excite"):
            opened(parquet=True).read()
        path.write_bytes(b"PAR1 and then nothing")
        with pytest.raises(ExciteError, match=r"part-00000\.parquet' is damaged .*move it away"):
            opened().read()

    def test_without_pyarrow(self, opened, monkeypatch):
        def missing(name):
            raise ImportError(name)

        monkeypatch.setattr("excite.jobs.parquet.import_module", missing)
        with pytest.raises(ExciteError, match=r"pip install .excite\[tags\]"):
            fill(opened(parquet=True), 1)
        assert set(opened().read()) == {"k1"}
