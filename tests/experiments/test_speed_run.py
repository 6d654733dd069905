"""The whole benchmark on a network that takes no time."""

import csv
import io
import json
import os
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from excite.errors import DataError
from excite.experiments.speed import run as speed_run
from excite.experiments.speed.candidates import MOST_MAPS, QUICK, Plan, SpeedTask, numbers
from excite.experiments.speed.networks import TimedNetwork, figure_layers, spread
from excite.experiments.speed.report import FIELDS, columns, group_rows, headline, merged, speed_figure, write_tables
from excite.experiments.speed.run import (
    REQUIRED,
    STATUS,
    SpeedBench,
    endurance,
    in_own_process,
    measure_memory,
    peak_of,
)
from excite.experiments.speed.timing import Case, Timing
from excite.jobs import JsonLinesStore

PLAN = Plan(models=("tiny",), batches=(1, 2), concepts=(1, 2, 6), peers=False, memory=False)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 6)),
    ).eval()
    subject = TimedNetwork("tiny", module, "5", torch.rand(1, 3, 16, 16), "random")
    monkeypatch.setattr(speed_run, "open_network", lambda model, device: subject)
    return subject


@pytest.fixture
def bench():
    return SpeedBench(seconds=0.0, threads=torch.get_num_threads())


@pytest.fixture
def store(tmp_path):
    return JsonLinesStore(tmp_path / "speed.jsonl", required=REQUIRED)


def test_compiled_maps_are_rows_of_their_own_or_say_why_not(bench, store, monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path))
    plan = Plan(models=("tiny",), **{**QUICK, "concepts": (1, 2), "compiled": True})
    rows = [row for row in rows_of(bench, plan, store) if row["method"] == "c-mwp compiled"]
    assert [row["concepts"] for row in rows] == [1, 2]
    assert all(row["ratio_to_forward"] > 0 for row in rows)
    assert all(row["times_c_mwp"] > 0 for row in rows)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    rows = [row for row in rows_of(bench, plan, store, fresh=True) if row["method"] == "c-mwp compiled"]
    assert len(rows) == 2
    assert all("pip install 'excite[onnx]'" in row["note"] for row in rows)


def rows_of(bench, plan, store, **more):
    return merged(row for entry in bench.entries(plan.tasks(), store, **more) for row in entry["rows"])


@pytest.fixture
def rows(bench, store):
    return rows_of(bench, PLAN, store)


def test_every_row_has_every_field_and_each_case_is_there_once(rows):
    assert all(tuple(row) == FIELDS for row in rows)
    assert {"network", "layer", "method", "concepts", "batch", "ratio_to_forward", "peak_mb"} <= set(FIELDS)
    cases = [tuple(row[field] for field in FIELDS[:5]) for row in rows]
    assert len(cases) == len(set(cases))
    assert {("tiny", "5", "c-mwp", number, 1) for number in (1, 2, 6)} <= set(cases)
    assert {("tiny", "input", "input gradient", 1, 2), ("tiny", "", "forward", 1, 1)} <= set(cases)
    assert {("tiny", layer, method, 1, 1) for layer in figure_layers_of(rows) for method in ("mwp", "c-mwp")} <= set(
        cases
    )
    json.dumps(rows, allow_nan=False)


def figure_layers_of(rows):
    return {row["layer"] for row in rows if row["group"] == "layers"}


def test_numbers_make_sense(rows):
    for row in rows:
        if row["ratio_to_forward"] is not None:
            assert 0 < row["low"] <= row["ratio_to_forward"] <= row["high"]
            assert row["rounds"] >= 3
        else:
            assert row["note"]
    ours = next(row for row in rows if row["method"] == "c-mwp" and row["batch"] == 1)
    assert 1 < ours["limit"] < 3
    assert [row["each_further"] is not None for row in rows if row["method"] == "c-mwp" and row["concepts"] == 2]


def test_too_much_at_once_is_a_row_with_its_reason(bench, store):
    plan = Plan(models=("tiny",), batches=(MOST_MAPS,), concepts=(1, 2), all_layers=False, peers=False, memory=False)
    (skipped,) = [row for row in rows_of(bench, plan, store) if row["concepts"] == 2]
    assert skipped["ratio_to_forward"] is None
    assert "skipped" in skipped["note"]


def test_what_is_finished_is_not_measured_again(bench, store, rows, monkeypatch):
    calls = []
    real = SpeedBench.__call__
    monkeypatch.setattr(SpeedBench, "__call__", lambda self, task: calls.append(task.kind) or real(self, task))
    assert rows_of(bench, PLAN, store) == rows
    assert calls == []
    lines = store.path.read_text().splitlines()
    store.path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])  # as a kill leaves it
    assert len(rows_of(bench, PLAN, store)) == len(rows)
    assert calls == ["layers"]
    rows_of(bench, PLAN, store, fresh=True)
    assert len(calls) == 1 + len(list(PLAN.tasks()))


def test_other_engine_other_times(bench, monkeypatch):
    task = SpeedTask("pictures", "tiny")
    assert SpeedBench(seconds=0.0, threads=bench.threads + 1).key(task) != bench.key(task)
    monkeypatch.setattr(speed_run, "_basis", lambda: "another engine")
    assert SpeedBench(seconds=0.0, threads=bench.threads).key(task) != bench.key(task)


def test_memory_joins_its_row(bench, store, monkeypatch):
    peaks = {"forward": 1.0, "input gradient": 2.0, "mwp": 3.0, "c-mwp": 4.0}

    def known(work, task, *_):
        return {"peak_mb": peaks[task.method]} if task.kind == "memory" else {"note": "7 images: as before"}

    monkeypatch.setattr(speed_run, "in_own_process", known)
    plan = Plan(models=("tiny",), batches=(1,), concepts=(1,), all_layers=False, peers=False, endurance=7)
    rows = rows_of(bench, plan, store)
    assert {row["method"]: row["peak_mb"] for row in rows[:-1]} == peaks
    assert rows[-1]["note"] == "7 images: as before"
    (top,) = headline(rows)
    assert (top["MB"], top["MB of gradient"]) == ("4", "2")


def test_the_tables(rows, bench, tmp_path):
    files = write_tables(rows, bench.facts, tmp_path)
    assert [file.name for file in files] == ["speed.md", "speed.csv", "speed.json"]
    assert json.loads((tmp_path / "speed.json").read_text()) == rows
    read = list(csv.DictReader(io.StringIO((tmp_path / "speed.csv").read_text())))
    assert read == [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    page = (tmp_path / "speed.md").read_text()
    assert "## One image, one concept" in page
    assert "| tiny | 5 | 16x16 | random |" in page
    assert len({tuple(columns(row)) for row in rows}) == 1


def test_the_figure(rows, tmp_path):
    path = speed_figure(rows, tmp_path / "speed.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert speed_figure([row for row in rows if row["method"] == "forward"], tmp_path / "none.png") is None
    assert not (tmp_path / "none.png").exists()


def test_layers_from_top_to_bottom(tiny):
    assert figure_layers(tiny) == ["5", "4", "2", "1"]
    assert spread(range(20), 4, 8) == [0, 8, 13, 19]
    assert spread("abc", 4, "b") == ["a", "b", "c"]


def test_the_plan():
    kinds = [task.kind for task in Plan(models=("a", "b")).tasks()]
    assert kinds[: kinds.index("memory")] == ["pictures", "concepts", "pictures", "pictures", "layers", "peers"]
    assert [task.kind for task in Plan(models=("a",), **QUICK).tasks()] == ["pictures"]
    assert numbers("8, 1,8", "--batches") == (1, 8)
    for wrong in ("", "0", "1;2", "-1", "1,", "a"):
        with pytest.raises(DataError, match="--batches"):
            numbers(wrong, "--batches")


def test_peers_stand_beside_our_maps_compiled_or_not(tiny):
    taken = {"c-mwp": 2.0, "c-mwp compiled": 1.0, "torchray": 6.0}
    timings = {Case("tiny", "5", method): Timing((seconds,), ((1.0, 1.0),)) for method, seconds in taken.items()}
    rounds = SimpleNamespace(timings=timings, forwards=Timing((1.0,), ((1.0, 1.0),)), failed={})
    rows = {row["method"]: row for row in group_rows(rounds, tiny, "peers", 1)}
    assert (rows["torchray"]["times_c_mwp"], rows["torchray"]["times_compiled"]) == (3.0, 6.0)
    assert (columns(rows["torchray"])["x c-mwp"][:3], columns(rows["torchray"])["x compiled"]) == ("3.0", "6.0")
    assert columns(rows["c-mwp compiled"])["x compiled"] == columns(rows["c-mwp"])["x c-mwp"] == ""
    assert columns(rows["c-mwp compiled"])["x c-mwp"] == ""


def test_the_plan_of_compiled_maps():
    tasks = list(Plan(models=("a",), **{**QUICK, "peers": True, "compiled": True}).tasks())
    assert [(task.kind, task.compiled) for task in tasks] == [("pictures", False), ("compiled", False), ("peers", True)]


MIB = 2**20
linux = pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells the high-water mark of a while")


def fill(megabytes):
    return torch.ones(megabytes * MIB // 4)


def peak_of_filling(megabytes):
    """For a process of its own."""
    peak = peak_of(lambda: fill(300), lambda: fill(megabytes), torch.device("cpu"))
    return {"peak_mb": peak}


def peak_of_keeping(megabytes):
    kept = []
    return {"peak_mb": peak_of(lambda: None, lambda: kept.append(fill(megabytes)), torch.device("cpu"))}


def growth_while_keeping(pictures):
    kept = []
    early, end = endurance(lambda number: kept.append(fill(1)), pictures)
    return {"growth": end - early}


def failing():
    raise ValueError("no such layer\nat all")


def dying():
    os._exit(9)


@linux
def test_what_a_call_needs_is_seen_though_it_was_given_back():
    """The forward pass before it had more, which must not hide it."""
    assert in_own_process(peak_of_filling, 128)["peak_mb"] == pytest.approx(128, abs=8)


@linux
def test_what_is_kept_counts_twice():
    assert in_own_process(peak_of_keeping, 64)["peak_mb"] == pytest.approx(128, abs=8)


def test_failures_and_deaths_are_told():
    assert in_own_process(failing) == {"note": "ValueError: no such layer"}
    assert "memory ran out" in in_own_process(dying)["note"]


@linux
def test_endurance_sees_what_is_kept():
    """In a process of its own: other tests leave free memory behind, in which all that is kept would find room."""
    assert in_own_process(growth_while_keeping, 160)["growth"] == pytest.approx(60, abs=8)


@linux
def test_a_real_map():
    """The embedded network, in a process of its own."""
    answer = in_own_process(measure_memory, SpeedTask("memory", "efficientnet-lite0", method="c-mwp"), 1, "cpu")
    assert 5 < answer["peak_mb"] < 500
