"""Executors: this process, several processes of this machine, or a Ray cluster; all give the same results in order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import torch

from excite.errors import DataError, ExciteError, ImageError, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from excite.jobs.loop import Work

Outcome = dict[str, Any] | ExciteError

ENGINES = ("local", "ray")
AHEAD = 1000  # jobs read ahead while the first is waited for: a long list is never held in memory
QUEUED = 8  # jobs submitted per worker process: enough that none waits while another is slow


@dataclass(frozen=True, slots=True)
class Job:
    """A task, with its result where that is known from an earlier run."""

    task: Any
    key: str = ""
    known: Outcome | None = None


Runner = Callable[[Iterable[Job]], Iterator[tuple[Job, Outcome]]]  # started workers: may be called repeatedly


@dataclass(frozen=True)
class Executor:
    """Where and by how many workers jobs are run.

    The address of a cluster is HOST:PORT or ray://HOST:PORT; "auto" for the one that this machine belongs to, "local"
    for a new one on this machine; None for "auto" where there is one, else "local".
    """

    engine: str = "local"  # this machine; or "ray" for a cluster
    workers: int | None = None  # processes; None for one, or with Ray for one per CPU of the cluster
    address: str | None = None
    all_threads: bool = False  # a single local worker may use all cores: the last digits then depend on their number

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ExciteError(f"there is no engine {self.engine!r}: choose {' or '.join(ENGINES)}")
        if self.workers is not None and self.workers < 1:
            raise ExciteError(f"{self.workers} workers cannot do anything: give at least 1")
        if self.address is not None and not self.is_cluster:
            raise ExciteError("an address is one of a Ray cluster: give --engine ray too")
        if self.is_cluster and not (find_spec("ray") and find_spec("pyarrow")):
            raise ExciteError("the engine ray needs the packages ray and pyarrow: pip install 'excite[ray]'")

    @classmethod
    def of(cls, workers: int | Executor) -> Executor:
        """The executor itself, or one with so many processes of this machine."""
        return workers if isinstance(workers, Executor) else cls(workers=workers)

    @property
    def is_cluster(self) -> bool:
        """Whether other machines may take part."""
        return self.engine == "ray"

    @contextmanager
    def start(self, work: Work[Any], writes: Path | None = None) -> Iterator[Runner]:
        """Start the workers once, for several job lists; ``writes`` is a folder into which the work itself writes."""
        if self.is_cluster:
            from excite.jobs.cluster import ray_runner

            with ray_runner(work, self, writes) as runner:
                yield runner
        elif self.workers is not None and self.workers > 1:
            with process_runner(work, self.workers) as runner:
                yield runner
        else:
            yield partial(self._run_here, work)

    def _run_here(self, work: Work[Any], jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        with nullcontext() if self.all_threads else one_thread():
            if hasattr(work, "stages"):
                yield from in_stages(work.stages, jobs)
                return
            for job in jobs:
                yield job, attempt(work, job.task) if job.known is None else job.known


Stage = Callable[[Any], Any]


def in_stages(stages: tuple[Stage, Stage, Stage, Stage], jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
    """The results of work in four stages, each given what the one before returned, in the order of the jobs.

    The first and the third run here (they may warn, and use the network), the second and the fourth in threads beside
    them: while the network sees one image, the next is prepared and the last is written.
    """
    read, prepare, look, write = stages

    def beside(stage: Stage, given: Any) -> Callable[[], Any]:
        failed = isinstance(given, ExciteError)
        return (lambda: given) if failed else threads.submit(attempt, stage, given).result

    def here(stage: Stage, given: Any) -> Any:
        return given if isinstance(given, ExciteError) else attempt(stage, given)

    with ThreadPoolExecutor(2) as threads:
        begun = ((job, None if job.known else beside(prepare, attempt(read, job.task))) for job in jobs)
        seen = ((job, prepared and beside(write, here(look, prepared()))) for job, prepared in _one_ahead(begun))
        for job, written in _one_ahead(seen):
            yield job, cast("Outcome", job.known) if written is None else written()


def _one_ahead(items: Iterable[Any]) -> Iterator[Any]:
    """The same items, each given only when the next one was taken."""
    iterator = iter(items)
    for waiting in iterator:
        for following in iterator:
            yield waiting
            waiting = following  # noqa: PLW2901 - it waits now
        yield waiting


def attempt(work: Callable[[Any], Any], task: Any) -> Any:
    """The result, or the error of an image or annotation that cannot be read. Other errors are raised."""
    try:
        return work(task)
    except (ImageError, DataError) as error:
        return error


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: the last digits of a sum depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def in_order(
    jobs: Iterable[Job], submit: Callable[[Job], Callable[[], Outcome]], most: Callable[[], int]
) -> Iterator[tuple[Job, Outcome]]:
    """The jobs in their order, each with its result, computed elsewhere; jobs are read as late as possible.

    ``submit`` returns a function that waits for the result, ``most`` the largest number of submitted jobs.
    """
    waiting: deque[tuple[Job, Callable[[], Outcome]]] = deque()
    busy = 0
    for job in jobs:
        waiting.append((job, submit(job) if job.known is None else partial(cast, "Outcome", job.known)))
        busy += job.known is None
        while waiting and (waiting[0][0].known is not None or busy >= most() or len(waiting) >= AHEAD):
            first, result = waiting.popleft()
            busy -= first.known is None
            yield first, result()
    for first, result in waiting:
        yield first, result()


def note(message: Warning | str, *_where: object, **_more: object) -> None:
    """Print a warning as one line, as the command does; a replacement for ``warnings.showwarning``."""
    sys.stderr.write(f"excite: note: {one_line(str(message))}\n")


@contextmanager
def process_runner(work: Work[Any], workers: int) -> Iterator[Runner]:
    """A process pool, started with the first job."""
    pools: list[ProcessPoolExecutor] = []

    def submit(job: Job) -> Callable[[], Outcome]:
        if not pools:
            context = multiprocessing.get_context("spawn")  # a fork would inherit locks of torch's threads
            pools.append(ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(pickled(work),)))
        with ctrl_c_for_parent():  # each of the first jobs starts one more process
            future = pools[0].submit(_work_here, job.task)

        def result() -> Outcome:
            try:
                return future.result()
            except BrokenProcessPool:
                raise ExciteError(
                    "a worker ended without an answer, perhaps for want of memory: use fewer workers; "
                    "what was finished is kept"
                ) from None

        return result

    try:
        yield lambda jobs: in_order(jobs, submit, lambda: QUEUED * workers)
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


@contextmanager
def ctrl_c_for_parent() -> Iterator[None]:
    """Block Ctrl-C for processes that are started meanwhile; the parent receives it afterwards, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pickled(work: object) -> bytes:
    """The work for other processes."""
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ExciteError(f"this classifier cannot be sent to other processes ({error}): use one worker") from None


_here: list[Any] = []  # in a worker process: its work, unpickled once, or the error of that


def _begin(content: bytes) -> None:
    """Initialise a worker process. It ignores Ctrl-C, which the parent handles, and ends with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    warnings.showwarning = note
    try:
        _here[:] = [pickle.loads(content)]  # noqa: S301 - from the parent, not from a file
    except Exception as error:  # noqa: BLE001 - reported by the parent, without a trace here
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        _here[:] = [ExciteError(f"a worker cannot take the work ({reason}): use one worker")]


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _work_here(task: Any) -> Outcome:
    if isinstance(_here[0], ExciteError):
        raise _here[0]
    outcome: Outcome = attempt(_here[0], task)
    return outcome
