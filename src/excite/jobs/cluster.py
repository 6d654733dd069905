"""A Ray cluster: workers on many machines, any of which may be lost.

Ray could restart workers and repeat tasks by itself, but a worker that it cannot restart, because its machine is gone,
would keep its tasks for ever. So here each idle worker gets one task at a time, and a task whose worker is lost goes to
another one.
"""

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
from excite.jobs.executor import attempt, in_order, note, pickled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from excite.jobs.executor import Executor, Job, Outcome, Runner
    from excite.jobs.loop import Work

AHEAD = 8  # tasks submitted per worker: enough that none waits while a lost one is replaced
MOST_LOST = 4  # a task that has ended so many workers is not tried again
MOST_FAILED_STARTS = 8  # of workers in a row
PATIENCE = 60.0  # seconds without any worker before a note is printed
TIMEOUT = 10.0  # seconds for an address to answer
QUIET = {"logging_level": logging.ERROR, "log_to_driver": False}
TOKEN = ".excite-shared"  # noqa: S105 - a file that shows whether a folder is shared
SHARED = "share it under the same name, by NFS or the like"

PACKAGES = ("excite", "torch", "numpy", "pillow")
"""Results depend on these: all machines must have the same versions."""

ENVIRONMENT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY",)
"""Variables that workers get from this process; results do not depend on them."""


@contextmanager
def ray_runner(work: Work[Any], executor: Executor, writes: Path | None) -> Iterator[Runner]:
    """Workers of a cluster; the connection is made with the first job.

    Args:
        work: computes the result of each task.
        executor: the address of the cluster and the number of workers.
        writes: a folder into which the work itself writes files; all machines must share it.
    """
    with ExitStack() as ending:
        pools: list[RayPool] = []

        def submit(job: Job) -> Callable[[], Outcome]:
            if not pools:
                workers = ending.enter_context(connected(executor))
                setup = ending.enter_context(_worker_setup(job, writes))
                pools.append(ending.enter_context(closing(RayPool(pickled(work), setup, workers))))
            return pools[0].submit(job)

        yield lambda jobs: in_order(jobs, submit, lambda: AHEAD * pools[0].size)


# The connection to a cluster: an existing one, or one of this machine alone.


@contextmanager
def connected(executor: Executor) -> Iterator[int]:
    """Connect to the cluster; gives the number of workers to start.

    An existing connection of the program is used and kept. Ray's usage statistics and dashboard are off.
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
    """Ray prints every lost worker to standard output, among the results; excite reports it itself."""
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
    """The address of the cluster that this machine joined by ``ray start``, if it still answers."""
    file = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"  # noqa: S108 - where Ray puts it
    try:
        address = file.read_text(encoding="utf-8").strip()
        _check_reachable(address)
    except (OSError, ExciteError):
        return None
    return address


def _check_reachable(address: str) -> None:
    """Raise an `ExciteError` if nothing answers at an address; Ray itself would try for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise ExciteError(f"{address!r} is no address of a Ray cluster: give HOST:PORT, ray://HOST:PORT, auto or local")
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError as error:
        reason = error.strerror or error
        raise ExciteError(f"nobody answers at {address} ({reason}): is the Ray cluster started there?") from None


def _workers(ray: Any, executor: Executor) -> int:
    """The number of workers: that of the executor, or one per CPU."""
    found = int(ray.cluster_resources().get("CPU", 0))
    if executor.workers is None and not found:
        raise ExciteError("this Ray cluster has no CPUs: add a machine with `ray start --address=HOST:PORT`")
    return executor.workers or found


# A worker, on any machine.


@dataclass(frozen=True)
class WorkerSetup:
    """The environment of this machine that a worker must share.

    Attributes:
        folder: the working folder: file names may be relative to it.
        environment: variables to set.
        token: a file in the folder that the work writes into, if any.
        word: the content of that file.
        task: a task, pickled.
        key: the key of that task on this machine, which depends on the size and the time of its image.
    """

    folder: str
    environment: dict[str, str]
    token: str | None
    word: str
    task: bytes
    key: str

    def plain(self) -> dict[str, Any]:
        """As plain values, for a machine without excite.

        Example:
            >>> WorkerSetup("/photos", {}, None, "", b"", "a1").plain()["key"]
            'a1'
        """
        return {**asdict(self), "versions": {package: version(package) for package in PACKAGES}}


@contextmanager
def _worker_setup(job: Job, writes: Path | None) -> Iterator[WorkerSetup]:
    """The environment for workers; meanwhile there is a token in the folder for files."""
    word = uuid4().hex
    token = None if writes is None else save_text(word, writes.absolute() / TOKEN)
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    path = None if token is None else str(token)
    try:
        yield WorkerSetup(str(Path.cwd()), environment, path, word, pickle.dumps(job.task), job.key)
    finally:
        if token is not None:
            token.unlink(missing_ok=True)


def worker_class() -> type[Any]:
    """The class of workers. Inside a function it is pickled by value.

    It imports nothing of excite before `prepare`, so that a machine without excite, or with another version, can report
    that itself.

    Example:
        >>> worker_class().__name__
        'Worker'
    """

    class Worker:
        """Computes the results of tasks."""

        def prepare(self, content: bytes, setup: dict[str, Any]) -> str | None:
            """Unpickle the work; returns an error message if the machine does not fit."""
            import os
            import platform
            from importlib.metadata import PackageNotFoundError, version

            name = platform.node()
            for package, wanted in setup["versions"].items():
                try:
                    found = version(package)
                except PackageNotFoundError:
                    return f"machine {name} of the cluster has no {package}: pip install '{package}=={wanted}' there"
                if found != wanted:
                    return (
                        f"machine {name} of the cluster has {package} {found} and this one {wanted}: "
                        f"pip install '{package}=={wanted}' there"
                    )
            os.environ.update(setup["environment"])

            error: str | None
            self.work, error = load_work(content, setup)
            return None if error is None else f"machine {name} of the cluster {error}"

        def run(self, task: Any) -> tuple[Any, list[Warning | str]]:
            """The outcome, and the warnings."""
            import warnings

            from excite.jobs.executor import attempt

            with warnings.catch_warnings(record=True) as caught:
                outcome = attempt(self.work, task)
            return outcome, [warning.message for warning in caught]

    return Worker


def load_work(content: bytes, setup: dict[str, Any]) -> tuple[Any, str | None]:
    """In a worker: the work, unpickled; or None and the reason why it cannot run here. See `WorkerSetup`."""
    torch.set_num_threads(1)
    try:
        os.chdir(setup["folder"])
    except OSError as error:
        return None, f"has no folder {setup['folder']!r} ({error.strerror}): {SHARED}, or start from one that is shared"
    if setup["token"] is not None and (problem := _unshared(Path(setup["token"]), setup["word"])):
        return None, problem
    try:
        work, task = pickle.loads(content), pickle.loads(setup["task"])  # noqa: S301 - from the process that started the run
    except (ImportError, AttributeError) as error:
        return None, f"cannot take the work ({error}): install there what is installed here"
    key = str(attempt(work.key, task))
    if key != setup["key"]:
        return None, f"does not see the images as this one does: {SHARED}"
    return work, None


def _unshared(token: Path, word: str) -> str | None:
    """The reason why files cannot be written beside the token, if any."""
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


# The pool of workers.


@dataclass(eq=False)
class _Submission:
    """A submitted task."""

    task: Any
    lost: int = 0  # workers
    outcome: Outcome | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome is not None or self.error is not None

    @property
    def name(self) -> str:
        """The task, for messages."""
        called = getattr(self.task, "name", None) or getattr(self.task, "image", None) or self.task
        return textwrap.shorten(str(called), 100)


class RayPool:
    """Workers with one CPU each.

    Args:
        content: the work, pickled.
        setup: the environment that they must share.
        size: the number of workers; those without a free CPU start when there is one.
    """

    def __init__(self, content: bytes, setup: WorkerSetup, size: int) -> None:
        import ray

        self.size = size
        self._ray = ray
        self._lost = _lost_errors()
        self._setup = setup.plain()
        self._content = ray.put(content)
        self._class = ray.remote(worker_class())
        self._starting: dict[Any, Any] = {}  # workers, by the references that are waited for
        self._busy: dict[Any, tuple[Any, _Submission]] = {}
        self._idle: list[Any] = []
        self._queue: deque[_Submission] = deque()
        self._failed_starts = 0
        self._idle_since: float | None = time.monotonic()
        for _ in range(size):
            self._start_worker()

    def submit(self, job: Job) -> Callable[[], Outcome]:
        """Submit a task; returns a function that waits for the outcome."""
        submission = _Submission(job.task)
        self._queue.append(submission)
        self._dispatch()
        return lambda: self._outcome(submission)

    def close(self) -> None:
        """End all workers, also busy ones."""
        for worker in [*self._starting.values(), *self._idle, *(worker for worker, _ in self._busy.values())]:
            self._ray.kill(worker)

    def _outcome(self, submission: _Submission) -> Outcome:
        """Wait for an outcome. Errors too are raised in the order of the tasks: all results before them are kept."""
        while not submission.is_done:
            self._step()
        if submission.error is not None:
            raise submission.error
        assert submission.outcome is not None  # noqa: S101 - it is done
        return submission.outcome

    def _start_worker(self) -> None:
        worker = self._class.options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD").remote()
        self._starting[worker.prepare.remote(self._content, self._setup)] = worker

    def _dispatch(self) -> None:
        while self._queue and self._idle:
            worker, submission = self._idle.pop(), self._queue.popleft()
            self._busy[worker.run.remote(submission.task)] = worker, submission

    def _step(self) -> None:
        """Wait a moment for workers to be ready, and dispatch the next tasks."""
        ready, _ = self._ray.wait([*self._busy, *self._starting], timeout=1.0)
        for reference in ready:
            if reference in self._starting:
                self._add_worker(reference)
            else:
                self._collect(reference)
        self._dispatch()
        self._note_if_idle()

    def _add_worker(self, reference: Any) -> None:
        worker = self._starting.pop(reference)
        try:
            problem = self._ray.get(reference)
        except self._lost as error:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS:
                reason = " ".join(str(error).split())[:300]
                raise ExciteError(f"the cluster's workers end before they begin ({reason}): see `ray status`") from None
            self._start_worker()
            return
        except self._ray.exceptions.RayTaskError as error:
            reason = " ".join(str(error.cause).split())[:300]
            raise ExciteError(f"a worker of the cluster cannot take the work ({reason})") from error
        if problem is not None:
            raise ExciteError(problem)
        self._failed_starts = 0
        self._idle.append(worker)

    def _collect(self, reference: Any) -> None:
        worker, submission = self._busy.pop(reference)
        try:
            submission.outcome, notes = self._ray.get(reference)
        except self._lost:
            self._ray.kill(worker)  # it may be unreachable only, and would keep its CPU
            self._retry(submission)
            return
        except self._ray.exceptions.RayTaskError as error:
            submission.error = error.cause if isinstance(error.cause, ExciteError) else error
            notes = []
        self._idle.append(worker)
        for message in notes:
            warnings.warn(message, stacklevel=2)

    def _retry(self, submission: _Submission) -> None:
        """Queue the task of a lost worker again, and start another worker."""
        submission.lost += 1
        if submission.lost < MOST_LOST:
            self._queue.appendleft(submission)  # later results wait for it
            note(f"a worker of the cluster was lost at {submission.name}: another one takes over")
        else:
            submission.error = ExciteError(
                f"{submission.lost} workers ended without an answer at {submission.name}, perhaps for want of memory: "
                "give them more, or leave it out; what was finished is kept"
            )
        self._start_worker()

    def _note_if_idle(self) -> None:
        """Print a note after a while without any worker: a busy cluster looks like one that hangs."""
        if self._busy or self._idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > PATIENCE:
            self._idle_since = float("inf")  # noted
            note("no worker of the Ray cluster is ready: they are slow to begin, or no CPU is free (see `ray status`)")


def _lost_errors() -> tuple[type[Exception], ...]:
    """Ray's errors for a lost worker, machine or result."""
    from ray import exceptions

    return (
        exceptions.RayActorError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.OutOfMemoryError,
        exceptions.WorkerCrashedError,
    )
