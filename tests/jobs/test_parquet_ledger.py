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
from excite.jobs import open_ledger, parquet
from excite.jobs.parquet import Columns, ParquetLedger, parts_of, read_part

pa = pytest.importorskip("pyarrow")

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
ENTRIES = st.lists(st.fixed_dictionaries({"image": VALUES, "p": VALUES}, optional={"more": VALUES}), max_size=6)


@pytest.fixture
def ledger(tmp_path):
    return ParquetLedger(tmp_path / "records.parquet", ("image",))


def entry(n, **more):
    return {"key": f"k{n}", "image": f"{n}.jpg", "p": n / 3, "size": [n, 2], **more}


def fill(ledger, *numbers):
    for n in numbers:
        ledger.add(entry(n))
    ledger.close()


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


def test_what_people_see(ledger):
    fill(ledger, 1, 2)
    table = pa.parquet.read_table(ledger.path)
    assert table.column_names == ["key", "image", "p", "size", "odd_row"]
    assert table["p"].to_pylist() == [1 / 3, 2 / 3]
    assert table["size"].to_pylist() == ["[1, 2]", "[2, 2]"]
    assert table["odd_row"].to_pylist() == [None, None]


@pytest.mark.parametrize("value", [3, None, math.inf, -0.0, 5e-324, 0.1 + 0.2, "text", [1.0], 2**80])
def test_numbers_of_another_kind(ledger, value):
    entries = [entry(1), {**entry(2), "p": value}]
    for one in entries:
        ledger.add(one)
    ledger.close()
    assert json.dumps([dict(ledger.read())[f"k{n}"] for n in (1, 2)]) == json.dumps(entries)


def test_names_that_are_not_unicode(ledger):
    odd = {**entry(1), "image": "\udcff.jpg", "key": "\udcfe"}
    ledger.add(odd)
    ledger.close()
    assert dict(ledger.read()) == {"\udcfe": odd}


def test_files_are_filled_one_after_the_other(ledger, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS", 4)
    for numbers in (range(3), range(3, 9), range(9, 12)):
        fill(ParquetLedger(ledger.path, ("image",)), *numbers)
    parts = parts_of(ledger.path)
    assert [path.name for path in parts.values()] == [f"part-0000{n}.parquet" for n in range(3)]
    assert [read_part(path)[1].num_rows for path in parts.values()] == [4, 4, 4]
    assert keys(ledger.path) == [f"k{n}" for n in range(12)]
    kept = ledger.read()
    assert len(kept) == 12
    assert [kept[f"k{n}"] for n in range(12)] == [entry(n) for n in range(12)]
    assert "k12" not in kept


def test_an_answer_is_written_down_soon_even_if_no_other_comes(ledger, monkeypatch):
    monkeypatch.setattr(parquet, "SECONDS", 0.05)
    ledger.add(entry(1))
    assert keys(ledger.path) == []
    deadline = time.monotonic() + 20
    while not keys(ledger.path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    ledger.add(entry(2))
    ledger.close()
    assert keys(ledger.path) == ["k1", "k2"]


def test_what_goes_wrong_later_is_told_then(ledger, monkeypatch):
    monkeypatch.setattr(parquet, "SECONDS", 0.01)

    def full(*_):
        raise ExciteError("the disk is full")

    ledger.add(entry(1))
    monkeypatch.setattr(parquet, "atomic_write", full)
    time.sleep(0.2)
    with pytest.raises(ExciteError, match="the disk is full"):
        ledger.close()


def test_of_two_answers_the_later_one_counts(ledger):
    fill(ledger, 1)
    ledger.add({**entry(1), "p": 7.0})
    ledger.close()
    assert ledger.read()["k1"]["p"] == 7


def test_answers_of_another_kind_have_files_of_their_own(ledger):
    fill(ledger, 1)
    ledger.add({"key": "k2", "image": "2.jpg", "boxes": []})
    ledger.close()
    assert len(parts_of(ledger.path)) == 2
    assert [dict(ledger.read())[key]["image"] for key in ("k1", "k2")] == ["1.jpg", "2.jpg"]


def test_outdated_rows_are_no_answers(ledger, tmp_path):
    fill(ledger, 1)
    newer = ParquetLedger(ledger.path, ("image", "boxes"))
    assert not newer.read()
    newer.add({**entry(2), "boxes": []})
    newer.close()
    assert set(newer.read()) == {"k2"}


def test_two_runs_at_once(ledger):
    ledger.add(entry(1))
    other = ParquetLedger(ledger.path, ("image",))
    with pytest.raises(ExciteError, match="another run is writing"):
        other.add(entry(2))
    ledger.close()
    other.add(entry(2))
    other.close()
    assert keys(ledger.path) == ["k1", "k2"]


def test_what_a_kill_left_is_removed(ledger):
    fill(ledger, 1)
    half = ledger.path / f".{'a' * 32}.tmp"
    half.write_text("half")
    fill(ledger, 2)
    assert not half.exists()


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing"])
def test_a_damaged_file(ledger, content):
    fill(ledger, 1)
    (ledger.path / "part-00001.parquet").write_bytes(content)
    with pytest.raises(ExciteError, match=r"part-00001\.parquet.*move it away") as error:
        ledger.read()
    assert "\n" not in str(error.value)


def test_somebody_elses_file(ledger):
    ledger.path.mkdir()
    pa.parquet.write_table(pa.table({"key": ["mine"]}), ledger.path / "part-00000.parquet")
    with pytest.raises(ExciteError):
        ledger.read()
    assert pa.parquet.read_table(ledger.path)["key"].to_pylist() == ["mine"]


def test_a_file_in_place_of_the_folder(ledger):
    ledger.path.write_text("mine")
    with pytest.raises(ExciteError, match="is a file"):
        ledger.read()
    with pytest.raises(ExciteError, match="choose another --out"):
        ledger.add(entry(1))


def test_forgotten(ledger):
    fill(ledger, 1)
    ledger.clear()
    assert not ledger.read()
    fill(ledger, 2)
    assert keys(ledger.path) == ["k2"]


class TestBoth:
    """A run goes on with the other engine."""

    def opened(self, tmp_path, *, parquet):
        return open_ledger(tmp_path / "records.jsonl", ("image",), parquet=parquet)

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
        ledger = ParquetLedger(tmp_path / str(count), ())
        for number in range(count):
            ledger.add({"key": f"{count}-{number}", "text": "x" * (number % 7)})
        ledger.close()
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
