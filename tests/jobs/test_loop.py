"""The loop of all experiments: stopped, resumed, shared out; results are in order, and tasks are read late."""

import itertools
import json
import random
import re
import shutil
import signal
import subprocess
import threading
import warnings
from dataclasses import dataclass, field

import pytest
import torch

from excite.errors import ExciteError, ImageError, LayerError
from excite.jobs import Executor, Job, ResultStore
from excite.jobs import executor as processes
from excite.jobs.executor import AHEAD, in_order, in_stages
from excite.jobs.loop import answered, run


class Watched:
    """Submits jobs and counts the pending ones."""

    def __init__(self):
        self.busy = self.most = self.submitted = 0

    def submit(self, job):
        self.busy += 1
        self.submitted += 1
        self.most = max(self.most, self.busy)

        def answer():
            self.busy -= 1
            return {"n": job.task}

        return answer


@pytest.mark.parametrize("known", [0, 0.5, 1])
def test_the_same_order_whatever_is_known(known):
    chance = random.Random(0)
    jobs = [Job(n, f"k{n}", {"n": n} if chance.random() < known else None) for n in range(300)]
    watched = Watched()
    found = list(in_order(jobs, watched.submit, lambda: 5))
    assert [job for job, _ in found] == jobs
    assert [outcome["n"] for _, outcome in found] == list(range(300))
    assert watched.submitted == sum(job.known is None for job in jobs)
    assert watched.most == min(5, watched.submitted)


def test_in_stages_the_next_is_prepared_and_the_last_is_written_while_one_is_seen():
    """In the order of the jobs, the first and third stage in this thread; what is known or broken is passed by."""
    prepared, seen = ([threading.Event() for _ in range(5)] for _ in range(2))
    last, here, others = 4, set(), set()

    def read(task):
        here.add(threading.get_ident())
        if task > last:
            raise ImageError("broken")
        return task

    def prepare(task):
        others.add(threading.get_ident())
        prepared[task].set()
        return task

    def look(task):
        here.add(threading.get_ident())
        seen[task].set()
        return task, task == last or prepared[task + 1].wait(10)

    def write(looked):
        others.add(threading.get_ident())
        task, beside = looked
        return {"n": task, "beside": beside and (task == last or seen[task + 1].wait(10))}

    jobs = [*map(Job, range(6)), Job(6, known={"n": 6})]
    found = list(in_stages((read, prepare, look, write), jobs))
    assert [job for job, _ in found] == jobs
    assert [outcome for _, outcome in found[:5]] == [{"n": n, "beside": True} for n in range(5)]
    assert [str(found[5][1]), found[6][1]] == ["broken", {"n": 6}]
    assert here == {threading.get_ident()}
    assert not here & others


@pytest.mark.parametrize("known", [False, True])
def test_a_list_without_end_is_no_trouble(known):
    """Nor is one of which all but the first is known."""
    seen = []
    jobs = (seen.append(n) or Job(n, known={"n": n} if known and n else None) for n in itertools.count())
    found = in_order(jobs, Watched().submit, lambda: 5)
    assert next(found)[1] == {"n": 0}
    assert len(seen) <= (AHEAD if known else 6)
    assert [outcome["n"] for _, outcome in itertools.islice(found, 9)] == list(range(1, 10))


@dataclass
class Doubling:
    """Doubles numbers; has trouble with some."""

    unreadable: tuple = ()
    wrong: tuple = ()
    asked: list = field(default_factory=list)

    def key(self, task):
        if task < 0:
            raise ImageError(f"{task} is not there")
        return f"k{task}"

    def __call__(self, task):
        self.asked.append(task)
        if task in self.unreadable:
            raise ImageError(f"{task} cannot be read")
        if task in self.wrong:
            raise LayerError(f"{task} has no such layer")
        return {"double": 2 * task, "threads": torch.get_num_threads()}


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "records.jsonl", required=("double",))


def doubles(*arguments, **options):
    return [record["double"] for record in run(*arguments, **options)]


def test_resumed(store):
    """In order, each task read when its turn comes."""
    seen = []
    first = run(Doubling(), (seen.append(n) or n for n in (3, 1, 2, 5)), store)
    assert [record["double"] for record in itertools.islice(first, 2)] == [6, 2]
    assert seen == [3, 1]
    first.close()
    assert [json.loads(line)["key"] for line in store.path.read_text().splitlines()] == ["k3", "k1"]
    with store.path.open("a") as file:
        file.write('{"key": "k5", "other": 1}\n{"key": "k2", "dou')  # without what is required; cut off by a kill
    work = Doubling()
    assert doubles(work, [3, 1, 2, 5], store) == [6, 2, 4, 10]
    assert work.asked == [2, 5]


def test_an_answer_that_no_longer_counts_is_found_anew(store):
    for key, double in (("k0", "old"), ("k1", "good")):
        store.add({"key": key, "double": double})
    found = answered(Doubling(), [0, 1], store, still=lambda entry: entry["double"] == "good")
    assert [(task, entry["double"]) for task, entry in found] == [(0, 0), (1, "good")]
    assert store.read()["k0"]["double"] == 0


def test_failures_are_told_and_not_kept(store):
    failures = []
    assert doubles(Doubling(unreadable=(1,)), [3, 1, -2, 2], store, failures=failures) == [6, 4]
    assert failures == ["1 cannot be read", "-2 is not there"]
    with pytest.raises(ImageError, match="1 cannot be read"):  # nobody collects them
        doubles(Doubling(unreadable=(1,)), [3, 1], store)
    with pytest.raises(LayerError):  # the question is wrong
        doubles(Doubling(wrong=(1,)), [3, 1], store, failures=[])
    assert doubles(Doubling(), [3, 1, 2], store) == [6, 2, 4]  # mended meanwhile


def test_one_thread_and_as_many_as_before_afterwards(store):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert [record["threads"] for record in run(Doubling(), [1], store)] == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


class TestWorkers:
    @pytest.mark.usefixtures("quick_workers")
    def test_several(self, store):
        """The same answers and failures in the same order."""
        failures = []
        work = Doubling(unreadable=(1,))
        records = list(run(work, [3, 1, 2, 7], store, workers=2, failures=failures))
        assert [(record["double"], record["threads"]) for record in records] == [(6, 1), (4, 1), (14, 1)]
        assert failures == ["1 cannot be read"]
        assert work.asked == []  # not here
        assert list(store.read()) == ["k3", "k2", "k7"]

    def test_work_that_cannot_be_sent(self, store):
        work = Doubling()
        work.asked = lambda: None
        with pytest.raises(ExciteError, match=r"cannot be sent to other processes .*: use one worker"):
            doubles(work, [1, 2], store, workers=2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"engine": "spark"}, "there is no engine 'spark': choose local or ray"),
        ({"workers": 0}, "0 workers cannot do anything"),
        ({"address": "auto"}, "give --engine ray too"),
    ],
)
def test_impossible_executors(wrong, said):
    with pytest.raises(ExciteError, match=said):
        Executor(**wrong)


def test_without_the_packages(monkeypatch):
    monkeypatch.setattr("excite.jobs.executor.find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(ExciteError, match=r"pip install 'excite\[ray\]'"):
        Executor("ray")


def blocked():
    """The signals that a process which begins now does not hear, as bits."""
    told = subprocess.run([shutil.which("cat"), "/proc/self/status"], check=True, capture_output=True, text=True)  # noqa: S603
    return int(re.search(r"SigBlk:\s*(\w+)", told.stdout)[1], 16)


def test_processes_that_begin_do_not_hear_ctrl_c():
    bit = 1 << (signal.SIGINT - 1)
    with processes.ctrl_c_for_parent():
        assert blocked() & bit
    assert not blocked() & bit


def test_the_parent_hears_it_afterwards():
    def interrupted():
        with processes.ctrl_c_for_parent():
            signal.raise_signal(signal.SIGINT)
            seen.append("still here")

    seen = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["still here"]


def test_a_worker_that_cannot_take_the_work_says_why(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(processes, "_here", [])
    processes._begin(b"no pickle")
    with pytest.raises(ExciteError, match=r"a worker cannot take the work \(UnpicklingError: .*\): use one worker"):
        processes._work_here("task")
