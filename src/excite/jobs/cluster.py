"""The work shared by the machines of a Ray cluster, any of which may be lost."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import textwrap
import time
import warnings
from collections import deque
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import torch

from excite.errors import ExciteError
from excite.io.files import save_text
from excite.jobs.executor import attempt, in_order, note, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from excite.jobs.executor import Executor, Job, Outcome, Performable, Runner


# The way to a Ray cluster: one that is there, or one of this machine alone.

QUIET = {"logging_level": logging.ERROR, "log_to_driver": False}
REACHED = 10.0  # seconds for an address to answer


@contextmanager
def connected(executor: Executor) -> Iterator[int]:
    """Connect to the cluster, for so long; how many workers it shall have.

    A program that is connected already stays so. Ray tells nobody that it is used, and has no page of its own when it
    is started here.
    """
    import ray

    if ray.is_initialized():
        yield _workers(ray, executor)
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning about graphics cards
    with _silenced():
        try:
            _connect(ray, executor)
            yield _workers(ray, executor)
        finally:
            ray.shutdown()


@contextmanager
def _silenced() -> Iterator[None]:
    """Ray tells of every lost worker on standard output, among the answers; excite tells it itself."""
    from ray._private import worker

    switch = "_worker_logs_enabled"  # there is no public one
    before = getattr(worker, switch)
    setattr(worker, switch, False)
    try:
        yield
    finally:
        setattr(worker, switch, before)


def _connect(ray: Any, executor: Executor) -> None:
    address = executor.address or os.environ.get("RAY_ADDRESS") or _started_here() or "local"
    try:
        if address == "local":
            ray.init(address="local", num_cpus=executor.workers, include_dashboard=False, **QUIET)
            return
        if address != "auto":
            _check_reachable(address)
        ray.init(address=address, **QUIET)
    except (ConnectionError, ImportError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ExciteError(
            f"no Ray cluster at {address!r} ({reason}): start one with `ray start --head`, or leave --address out; "
            "if it asks for a token, set RAY_AUTH_MODE=token"
        ) from None


def _started_here() -> str | None:
    """The cluster that this machine was made a part of by ``ray start``, if it is still there."""
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"  # noqa: S108 - where Ray puts it
    try:
        address = note.read_text(encoding="utf-8").strip()
        _check_reachable(address)
    except (OSError, ExciteError):
        return None
    return address


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise ExciteError(f"{address!r} is no address of a Ray cluster: give HOST:PORT, ray://HOST:PORT, auto or local")
    try:
        socket.create_connection((host, port), REACHED).close()
    except OSError as error:
        reason = error.strerror or error
        raise ExciteError(f"nobody answers at {address} ({reason}): is the Ray cluster started there?") from None


def _workers(ray: Any, executor: Executor) -> int:
    """As many as were asked for, or one for each CPU."""
    found = int(ray.cluster_resources().get("CPU", 0))
    if executor.workers is None and not found:
        raise ExciteError("this Ray cluster has no CPUs: add a machine with `ray start --address=HOST:PORT`")
    return executor.workers or found


# A worker on a machine of a Ray cluster.
#
# It is sent there by value and imports nothing until it is told to join, so that a machine without excite, or with
# another one, can say so itself.

PACKAGES = ("excite", "torch", "numpy", "pillow")
"""Answers depend on these: all machines must have the same."""

ENVIRONMENT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY",)
"""What this process was told by the environment and others should know too; it changes no answers."""


@dataclass(frozen=True)
class Terms:
    """What a worker must have in common with the machine that asks.

    Attributes:
        folder: the folder to work in: names of files may be relative to it.
        environment: variables to set.
        token: a file in the folder that the work writes into, if it writes any,
        word: and what is in it.
        task: a task, pickled,
        key: and its key here. It tells which image was read, when it was written and how large it is.
    """

    folder: str
    environment: dict[str, str]
    token: str | None
    word: str
    task: bytes
    key: str

    def plain(self) -> dict[str, Any]:
        """As values that a machine without excite can read.

        Example:
            >>> Terms("/photos", {}, None, "", b"", "a1").plain()["key"]
            'a1'
        """
        return {**asdict(self), "versions": {package: version(package) for package in PACKAGES}}


def worker_class() -> type[Any]:
    """The class of workers. Being inside a function, it travels as a whole.

    Example:
        >>> worker_class().__name__
        'Worker'
    """

    class Worker:
        """Does the work for one task after the other."""

        def join(self, content: bytes, terms: dict[str, Any]) -> str | None:
            """Get ready; what speaks against it, if anything."""
            import os
            import platform
            from importlib.metadata import PackageNotFoundError, version

            name = platform.node()
            for package, wanted in terms["versions"].items():
                try:
                    found = version(package)
                except PackageNotFoundError:
                    return f"machine {name} of the cluster has no {package}: pip install '{package}=={wanted}' there"
                if found != wanted:
                    return (
                        f"machine {name} of the cluster has {package} {found} and this one {wanted}: "
                        f"pip install '{package}=={wanted}' there"
                    )
            os.environ.update(terms["environment"])

            complaint: str | None
            self.work, complaint = joined(content, terms)
            return None if complaint is None else f"machine {name} of the cluster {complaint}"

        def do(self, task: Any) -> tuple[Any, list[Warning | str]]:
            """The outcome, and warnings that somebody should see."""
            import warnings

            from excite.jobs.executor import attempt

            with warnings.catch_warnings(record=True) as noted:
                outcome = attempt(self.work, task)
            return outcome, [note.message for note in noted]

    return Worker


# Workers of a Ray cluster, and what each is doing: a task whose worker is lost is given to another.
#
# Ray could restart workers and repeat tasks by itself. But a worker that it cannot restart, because its machine is
# gone, would keep its tasks for ever; so here every task is given out when somebody is free, and one at a time.

DEATHS = 4  # a task that has ended so many workers is not tried again
STILLBORN = 8  # so many workers that end before they can begin, one after the other, are no accident
PATIENCE = 60.0  # seconds without any worker before that is told


@dataclass(eq=False)
class _Errand:
    """A task on its way."""

    task: Any
    deaths: int = 0
    outcome: Outcome | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome is not None or self.error is not None

    @property
    def name(self) -> str:
        """What to call the task."""
        called = getattr(self.task, "name", None) or getattr(self.task, "image", None) or self.task
        return textwrap.shorten(str(called), 100)


class RayPool:
    """Workers, one CPU each.

    Args:
        content: the work, pickled.
        terms: what they must have in common with this machine.
        size: how many; those for whom there is no CPU yet begin when there is one.
    """

    def __init__(self, content: bytes, terms: Terms, size: int) -> None:
        import ray

        self.size = size
        self._ray = ray
        self._lost = _lost_errors()
        self._terms = terms.plain()
        self._content = ray.put(content)
        self._kind = ray.remote(worker_class())
        self._joining: dict[Any, Any] = {}  # by what is waited for: the worker
        self._busy: dict[Any, tuple[Any, _Errand]] = {}
        self._idle: list[Any] = []
        self._errands: deque[_Errand] = deque()
        self._stillborn = 0
        self._alone_since: float | None = time.monotonic()
        for _ in range(size):
            self._recruit()

    def submit(self, job: Job) -> Callable[[], Outcome]:
        """Have a task done as soon as somebody is free; what it gives waits for the answer."""
        errand = _Errand(job.task)
        self._errands.append(errand)
        self._give_out()
        return lambda: self._answer(errand)

    def close(self) -> None:
        """Send all workers home, also in the middle of their work."""
        for worker in [*self._joining.values(), *self._idle, *(worker for worker, _ in self._busy.values())]:
            self._ray.kill(worker)

    def _answer(self, errand: _Errand) -> Outcome:
        """Wait for the answer. Errors wait for their turn too, so that all answers before them are kept."""
        while not errand.is_done:
            self._step()
        if errand.error is not None:
            raise errand.error
        assert errand.outcome is not None  # noqa: S101 - it is done
        return errand.outcome

    def _recruit(self) -> None:
        worker = self._kind.options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD").remote()
        self._joining[worker.join.remote(self._content, self._terms)] = worker

    def _give_out(self) -> None:
        while self._errands and self._idle:
            worker, errand = self._idle.pop(), self._errands.popleft()
            self._busy[worker.do.remote(errand.task)] = worker, errand

    def _step(self) -> None:
        """Wait a little for anybody to be ready, and give them the next task."""
        ready, _ = self._ray.wait([*self._busy, *self._joining], timeout=1.0)
        for reference in ready:
            if reference in self._joining:
                self._welcome(reference)
            else:
                self._collect(reference)
        self._give_out()
        self._tell_if_alone()

    def _welcome(self, reference: Any) -> None:
        worker = self._joining.pop(reference)
        try:
            complaint = self._ray.get(reference)
        except self._lost as error:
            self._stillborn += 1
            if self._stillborn >= STILLBORN:
                reason = " ".join(str(error).split())[:300]
                raise ExciteError(f"the cluster's workers end before they begin ({reason}): see `ray status`") from None
            self._recruit()
            return
        except self._ray.exceptions.RayTaskError as error:
            reason = " ".join(str(error.cause).split())[:300]
            raise ExciteError(f"a worker of the cluster cannot take the work ({reason})") from error
        if complaint is not None:
            raise ExciteError(complaint)
        self._stillborn = 0
        self._idle.append(worker)

    def _collect(self, reference: Any) -> None:
        worker, errand = self._busy.pop(reference)
        try:
            errand.outcome, notes = self._ray.get(reference)
        except self._lost:
            self._ray.kill(worker)  # it may be out of sight only, and would keep its CPU
            self._mourn(errand)
            return
        except self._ray.exceptions.RayTaskError as error:
            errand.error = error.cause if isinstance(error.cause, ExciteError) else error
            notes = []
        self._idle.append(worker)
        for said in notes:
            warnings.warn(said, stacklevel=2)

    def _mourn(self, errand: _Errand) -> None:
        """A worker is gone, with its machine or without: others take over."""
        errand.deaths += 1
        if errand.deaths < DEATHS:
            self._errands.appendleft(errand)  # others wait for it
            note(f"a worker of the cluster was lost at {errand.name}: another one takes over")
        else:
            errand.error = ExciteError(
                f"{errand.deaths} workers ended without an answer at {errand.name}, perhaps for want of memory: "
                "give them more, or leave it out; what was finished is kept"
            )
        self._recruit()

    def _tell_if_alone(self) -> None:
        """Say once in a while that nobody does the work: a busy cluster looks like one that hangs."""
        if self._busy or self._idle:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > PATIENCE:
            self._alone_since = float("inf")  # told
            note("no worker of the Ray cluster is ready: they are slow to begin, or no CPU is free (see `ray status`)")


def _lost_errors() -> tuple[type[Exception], ...]:
    """What Ray says when a worker, its machine or its answer is gone."""
    from ray import exceptions

    return (
        exceptions.RayActorError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.OutOfMemoryError,
        exceptions.WorkerCrashedError,
    )


# The work shared by the machines of a Ray cluster, any of which may be lost.

AHEAD = 8  # tasks on their way for each worker: enough that none waits while a lost one is replaced
TOKEN = ".excite-shared"  # noqa: S105 - a file that tells whether a folder is shared


@contextmanager
def team_of_cluster(work: Performable, executor: Executor, writes: Path | None) -> Iterator[Runner]:
    """Workers of a cluster for as long as they are needed; nobody is asked for anything before there is a job.

    Args:
        work: what is done for each task.
        executor: where the cluster is, and how many workers it shall have.
        writes: a folder into which the work itself writes files; all machines must see it.
    """
    with ExitStack() as ending:
        troops: list[RayPool] = []

        def submit(job: Job) -> Callable[[], Outcome]:
            if not troops:
                workers = ending.enter_context(connected(executor))
                terms = ending.enter_context(_terms(job, writes))
                troops.append(ending.enter_context(closing(RayPool(packed(work), terms, workers))))
            return troops[0].submit(job)

        yield lambda jobs: in_order(jobs, submit, lambda: AHEAD * troops[0].size)


@contextmanager
def _terms(job: Job, writes: Path | None) -> Iterator[Terms]:
    """What workers must have in common with this machine; for so long there is a file by which to tell."""
    word = uuid4().hex
    token = None if writes is None else save_text(word, writes.absolute() / TOKEN)
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    try:
        yield Terms(
            folder=str(Path.cwd()),
            environment=environment,
            token=None if token is None else str(token),
            word=word,
            task=pickle.dumps(job.task),
            key=job.key,
        )
    finally:
        if token is not None:
            token.unlink(missing_ok=True)


# How a worker on another machine gets ready: it must see the same files.

SHARED = "share it under the same name, by NFS or the like"


def joined(content: bytes, terms: dict[str, Any]) -> tuple[Any, str | None]:
    """The work, or None and what speaks against doing it here.

    Args:
        content: the work, pickled.
        terms: see `excite.jobs.cluster.Terms`.
    """
    torch.set_num_threads(1)
    try:
        os.chdir(terms["folder"])
    except OSError as error:
        return None, f"has no folder {terms['folder']!r} ({error.strerror}): {SHARED}, or start from one that is shared"
    if terms["token"] is not None and (complaint := _unshared(Path(terms["token"]), terms["word"])):
        return None, complaint
    try:
        work, task = pickle.loads(content), pickle.loads(terms["task"])  # noqa: S301 - from whoever started the run
    except (ImportError, AttributeError) as error:
        return None, f"cannot take the work ({error}): install there what is installed here"
    key = str(attempt(work.key, task))
    if key != terms["key"]:
        return None, f"does not see the images as this one does: {SHARED}"
    return work, None


def _unshared(token: Path, word: str) -> str | None:
    """Why files cannot be written where the token should be."""
    out = str(token.parent)
    try:
        seen = token.read_text(encoding="utf-8")
    except OSError:
        seen = None
    if seen != word:
        return f"does not see the folder {out!r} for results: {SHARED}, or use an --out that is shared"
    if not os.access(out, os.W_OK | os.X_OK):
        return f"may not write to the folder {out!r}: give it permission, or use another --out"
    return None
