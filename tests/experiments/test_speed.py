"""The speed benchmark: rounds by a clock that only the candidates move, and a whole run on a tiny network."""

import csv
import gc
import io
import json
import os
import sys

import pytest
import torch
from torch import nn

from excite.errors import DataError, ModelError
from excite.experiments.speed import run as speed_run
from excite.experiments.speed.end_to_end import PARTS, EndToEnd, known_words
from excite.experiments.speed.end_to_end import columns as way_columns
from excite.experiments.speed.report import FIELDS, columns, headline, merged, speed_figure, write_tables
from excite.experiments.speed.run import MOST_MAPS, QUICK, REQUIRED, Plan, SpeedBench, SpeedTask
from excite.experiments.speed.timing import (
    STATUS,
    Candidate,
    Case,
    Rounds,
    Stopwatch,
    TimedNetwork,
    above_layers,
    figure_layers,
    in_own_process,
    open_network,
    peak_of,
    photograph,
    spread,
)
from excite.jobs import ResultStore
from excite.models import MODELS, Card, Choice, Preprocess
from excite.vocabulary import Labels


class Track:
    """A clock, and a diary of who ran."""

    def __init__(self):
        self.now, self.diary = 0.0, []

    def runner(self, name, *seconds):
        """Takes these seconds, one after the other; the last one for ever."""
        left = list(seconds)

        def run():
            self.diary.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run

    def candidate(self, name, *seconds):
        return Candidate(Case("net", "layer", name), lambda: self.runner(name, *seconds))

    def rounds(self, *forward, seed=0):
        return Rounds(self.runner("forward", *forward), Stopwatch(clock=lambda: self.now), seed)


@pytest.fixture
def track():
    return Track()


def test_all_take_turns_in_an_order_that_the_seed_decides():
    diaries = []
    for seed in (1, 1, 2):
        track = Track()
        rounds = track.rounds(1.0, seed=seed)
        rounds.run([track.candidate(name, 1.0) for name in "abcd"], budget=60.0)
        seen = [track.diary[k : k + 10] for k in range(0, len(track.diary), 10)]
        assert len(seen) == 1 + 6  # the first one warms up; six of ten seconds fill a minute
        assert all(one[0] == one[-1] == "forward" and sorted(one[2:-1:2]) == list("abcd") for one in seen)
        assert all(one[1:-1:2] == ["forward"] * 4 for one in seen)  # one right before each
        assert len({tuple(one) for one in seen}) > 3
        assert len(rounds.forwards.seconds) == 6
        diaries.append(track.diary)
    assert diaries[0] == diaries[1] != diaries[2]


@pytest.mark.parametrize(
    ("forward", "seconds", "budget", "timed", "ratios"),
    [
        ((1.0,), (100.0, 2.0), 1000.0, {2.0}, {2.0}),  # the first round warms up
        ((10.0,), (30.0, 20.0, 40.0), 5.0, {30.0, 20.0, 40.0}, {3.0, 2.0, 4.0}),  # unless it exceeds the budget
        ((1.0, 1.0, 1.0, 10.0, 10.0, 10.0, 1.0), (3.0, 30.0, 3.0), 5.0, {3.0, 30.0}, {3.0}),  # a slow spell hits all
    ],
)
def test_what_counts(track, forward, seconds, budget, timed, ratios):
    rounds = track.rounds(*forward)
    rounds.run([track.candidate("a", *seconds)], budget=budget, least=3)
    (timing,) = rounds.timings.values()
    assert (set(timing.seconds), set(timing.ratios)) == (timed, ratios)


def test_who_cannot_start_or_fails_later_is_told_and_the_others_go_on(track):
    left = [1, 1]

    def no_start():
        raise ModuleNotFoundError("no module named 'peer'")

    def breaking():
        if not left:
            raise ValueError("first line\nsecond line")
        track.now += left.pop()

    rounds = track.rounds(1.0)
    starts = {"absent": no_start, "breaking": lambda: breaking}
    candidates = [Candidate(Case("net", "layer", name), start) for name, start in starts.items()]
    rounds.run([*candidates, track.candidate("a", 2.0)], budget=50.0)
    assert [case.method for case in rounds.timings] == ["a"]
    assert {case.method: why for case, why in rounds.failed.items()} == {
        "absent": "ModuleNotFoundError: no module named 'peer'",
        "breaking": "ValueError: first line",
    }


def test_the_clock_runs_without_garbage_and_waits_for_the_device(track):
    seen, waits = [], []
    Stopwatch()(lambda: seen.append(gc.isenabled()))
    with pytest.raises(ValueError, match="no"):
        Stopwatch()(lambda: (_ for _ in ()).throw(ValueError("no")))
    assert (seen, gc.isenabled()) == ([False], True)
    Stopwatch(clock=lambda: track.now, wait=lambda: waits.append(track.now))(track.runner("a", 2.0))
    assert waits == [0.0, 2.0]


def test_arithmetic_above_a_layer_by_hand():
    network = nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 8 x 8 places x 4 x 27 multiply-adds = 6912
        *(nn.Conv2d(4, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)),  # 4 x 4 x 8 x 4 = 512; 1280
    ).eval()
    whole = 6912 + 512 + 1280
    above = above_layers(network, torch.ones(1, 3, 8, 8), ["0", "2", "4"], Stopwatch())
    assert above["0"][0] == above["2"][0] == pytest.approx((512 + 1280) / whole)
    assert above["4"][0] == pytest.approx(1280 / whole)
    assert not any(child._forward_hooks for child in network.modules())


def test_time_above_a_layer():
    """Each module takes a second, three of them lie above."""
    seconds = [0.0]

    class Tick(nn.Module):
        def forward(self, x):
            seconds[0] += 1
            return x

    network = nn.Sequential(nn.Conv2d(1, 1, 1), *(Tick() for _ in range(4)))
    above = above_layers(network, torch.ones(1, 1, 2, 2), ["1", "4"], Stopwatch(clock=lambda: seconds[0]))
    assert (above["1"][1], above["4"][1]) == (0.75, 0.0)


PLAN = Plan(models=("tiny",), batches=(1, 2), concepts=(1, 2, 6), memory=False)


@pytest.fixture
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
def bench(tiny):
    return SpeedBench(seconds=0.0, threads=torch.get_num_threads())


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "speed.jsonl", required=REQUIRED)


def rows_of(bench, plan, store, **more):
    return merged(row for entry in bench.entries(plan.tasks(), store, **more) for row in entry["rows"])


def test_a_run_its_tables_and_its_figure(bench, store, tmp_path, monkeypatch):
    rows = rows_of(bench, PLAN, store)
    assert all(tuple(row) == FIELDS for row in rows)
    assert len({tuple(row.values())[:5] for row in rows}) == len(rows)
    assert {row["method"] for row in rows} == {"forward", "input gradient", "mwp", "c-mwp"}
    assert {(row["concepts"], row["batch"]) for row in rows if row["method"] == "c-mwp" and row["layer"] == "5"} == {
        (number, batch) for number in (1, 2, 6) for batch in (1, 2)
    }
    assert {row["layer"] for row in rows if row["group"] == "layers"} == {"1", "2", "4"}
    assert all(0 < row["low"] <= row["ratio_to_forward"] <= row["high"] and row["rounds"] >= 3 for row in rows)
    assert all(1 < row["limit"] < 3 for row in rows if row["method"] == "c-mwp")
    assert all(row["each_further"] is not None for row in rows if row["concepts"] > 1)

    files = write_tables(rows, bench.facts, tmp_path)
    assert [file.name for file in files] == ["speed.md", "speed.csv", "speed.json"]
    assert json.loads((tmp_path / "speed.json").read_text()) == rows
    read = list(csv.DictReader(io.StringIO((tmp_path / "speed.csv").read_text())))
    assert read == [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    page = (tmp_path / "speed.md").read_text()
    assert "| tiny | 5 | 16x16 | random |" in page
    assert page.count("## ") == 3
    assert speed_figure(rows, tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert speed_figure([row for row in rows if row["method"] == "forward"], tmp_path / "none.png") is None

    calls = []  # what is finished is not measured again
    real = SpeedBench.__call__
    monkeypatch.setattr(SpeedBench, "__call__", lambda self, task: calls.append(task.kind) or real(self, task))
    assert rows_of(bench, PLAN, store) == rows
    assert calls == []
    lines = store.path.read_text().splitlines()
    store.path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])  # as a kill leaves it
    assert len(rows_of(bench, PLAN, store)) == len(rows)
    assert calls == ["layers"]
    rows_of(bench, Plan(models=("tiny",), **QUICK), store, fresh=True)
    assert calls == ["layers", "pictures"]


def test_too_much_at_once_is_a_row_with_its_reason(bench, store):
    plan = Plan(models=("tiny",), batches=(MOST_MAPS,), concepts=(1, 2), all_layers=False, memory=False)
    (skipped,) = [row for row in rows_of(bench, plan, store) if row["concepts"] == 2]
    assert skipped["ratio_to_forward"] is None
    assert "skipped" in skipped["note"]
    assert columns(skipped)["x forward"] == "-"


def test_compiled_maps_are_rows_or_say_why_not(bench, store, monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path))
    plan = Plan(models=("tiny",), **{**QUICK, "concepts": (1, 2), "compiled": True})
    rows = rows_of(bench, plan, store)
    compiled = [row for row in rows if row["method"] == "c-mwp compiled"]
    assert [row["concepts"] for row in compiled] == [1, 2]
    assert all(row["ratio_to_forward"] > 0 and row["times_c_mwp"] > 0 for row in compiled)
    assert headline(rows)[0]["compiled"]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    notes = [row["note"] for row in rows_of(bench, plan, store, fresh=True) if row["method"] == "c-mwp compiled"]
    assert len(notes) == 2
    assert all("pip install 'excite[onnx]'" in note for note in notes)


def test_other_engine_other_times(bench, monkeypatch):
    task = SpeedTask("pictures", "tiny")
    assert SpeedBench(seconds=0.0, threads=bench.threads + 1).key(task) != bench.key(task)
    monkeypatch.setattr(SpeedBench, "basis", "another engine")
    assert SpeedBench(seconds=0.0, threads=bench.threads).key(task) != bench.key(task)


def test_memory_joins_its_row(bench, store, monkeypatch):
    peaks = {"forward": 1.0, "input gradient": 2.0, "mwp": 3.0, "c-mwp": 4.0}
    monkeypatch.setattr(speed_run.timing, "in_own_process", lambda _work, task, *_: {"peak_mb": peaks[task.method]})
    plan = Plan(models=("tiny",), batches=(1,), concepts=(1,), all_layers=False)
    rows = rows_of(bench, plan, store)
    assert {row["method"]: row["peak_mb"] for row in rows} == peaks
    (top,) = headline(rows)
    assert (top["MB"], top["MB of gradient"]) == ("4", "2")


def test_the_plan_and_its_layers_from_top_to_bottom(tiny):
    assert figure_layers(tiny) == ["5", "4", "2", "1"]
    assert spread(range(20), 4, 8) == [0, 8, 13, 19]
    kinds = [task.kind for task in Plan(models=("a", "b"), compiled=True).tasks()]
    assert kinds[: kinds.index("memory")] == ["pictures", "concepts", "pictures", "pictures", "compiled", "layers"]
    assert speed_run.numbers("8, 1,8", "--batches") == (1, 8)
    for wrong in ("", "0", "1;2", "-1", "1,", "a"):
        with pytest.raises(DataError, match="--batches"):
            speed_run.numbers(wrong, "--batches")


def test_the_paper_s_networks_and_sizes():
    subject = open_network("googlenet")
    assert (subject.layer, subject.size, subject.weights) == ("pool2/3x3_s2", "224x335", "random")
    assert not torch.equal(*subject.batch(2))
    with pytest.raises(ModelError):
        open_network("no-such-network")


MIB = 2**20
linux = pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells the high-water mark of a while")


def fill(megabytes):
    return torch.ones(megabytes * MIB // 4)


def peaks_in_one_process():
    """For a process of its own: of a call whose memory is given back, and of one that keeps it."""
    cpu, kept = torch.device("cpu"), []
    given_back = peak_of(lambda: fill(300), lambda: fill(128), cpu)
    return {"given_back": given_back, "kept": peak_of(lambda: None, lambda: kept.append(fill(64)), cpu)}


def failing():
    raise ValueError("no such layer\nat all")


def dying():
    os._exit(9)


@linux
def test_memory_that_was_given_back_is_seen_and_what_is_kept_counts_twice():
    """The forward pass before it had more, which must not hide it."""
    peaks = in_own_process(peaks_in_one_process)
    assert peaks["given_back"] == pytest.approx(128, abs=8)
    assert peaks["kept"] == pytest.approx(128, abs=8)


def test_failures_and_deaths_are_told():
    assert in_own_process(failing) == {"note": "ValueError: no such layer"}
    assert "memory ran out" in in_own_process(dying)["note"]


@linux
def test_the_memory_of_a_real_map():
    """The embedded network; in this process, as the test above has one of its own."""
    for method, least in (("c-mwp", 5), ("forward", -1)):
        found = speed_run.measure_memory(SpeedTask("memory", "efficientnet-lite0", method=method), 1, "cpu")
        assert least < found["peak_mb"] < 500


def test_the_whole_way_of_photographs_beside_plain_torch(tmp_path, monkeypatch):
    """Every photograph is seen and written; the parts add up to one; nothing is left but the answer."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    card = Card(
        name="tiny", build=lambda _: net, pretrained=net.eval, preprocess=Preprocess(24), layers=("1",),
        labels=lambda: Labels(["tench", "dog", "cat"]), description="for these tests", source="made here",
    )  # fmt: skip
    monkeypatch.setitem(MODELS, "tiny", card)
    for name in "abc":
        photograph((40, 60)).save(tmp_path / f"{name}.jpg")
    out, choice = tmp_path / "out", Choice("tiny")
    out.mkdir()
    classifier = choice.load()
    assert list(known_words(classifier, 3)) == ["dog", "cat", "0"]
    row = EndToEnd(choice, classifier, sorted(tmp_path.glob("*.jpg")), 2, 1, 0.0).row(out, 0.0)
    assert (row["photographs"], row["overlays"], row["turns"]) == (3, 6, 6)
    assert list(row["milliseconds"]) == list(PARTS)
    assert row["low"] <= row["ratio_to_plain"] <= row["high"]
    assert row["ratio_to_plain"] == pytest.approx(row["plain_per_second"] / row["per_second"], rel=0.9)
    assert json.dumps(row)
    assert len(way_columns(row)["x plain"].split()) == 2
    assert list(out.iterdir()) == []
