"""Results in the order of the tasks, which are read one by one as late as possible."""

import itertools
import random

import pytest

from excite.errors import ExciteError
from excite.jobs import Executor, Job
from excite.jobs.executor import AHEAD, in_order
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


def test_a_list_without_end_is_no_trouble():
    watched, seen = Watched(), []
    jobs = (seen.append(n) or Job(n) for n in itertools.count())
    found = in_order(jobs, watched.submit, lambda: 5)
    assert [job.task for job, _ in itertools.islice(found, 10)] == list(range(10))
    assert len(seen) <= 15


def test_nor_is_one_of_which_all_but_the_first_is_known():
    watched, seen = Watched(), []
    jobs = (seen.append(n) or Job(n, known={"n": n} if n else None) for n in itertools.count())
    assert next(in_order(jobs, watched.submit, lambda: 5))[1] == {"n": 0}
    assert len(seen) <= AHEAD


class MemoryStore:
    """A result store in memory."""

    def __init__(self, entries=()):
        self.entries = {entry["key"]: entry for entry in entries}
        self.closed = 0

    def read(self):
        return dict(self.entries)

    def add(self, entry):
        self.entries[entry["key"]] = entry

    def close(self):
        self.closed += 1


class Naming:
    def key(self, task):
        return f"k{task}"

    def __call__(self, task):
        return {"n": task}


def test_tasks_are_looked_at_when_their_turn_comes():
    seen, store = [], MemoryStore()
    answers = run(Naming(), (seen.append(n) or n for n in itertools.count()), store)
    assert [entry["n"] for entry in itertools.islice(answers, 3)] == [0, 1, 2]
    assert seen == [0, 1, 2]
    answers.close()
    assert store.closed == 1


def test_an_answer_that_no_longer_counts_is_found_anew():
    store = MemoryStore([{"key": "k0", "n": "old"}, {"key": "k1", "n": "good"}])
    found = list(answered(Naming(), [0, 1], store, still=lambda entry: entry["n"] == "good"))
    assert found == [(0, {"key": "k0", "n": 0}), (1, {"key": "k1", "n": "good"})]
    assert store.entries["k0"] == {"key": "k0", "n": 0}


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
