"""Tasks of a cluster, with a fake Ray; what Ray itself does with lost workers is tried in test_ray_real.py."""

import os
import pickle
import platform
import random
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace

import pytest
from slow_work import Counting

from excite.errors import ExciteError, ImageError, LayerError
from excite.jobs import Executor, Job, cluster
from excite.jobs.cluster import PACKAGES, worker_function

exceptions = pytest.importorskip("ray.exceptions")


@dataclass(eq=False)
class Reference:
    function: object
    arguments: tuple


@dataclass
class FakeRay:
    """Gives results in any order; some tasks have ended all their workers."""

    fatal: tuple = ()
    seed: int = 0
    exceptions = exceptions
    running: set = field(default_factory=set)
    most: int = 0
    done: Counter = field(default_factory=Counter)

    def __post_init__(self):
        self.chance = random.Random(self.seed)

    def put(self, value):
        return value

    def remote(self, *, num_cpus, max_retries, scheduling_strategy):
        assert (num_cpus, max_retries) == (1, cluster.MOST_LOST - 1)

        def start(function, *arguments):
            reference = Reference(function, arguments)
            self.running.add(reference)
            self.most = max(self.most, len(self.running))
            return reference

        return lambda function: SimpleNamespace(remote=lambda *arguments: start(function, *arguments))

    def wait(self, references, timeout):
        ready = self.chance.choice(references)
        self.running.remove(ready)
        return [ready], [one for one in references if one is not ready]

    def get(self, reference):
        if not isinstance(reference, Reference):
            return reference
        task = reference.arguments[-1]
        if task in self.fatal:
            raise exceptions.WorkerCrashedError
        self.done[task] += 1
        try:
            return reference.function(*reference.arguments)
        except LayerError as error:
            raise exceptions.RayTaskError(
                "run", "trace", error, "worker", 1, "127.0.0.1"
            ).as_instanceof_cause() from None


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


def stream(work, jobs, workers=3, writes=None):
    with Executor("ray", workers).start(work, writes) as runner:
        yield from runner(jobs)


def outcomes(work, tasks, **options):
    jobs = [Job(task, work.key(task)) for task in tasks]
    return [outcome for _, outcome in stream(work, jobs, **options)]


@pytest.mark.parametrize("seed", range(3))
def test_in_order_each_once_and_so_many_at_a_time(with_ray, seed):
    ray = with_ray(seed=seed)
    assert outcomes(Counting(), range(40)) == [{"double": 2 * task} for task in range(40)]
    assert ray.done == Counter(range(40))
    assert ray.most == 3


def test_a_task_that_ends_every_worker(with_ray):
    """The results before it are kept, and no other task is begun."""
    ray = with_ray(fatal=(7,))
    found = stream(Counting(), (Job(task, f"k{task}") for task in range(40)))
    assert [next(found)[1]["double"] for _ in range(7)] == [0, 2, 4, 6, 8, 10, 12]
    with pytest.raises(
        ExciteError, match=f"{cluster.MOST_LOST} workers ended without an answer at 7.*what was finished"
    ):
        next(found)
    begun = set(ray.running)
    assert len(begun) <= 3
    assert next(found, None) is None
    assert ray.running == begun


def test_unreadable_and_wrong(with_ray):
    with_ray()
    found = stream(Counting(unreadable=(1,), wrong=(3,)), (Job(n, f"k{n}") for n in range(5)), workers=2)
    assert next(found)[1] == {"double": 0}
    assert isinstance(next(found)[1], ImageError)
    assert next(found)[1] == {"double": 4}
    with pytest.raises(LayerError, match="no such layer"):
        next(found)


def test_no_worker_is_ready(with_ray, monkeypatch, capsys):
    ray = with_ray()
    answers, silent = ray.wait, iter(range(10))

    def wait(references, timeout):
        return answers(references, timeout) if next(silent, None) is None else ([], references)

    monkeypatch.setattr(ray, "wait", wait)
    assert len(outcomes(Counting(), range(3))) == 3
    assert capsys.readouterr().err.count("note: no worker of the Ray cluster is ready") == 1


def test_warnings_of_workers_and_the_folder_for_files(with_ray, tmp_path):
    """The program warns in their place; the folder is left as it was."""
    with_ray()
    with pytest.warns(UserWarning, match="seven is odd"):
        outcomes(Counting(odd="seven is odd"), [7], writes=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


class TestWorkerSetup:
    @pytest.fixture
    def setup(self, tmp_path, with_ray):
        with_ray()
        (tmp_path / "token").write_text("word")
        return {
            "versions": {},
            "folder": str(tmp_path),
            "environment": {"EXCITE_TRY": "1"},
            "token": str(tmp_path / "token"),
            "word": "word",
            "task": pickle.dumps(1),
            "key": "k1",
        }

    def problem(self, setup, content=None):
        found = worker_function()([content or pickle.dumps(Counting())], setup, 1)
        return found if isinstance(found, str) else None

    @pytest.mark.parametrize("package", [*PACKAGES, "no-such-package"])
    def test_another_version(self, setup, package):
        setup["versions"][package] = "99.0"
        said = self.problem(setup)
        found = "has no no-such-package: " if package not in PACKAGES else f"has {package} "
        assert said.startswith(f"machine {platform.node()} of the cluster {found}")
        assert f"pip install '{package}==99.0' there" in said

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"folder": "/no/where"}, "has no folder"),
            ({"token": "none"}, "does not see the folder"),
            ({"word": "of another run"}, "does not see the folder"),
            ({"key": "k2"}, "does not see the images as this one does"),
        ],
    )
    def test_what_is_not_shared(self, setup, wrong, said):
        found = self.problem({**setup, **wrong})
        assert said in found
        assert "\n" not in found

    def test_what_only_this_machine_has(self, setup, monkeypatch):
        monkeypatch.setenv("EXCITE_TRY", "0")
        assert self.problem(setup) is None
        assert os.environ["EXCITE_TRY"] == "1"
        content = pickle.dumps(Counting()).replace(b"slow_work", b"slow_worx")
        assert "cannot take the work (No module named 'slow_worx')" in self.problem(setup, content)
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may do all
        assert "may not write" in self.problem(setup)

    def test_a_machine_without_excite_can_say_so(self, monkeypatch):
        content = import_module("ray.cloudpickle").dumps(worker_function())
        for name in [name for name in sys.modules if name.split(".")[0] == "excite"]:
            monkeypatch.setitem(sys.modules, name, None)  # importing it is an error
        assert "has no no-excite: pip install" in pickle.loads(content)([], {"versions": {"no-excite": "1"}}, 1)  # noqa: S301
