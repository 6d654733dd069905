"""A Ray cluster: tasks for workers on many machines, any of which may be lost.

Each image is a Ray task: Ray gives one whose worker or machine is lost to another. (An actor that cannot be restarted,
because its machine is gone and no other CPU is free, would keep its task for ever.)
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import textwrap
import warnings
from collections import deque
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import torch

from excite.errors import ExciteError
from excite.io.files import save_text
from excite.jobs.executor import Executor, Job, Outcome, Runner, attempt, in_order, note, pickled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from excite.jobs.loop import Work

AHEAD = 8  # tasks per worker whose results may wait for an earlier one
MOST_LOST = 4  # a task that has ended so many workers is not tried again
PATIENCE = 60.0  # seconds without any result before a note is printed
TOKEN = ".excite-shared"  # noqa: S105 - a file that shows whether a folder is shared
SHARED = "share it under the same name, by NFS or the like"

PACKAGES = ("excite", "torch", "numpy", "pillow")  # results depend on these: the same versions on all machines
ENVIRONMENT = (  # variables that workers get from this process
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY",
    *("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"),
)


@contextmanager
def ray_runner(work: Work[Any], executor: Executor, writes: Path | None) -> Iterator[Runner]:
    """Workers of a cluster, see `Executor.start`; the connection is made with the first job."""
    with ExitStack() as ending:
        pools: list[RayTasks] = []

        def submit(job: Job) -> Callable[[], Outcome]:
            if not pools:
                workers = ending.enter_context(connected(executor))
                setup = ending.enter_context(_worker_setup(job, writes))
                pools.append(ending.enter_context(closing(RayTasks(pickled(work), setup, workers))))
            return pools[0].submit(job)

        yield lambda jobs: in_order(jobs, submit, lambda: AHEAD * pools[0].size)


@contextmanager
def connected(executor: Executor) -> Iterator[int]:
    """Connect to the cluster; gives the number of workers.

    An existing connection of the program is used and kept. Ray's usage statistics and dashboard are off, and so are
    its lines about lost workers, which it prints to standard output, among the results.
    """
    import ray
    from ray._private import worker

    if ray.is_initialized():
        yield _workers(ray, executor)
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning about graphics cards
    os.environ.setdefault("RAY_task_oom_retries", str(MOST_LOST - 1))
    before, worker._worker_logs_enabled = worker._worker_logs_enabled, False  # noqa: SLF001 - there is no public switch
    try:
        _connect(ray, executor)
        yield _workers(ray, executor)
    finally:
        ray.shutdown()
        worker._worker_logs_enabled = before  # noqa: SLF001


def _connect(ray: Any, executor: Executor) -> None:
    """Connect to the address, or else to the cluster of this machine, or else start one."""
    address = executor.address or os.environ.get("RAY_ADDRESS")
    connect = partial(ray.init, logging_level=logging.ERROR, log_to_driver=False)
    try:
        if address is None:
            try:
                connect(address="auto")
            except ConnectionError:
                address = "local"
        if address == "local":
            connect(address="local", num_cpus=executor.workers, include_dashboard=False)
        elif address is not None:
            if address != "auto":
                _check_reachable(address)
            connect(address=address)
    except (ConnectionError, ImportError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ExciteError(
            f"no Ray cluster at {address!r} ({reason}): start one with `ray start --head`, or leave --address out; "
            "if it asks for a token, set RAY_AUTH_MODE=token"
        ) from None


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
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        reason = error.strerror or error
        raise ExciteError(f"nobody answers at {address} ({reason}): is the Ray cluster started there?") from None


def _workers(ray: Any, executor: Executor) -> int:
    """The number of workers: that of the executor, or one per CPU."""
    found = int(ray.cluster_resources().get("CPU", 0))
    if executor.workers is None and not found:
        raise ExciteError("this Ray cluster has no CPUs: add a machine with `ray start --address=HOST:PORT`")
    return executor.workers or found


@contextmanager
def _worker_setup(job: Job, writes: Path | None) -> Iterator[dict[str, Any]]:
    """What a worker must share with this machine, as plain values for a machine without excite.

    The key of the task depends on the size and the time of its image; the token is a file in the folder for results.
    """
    word = uuid4().hex
    token = None if writes is None else save_text(word, writes.absolute() / TOKEN)
    try:
        yield {
            "versions": {package: version(package) for package in PACKAGES},
            "folder": str(Path.cwd()),
            "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            "token": None if token is None else str(token),
            "word": word,
            "task": pickle.dumps(job.task),
            "key": job.key,
        }
    finally:
        if token is not None:
            token.unlink(missing_ok=True)


def worker_function() -> Callable[..., Any]:
    """What a worker does; inside a function it is pickled by value, so a machine without excite can report that."""
    loaded: list[Any] = []  # the work, unpickled once in each process

    def run(content: list[Any], setup: dict[str, Any], task: Any) -> tuple[Any, list[Warning | str]] | str:
        """The outcome of a task and its warnings, or why this machine does not fit."""
        import os
        import platform
        import warnings
        from importlib.metadata import PackageNotFoundError, version

        if not loaded:
            name = f"machine {platform.node()} of the cluster"
            for package, wanted in setup["versions"].items():
                try:
                    found = version(package)
                except PackageNotFoundError:
                    return f"{name} has no {package}: pip install '{package}=={wanted}' there"
                if found != wanted:
                    there = f"pip install '{package}=={wanted}' there"
                    return f"{name} has {package} {found} and this one {wanted}: {there}"
            os.environ.update(setup["environment"])
            import ray

            from excite.jobs.cluster import load_work

            work, problem = load_work(ray.get(content[0]), setup)
            if problem is not None:
                return f"{name} {problem}"
            loaded.append(work)

        from excite.jobs.executor import attempt

        with warnings.catch_warnings(record=True) as caught:
            outcome = attempt(loaded[0], task)
        return outcome, [warning.message for warning in caught]

    return run


def load_work(content: bytes, setup: dict[str, Any]) -> tuple[Any, str | None]:
    """In a worker: the work, unpickled; or None and the reason why it cannot run here. See `_worker_setup`."""
    torch.set_num_threads(1)
    try:
        os.chdir(setup["folder"])
    except OSError as error:
        return None, f"has no folder {setup['folder']!r} ({error.strerror}): {SHARED}, or start from one that is shared"
    if setup["token"] is not None:
        token = Path(setup["token"])
        out = str(token.parent)
        if not token.is_file() or token.read_text(encoding="utf-8") != setup["word"]:
            return None, f"does not see the folder {out!r} for results: {SHARED}, or use an --out that is shared"
        if not os.access(out, os.W_OK | os.X_OK):
            return None, f"may not write to the folder {out!r}: give it permission, or use another --out"
    try:
        work, task = pickle.loads(content), pickle.loads(setup["task"])  # noqa: S301 - from the process that started the run
    except (ImportError, AttributeError) as error:
        return None, f"cannot take the work ({error}): install there what is installed here"
    if str(attempt(work.key, task)) != setup["key"]:
        return None, f"does not see the images as this one does: {SHARED}"
    return work, None


class RayTasks:
    """Tasks with one CPU each, ``size`` at a time: the pickled work, and what workers must share with this machine."""

    def __init__(self, content: bytes, setup: dict[str, Any], size: int) -> None:
        import ray

        self.size, self._ray, self._setup = size, ray, setup
        self._content = [ray.put(content)]  # in a list, or Ray would send it with every task
        options = {"num_cpus": 1, "max_retries": MOST_LOST - 1, "scheduling_strategy": "SPREAD"}
        self._run = ray.remote(**options)(worker_function())
        self._queue: deque[SimpleNamespace] = deque()  # tasks, with a reference to the result once they are Ray's
        self._running: set[Any] = set()
        self._quiet = True  # there was no result, and no note about that

    def submit(self, job: Job) -> Callable[[], Outcome]:
        """Submit a task; returns a function that waits for the outcome."""
        submission = SimpleNamespace(task=job.task, reference=None)
        self._queue.append(submission)
        self._dispatch()
        return lambda: self._outcome(submission)

    def close(self) -> None:
        """Start no more tasks; those that run end, or are ended by Ray with the command.

        They are not cancelled: Ray 2.60 may abort the whole process when it is left at once after `ray.cancel`.
        """
        self._queue.clear()
        self._running.clear()

    def _dispatch(self) -> None:
        while self._queue and len(self._running) < self.size:
            submission = self._queue.popleft()
            submission.reference = self._run.remote(self._content, self._setup, submission.task)
            self._running.add(submission.reference)

    def _outcome(self, submission: SimpleNamespace) -> Outcome:
        """Wait for an outcome. Errors too are raised in the order of the tasks: all results before them are kept."""
        while submission.reference is None or submission.reference in self._running:
            ready, _ = self._ray.wait([*self._running], timeout=PATIENCE if self._quiet else None)
            if not ready and self._quiet:
                note(
                    "no worker of the Ray cluster is ready: they are slow to begin, or no CPU is free; see `ray status`"
                )
            self._quiet = False
            self._running.difference_update(ready)
            self._dispatch()
        try:
            found = self._ray.get(submission.reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ExciteError) else error from None
        except self._ray.exceptions.RayError:
            task = submission.task
            name = textwrap.shorten(str(getattr(task, "name", None) or getattr(task, "image", None) or task), 100)
            raise ExciteError(
                f"{MOST_LOST} workers ended without an answer at {name}, perhaps for want of memory: "
                "give them more, or leave it out; what was finished is kept"
            ) from None
        if isinstance(found, str):
            raise ExciteError(found)
        outcome: Outcome
        outcome, messages = found
        for message in messages:
            warnings.warn(message, stacklevel=2)
        return outcome
