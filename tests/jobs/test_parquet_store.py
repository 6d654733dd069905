"""Answers in Parquet files: exact, whole at every moment, and together with lines of JSON."""

import json
import math
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.errors import ExciteError
from excite.jobs import open_results, parquet
from excite.jobs.parquet import Columns, ParquetStore, parts_of, read_part

pa = pytest.importorskip("pyarrow")

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
ENTRIES = st.lists(st.fixed_dictionaries({"image": VALUES, "p": VALUES}, optional={"more": VALUES}), max_size=6)


@pytest.fixture
def store(tmp_path):
    return ParquetStore(tmp_path / "records.parquet", ("image",))


def entry(n, **more):
    return {"key": f"k{n}", "image": f"{n}.jpg", "p": n / 3, "size": [n, 2], **more}


def fill(store, *numbers):
    for n in numbers:
        store.add(entry(n))
    store.close()


def keys(folder):
    return [key for part in parts_of(folder).values() for key in read_part(part)[1]["key"].to_pylist()]


@given(ENTRIES)
@settings(max_examples=150, deadline=None)
def test_whatever_an_answer_holds_comes_back_exactly(found):
    entries = [{"key": f"k{n}", **one} for n, one in enumerate(found)]
    if entries:
        columns = Columns.of(entries)
        table = columns.table(entries)
        assert json.dumps(Columns.read(table.schema).entries(table)) == json.dumps(entries)


def test_what_people_see(store):
    fill(store, 1, 2)
    table = pa.parquet.read_table(store.path)
    assert table.column_names == ["key", "image", "p", "size", "odd_row"]
    assert table["p"].to_pylist() == [1 / 3, 2 / 3]
    assert table["size"].to_pylist() == ["[1, 2]", "[2, 2]"]
    assert table["odd_row"].to_pylist() == [None, None]


@pytest.mark.parametrize("value", [3, None, math.inf, -0.0, 5e-324, 0.1 + 0.2, "text", [1.0], 2**80])
def test_numbers_of_another_kind(store, value):
    entries = [entry(1), {**entry(2), "p": value}]
    for one in entries:
        store.add(one)
    store.close()
    assert json.dumps([dict(store.read())[f"k{n}"] for n in (1, 2)]) == json.dumps(entries)


def test_names_that_are_not_unicode(store):
    odd = {**entry(1), "image": "\udcff.jpg", "key": "\udcfe"}
    store.add(odd)
    store.close()
    assert dict(store.read()) == {"\udcfe": odd}


def test_files_are_filled_one_after_the_other(store, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS", 4)
    for numbers in (range(3), range(3, 9), range(9, 12)):
        fill(ParquetStore(store.path, ("image",)), *numbers)
    parts = parts_of(store.path)
    assert [path.name for path in parts.values()] == [f"part-0000{n}.parquet" for n in range(3)]
    assert [read_part(path)[1].num_rows for path in parts.values()] == [4, 4, 4]
    assert keys(store.path) == [f"k{n}" for n in range(12)]
    kept = store.read()
    assert len(kept) == 12
    assert [kept[f"k{n}"] for n in range(12)] == [entry(n) for n in range(12)]
    assert "k12" not in kept


def test_an_answer_is_written_down_soon_even_if_no_other_comes(store, monkeypatch):
    monkeypatch.setattr(parquet, "SECONDS", 0.05)
    store.add(entry(1))
    assert keys(store.path) == []
    deadline = time.monotonic() + 20
    while not keys(store.path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    store.add(entry(2))
    store.close()
    assert keys(store.path) == ["k1", "k2"]


def test_what_goes_wrong_later_is_told_then(store, monkeypatch):
    monkeypatch.setattr(parquet, "SECONDS", 0.01)

    def full(*_):
        raise ExciteError("the disk is full")

    store.add(entry(1))
    monkeypatch.setattr(parquet, "atomic_write", full)
    time.sleep(0.2)
    with pytest.raises(ExciteError, match="the disk is full"):
        store.close()


def test_of_two_answers_the_later_one_counts(store):
    fill(store, 1)
    store.add({**entry(1), "p": 7.0})
    store.close()
    assert store.read()["k1"]["p"] == 7


def test_answers_of_another_kind_have_files_of_their_own(store):
    fill(store, 1)
    store.add({"key": "k2", "image": "2.jpg", "boxes": []})
    store.close()
    assert len(parts_of(store.path)) == 2
    assert [dict(store.read())[key]["image"] for key in ("k1", "k2")] == ["1.jpg", "2.jpg"]


def test_outdated_rows_are_no_answers(store, tmp_path):
    fill(store, 1)
    newer = ParquetStore(store.path, ("image", "boxes"))
    assert not newer.read()
    newer.add({**entry(2), "boxes": []})
    newer.close()
    assert set(newer.read()) == {"k2"}


def test_two_runs_at_once(store):
    store.add(entry(1))
    other = ParquetStore(store.path, ("image",))
    with pytest.raises(ExciteError, match="another run is writing"):
        other.add(entry(2))
    store.close()
    other.add(entry(2))
    other.close()
    assert keys(store.path) == ["k1", "k2"]


def test_what_a_kill_left_is_removed(store):
    fill(store, 1)
    half = store.path / f".{'a' * 32}.tmp"
    half.write_text("half")
    fill(store, 2)
    assert not half.exists()


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing"])
def test_a_damaged_file(store, content):
    fill(store, 1)
    (store.path / "part-00001.parquet").write_bytes(content)
    with pytest.raises(ExciteError, match=r"part-00001\.parquet.*move it away") as error:
        store.read()
    assert "\n" not in str(error.value)


def test_somebody_elses_file(store):
    store.path.mkdir()
    pa.parquet.write_table(pa.table({"key": ["mine"]}), store.path / "part-00000.parquet")
    with pytest.raises(ExciteError):
        store.read()
    assert pa.parquet.read_table(store.path)["key"].to_pylist() == ["mine"]


def test_a_file_in_place_of_the_folder(store):
    store.path.write_text("mine")
    with pytest.raises(ExciteError, match="is a file"):
        store.read()
    with pytest.raises(ExciteError, match="choose another --out"):
        store.add(entry(1))


def test_forgotten(store):
    fill(store, 1)
    store.clear()
    assert not store.read()
    fill(store, 2)
    assert keys(store.path) == ["k2"]


class TestBoth:
    """A run goes on with the other engine."""

    def opened(self, tmp_path, *, parquet):
        return open_results(tmp_path / "records.jsonl", ("image",), parquet=parquet)

    @pytest.mark.parametrize("first", [True, False])
    def test_both_are_read_and_one_is_written(self, tmp_path, first):
        fill(self.opened(tmp_path, parquet=first), 1, 2)
        second = self.opened(tmp_path, parquet=not first)
        assert dict(second.read()) == {"k1": entry(1), "k2": entry(2)}
        fill(second, 3)
        lines = Path(tmp_path / "records.jsonl").read_text().splitlines()
        both = [*(json.loads(line)["key"] for line in lines), *keys(tmp_path / "records.parquet")]
        assert sorted(both) == ["k1", "k2", "k3"]

    def test_the_answer_of_the_one_that_is_written_comes_first(self, tmp_path):
        fill(self.opened(tmp_path, parquet=False), 1)
        again = self.opened(tmp_path, parquet=True)
        again.add({**entry(1), "p": 7.0})
        again.close()
        assert self.opened(tmp_path, parquet=True).read()["k1"]["p"] == 7
        assert self.opened(tmp_path, parquet=False).read()["k1"]["p"] == 1 / 3

    def test_forgotten(self, tmp_path):
        fill(self.opened(tmp_path, parquet=False), 1)
        fill(self.opened(tmp_path, parquet=True), 2)
        self.opened(tmp_path, parquet=False).clear()
        assert not self.opened(tmp_path, parquet=True).read()

    def test_without_pyarrow(self, tmp_path, monkeypatch):
        fill(self.opened(tmp_path, parquet=True), 1)

        def missing(name):
            raise ImportError(name)

        monkeypatch.setattr("excite.jobs.parquet.import_module", missing)
        with pytest.raises(ExciteError, match=r"pip install .excite\[tags\]"):
            self.opened(tmp_path, parquet=False).read()


def test_a_file_is_read_whole_while_it_is_replaced(tmp_path):
    """Whoever watches a run reads the last file while it is written again and again."""
    path = tmp_path / "part-00000.parquet"
    contents = []
    for count in (2, 300):
        store = ParquetStore(tmp_path / str(count), ())
        for number in range(count):
            store.add({"key": f"{count}-{number}", "text": "x" * (number % 7)})
        store.close()
        contents.append((tmp_path / str(count) / path.name).read_bytes())
    path.write_bytes(contents[0])
    done = threading.Event()

    def swap():
        while not done.is_set():
            for content in contents:
                (tmp_path / "new").write_bytes(content)
                (tmp_path / "new").replace(path)

    writer = threading.Thread(target=swap)
    writer.start()
    try:
        assert {len(read_part(path)[1]) for _ in range(400)} <= {2, 300}
    finally:
        done.set()
        writer.join()
