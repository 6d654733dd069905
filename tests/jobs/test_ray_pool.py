"""Lost workers of a cluster, with a fake Ray."""

import os
import pickle
import platform
import random
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from slow_work import Counting

from excite.errors import ExciteError, ImageError, LayerError
from excite.jobs import Executor, Job, cluster
from excite.jobs.cluster import PACKAGES, WorkerSetup, load_work, worker_class

exceptions = pytest.importorskip("ray.exceptions")


@dataclass(eq=False)
class Worker:
    """A worker of the fake cluster."""

    ray: "FakeRay"
    inner: object = field(default_factory=worker_class())

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *arguments: Reference(self, name, arguments))


@dataclass(eq=False)
class Reference:
    worker: Worker
    method: str
    arguments: tuple


@dataclass
class FakeRay:
    """Gives results in any order; some tasks end their worker so many times, some workers never start."""

    fatal: Counter = field(default_factory=Counter)
    failing_starts: int = 0
    seed: int = 0
    exceptions = exceptions
    workers: list = field(default_factory=list)
    killed: list = field(default_factory=list)
    done: Counter = field(default_factory=Counter)

    def __post_init__(self):
        self.chance = random.Random(self.seed)

    def put(self, value):
        return value

    def remote(self, kind):
        return self

    def options(self, *, num_cpus, max_restarts, scheduling_strategy):
        assert (num_cpus, max_restarts) == (1, 0)

        def start():
            self.workers.append(Worker(self))
            return self.workers[-1]

        return SimpleNamespace(remote=start)

    def wait(self, references, timeout):
        ready = self.chance.choice(references)
        return [ready], [one for one in references if one is not ready]

    def get(self, reference):
        if reference.method == "prepare" and self.failing_starts > 0:
            self.failing_starts -= 1
            raise exceptions.ActorDiedError
        if reference.method == "run":
            (task,) = reference.arguments
            if self.fatal[task] > 0:
                self.fatal[task] -= 1
                raise self.chance.choice([exceptions.ActorDiedError(), exceptions.ActorUnavailableError("", None)])
            self.done[task] += 1
        try:
            return getattr(reference.worker.inner, reference.method)(*reference.arguments)
        except LayerError as error:
            raise exceptions.RayTaskError(
                "run", "trace", error, "worker", 1, "127.0.0.1"
            ).as_instanceof_cause() from None

    def kill(self, worker):
        self.killed.append(worker)


@pytest.fixture(autouse=True)
def no_connection(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("excite.jobs.cluster.connected", lambda executor: nullcontext(executor.workers))


@pytest.fixture
def with_ray(monkeypatch):
    def use(**script):
        ray = FakeRay(**script)
        monkeypatch.setattr("excite.jobs.executor.find_spec", lambda name: name)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return use


def outcomes(work, tasks, workers=3, writes=None):
    jobs = [Job(task, work.key(task)) for task in tasks]
    return [outcome for _, outcome in Executor("ray", workers).outcomes(work, jobs, writes)]


@pytest.mark.parametrize("seed", range(5))
def test_lost_workers_are_replaced_and_nothing_is_done_twice(with_ray, seed, capsys):
    ray = with_ray(fatal=Counter({3: 1, 4: 3, 17: 2}), failing_starts=2, seed=seed)
    assert outcomes(Counting(), range(20)) == [{"double": 2 * task} for task in range(20)]
    assert ray.done == Counter(range(20))
    assert len(ray.workers) == 3 + 6 + 2
    assert capsys.readouterr().err.count("another one takes over") == 6


def test_all_workers_are_ended(with_ray):
    ray = with_ray(fatal=Counter({1: 1}))
    outcomes(Counting(), range(5))
    assert len(ray.workers) == 4
    assert Counter(ray.killed) == Counter(ray.workers)  # the lost one too: it may be unreachable only


def test_a_task_that_ends_every_worker(with_ray):
    """The results before it are kept."""
    with_ray(fatal=Counter({7: 99}))
    found = Executor("ray", 3).outcomes(Counting(), (Job(task, f"k{task}") for task in range(20)))
    assert [next(found)[1]["double"] for _ in range(7)] == [0, 2, 4, 6, 8, 10, 12]
    with pytest.raises(
        ExciteError, match=f"{cluster.MOST_LOST} workers ended without an answer at 7.*what was finished"
    ):
        next(found)


def test_unreadable_and_wrong(with_ray):
    ray = with_ray()
    found = Executor("ray", 2).outcomes(Counting(unreadable=(1,), wrong=(3,)), (Job(n, f"k{n}") for n in range(5)))
    assert next(found)[1] == {"double": 0}
    assert isinstance(next(found)[1], ImageError)
    assert next(found)[1] == {"double": 4}
    with pytest.raises(LayerError, match="no such layer"):
        next(found)
    assert len(ray.killed) == 2


def test_workers_that_never_start(with_ray):
    with_ray(failing_starts=99)
    with pytest.raises(ExciteError, match="end before they begin"):
        outcomes(Counting(), range(3))


def test_no_workers_when_all_is_known(with_ray):
    ray = with_ray()
    jobs = [Job(n, f"k{n}", {"double": 2 * n}) for n in range(3)]
    assert len(list(Executor("ray", 2).outcomes(Counting(), jobs))) == 3
    assert not ray.workers


def test_no_worker_is_ready(with_ray, monkeypatch, capsys):
    ray = with_ray()
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(cluster.time, "monotonic", lambda: next(clock))
    answers = ray.wait
    silent = iter(range(10))

    def wait(references, timeout):
        return answers(references, timeout) if next(silent, None) is None else ([], references)

    monkeypatch.setattr(ray, "wait", wait)
    assert len(outcomes(Counting(), range(3))) == 3
    assert capsys.readouterr().err.count("note: no worker of the Ray cluster is ready") == 1


def test_warnings_of_workers_are_those_of_the_program(with_ray):
    with_ray()
    with pytest.warns(UserWarning, match="seven is odd"):
        outcomes(Counting(odd="seven is odd"), [7])


def test_the_folder_for_files_is_left_as_it_was(with_ray, tmp_path):
    with_ray()
    outcomes(Counting(), range(3), writes=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


class TestWorkerSetup:
    @pytest.fixture
    def setup(self, tmp_path):
        (tmp_path / "token").write_text("word")
        task = pickle.dumps(1)
        return WorkerSetup(str(tmp_path), {"EXCITE_TRY": "1"}, str(tmp_path / "token"), "word", task, "k1").plain()

    def problem(self, setup, content=None):
        return worker_class()().prepare(content or pickle.dumps(Counting()), setup)

    def test_all_is_well(self, setup, monkeypatch):
        monkeypatch.setenv("EXCITE_TRY", "0")
        assert self.problem(setup) is None
        assert os.environ["EXCITE_TRY"] == "1"

    @pytest.mark.parametrize("package", PACKAGES)
    def test_another_version(self, setup, package):
        setup["versions"][package] = "99.0"
        said = self.problem(setup)
        assert said.startswith(f"machine {platform.node()} of the cluster has {package} ")
        assert f"pip install '{package}==99.0' there" in said

    def test_no_such_package(self, setup):
        setup["versions"]["no-such-package"] = "1.0"
        assert "has no no-such-package: pip install 'no-such-package==1.0' there" in self.problem(setup)

    def test_no_such_folder(self, setup, tmp_path):
        assert "has no folder" in self.problem({**setup, "folder": str(tmp_path / "gone")})

    def test_a_folder_for_results_that_is_not_shared(self, setup, tmp_path):
        assert "does not see the folder" in self.problem({**setup, "token": str(tmp_path / "none")})
        assert "does not see the folder" in self.problem({**setup, "word": "of another run"})

    def test_a_folder_for_results_that_may_not_be_written_to(self, setup, monkeypatch):
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may do all
        assert "may not write" in self.problem(setup)

    def test_other_pictures(self, setup):
        assert "does not see the images as this one does" in self.problem({**setup, "key": "k2"})

    def test_a_package_that_only_this_machine_has(self, setup):
        content = pickle.dumps(Counting()).replace(b"slow_work", b"slow_worx")
        assert "cannot take the work (No module named 'slow_worx')" in self.problem(setup, content)

    def test_each_is_one_line(self, setup):
        for wrong in ({"folder": "/no/where"}, {"word": "other"}, {"key": "other"}):
            assert "\n" not in load_work(pickle.dumps(Counting()), {**setup, **wrong})[1]
        assert Path.cwd() == Path(setup["folder"])
