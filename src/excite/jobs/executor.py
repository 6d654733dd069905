"""Who shall do the work, as the user has chosen."""

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
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import torch

from excite.errors import DataError, ExciteError, ImageError

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path


# A task and its answer; the same attempt at it, whoever makes it.

Outcome = dict[str, Any] | ExciteError

AHEAD = 1000  # jobs looked at while the first of them is waited for, most of them known: a long list is never held


class Performable(Protocol):
    """What is done for each task."""

    def key(self, task: Any) -> str:
        """Changes when the task, or anything that is asked of it, does."""

    def __call__(self, task: Any) -> dict[str, Any]:
        """The answer."""


@dataclass(frozen=True, slots=True)
class Job:
    """A task, and its answer where that is known already: then nothing is to be done."""

    task: Any
    key: str = ""
    known: Outcome | None = None


Runner = Callable[[Iterable[Job]], Iterator[tuple[Job, Outcome]]]
"""Workers who have a work ready: takes jobs, and gives each with its answer, in order; as often as one likes."""


def attempt(work: Callable[[Any], Any], task: Any) -> Any:
    """The answer, or what is wrong with this image. What is wrong with the question itself is raised.

    Example:
        >>> attempt(len, "four")
        4
    """
    try:
        return work(task)
    except (ImageError, DataError) as error:
        return error


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: the last digits of a sum depend on how it was shared out.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def in_order(
    jobs: Iterable[Job], submit: Callable[[Job], Callable[[], Outcome]], most: Callable[[], int]
) -> Iterator[tuple[Job, Outcome]]:
    """The jobs in their order, each with its answer, while others do the work.

    Args:
        jobs: taken one by one, as late as possible.
        submit: hands a job to whoever is free; what it gives waits for the answer.
        most: how many answers may be on their way, once the first is.

    Example:
        >>> [outcome for _, outcome in in_order([Job(1), Job(2)], lambda job: lambda: {"n": job.task}, lambda: 4)]
        [{'n': 1}, {'n': 2}]
    """
    waiting: deque[tuple[Job, Callable[[], Outcome] | None]] = deque()
    busy = 0
    for job in jobs:
        waiting.append((job, submit(job) if job.known is None else None))
        busy += job.known is None
        while waiting and (waiting[0][1] is None or busy >= most() or len(waiting) >= AHEAD):
            first, answer = waiting.popleft()
            busy -= answer is not None
            yield first, _outcome(first, answer)
    while waiting:
        first, answer = waiting.popleft()
        yield first, _outcome(first, answer)


def _outcome(job: Job, answer: Callable[[], Outcome] | None) -> Outcome:
    if answer is not None:
        return answer()
    assert job.known is not None  # noqa: S101 - or it would have been submitted
    return job.known


# The work done by this process.


def outcomes_here(work: Performable, jobs: Iterable[Job], *, all_threads: bool) -> Iterator[tuple[Job, Outcome]]:
    """Each job with its answer, one after the other.

    Example:
        >>> from excite.jobs import Job
        >>> [outcome for _, outcome in outcomes_here(dict, [Job({"a": 1})], all_threads=True)]
        [{'a': 1}]
    """
    with nullcontext() if all_threads else one_thread():
        for job in jobs:
            yield job, attempt(work, job.task) if job.known is None else job.known


# What workers have to say, a line each.


def note(message: Warning | str, *_where: object, **_more: object) -> None:
    """A warning as one line, as the command itself shows its own; fit to be ``warnings.showwarning``.

    Example:
        >>> note("this picture is empty")
    """
    sys.stderr.write(f"excite: note: {message}\n")


# The work shared by several processes of this machine.

QUEUED = 8  # tasks on their way for each worker: enough that none waits while another is slow


@contextmanager
def process_runner(work: Performable, workers: int) -> Iterator[Runner]:
    """Processes for as long as they are needed; none is begun before there is something to do for it."""
    pools: list[ProcessPoolExecutor] = []

    def submit(job: Job) -> Callable[[], Outcome]:
        if not pools:
            pools.append(_pool(work, workers))
        with ctrl_c_for_parent():  # each of the first jobs begins one more process
            return _answer(pools[0].submit(_work_here, job.task))

    try:
        yield lambda jobs: in_order(jobs, submit, lambda: QUEUED * workers)
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


@contextmanager
def ctrl_c_for_parent() -> Iterator[None]:
    """Processes that begin meanwhile do not hear Ctrl-C: they would show a trace while they still import.

    The parent hears it afterwards. Workers are told by it to end.

    Example:
        >>> with ctrl_c_for_parent():
        ...     signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        True
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows tells Ctrl-C in another way
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def packed(work: object) -> bytes:
    """The work as other processes take it.

    Example:
        >>> pickle.loads(packed([1, 2]))
        [1, 2]
    """
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ExciteError(f"this classifier cannot be sent to other processes ({error}): use one worker") from None


def _pool(work: object, workers: int) -> ProcessPoolExecutor:
    """Processes of their own: a copy of this one would inherit locks of torch's threads."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(packed(work),))


def _answer(future: Future[Outcome]) -> Callable[[], Outcome]:
    def answer() -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool:
            raise ExciteError(
                "a worker ended without an answer, perhaps for want of memory: use fewer workers; "
                "what was finished is kept"
            ) from None

    return answer


_here: list[Any] = []  # in a worker: its work, unpickled once; or why that failed


def _begin(content: bytes) -> None:
    """A worker's first step. Ctrl-C is for the parent, who tells the workers; a dead parent tells nobody anything."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    warnings.showwarning = note
    try:
        _here[:] = [pickle.loads(content)]  # noqa: S301 - from the parent, not from a file
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent shall be told, and no trace be shown here
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        _here[:] = [ExciteError(f"a worker cannot take the work ({reason}): use one worker")]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work_here(task: Any) -> Outcome:
    if isinstance(_here[0], ExciteError):
        raise _here[0]
    outcome: Outcome = attempt(_here[0], task)
    return outcome


# Who shall do the work, as the user has chosen.

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Executor:
    """Who does the work, and how many.

    Attributes:
        engine: "local", this machine; or "ray", a cluster of many.
        workers: how many processes; None for one, or with Ray for one for each CPU of the cluster.
        address: of the cluster, HOST:PORT or ray://HOST:PORT; "auto" for the one that this machine belongs to, "local"
            for one of its own. None for one that is there, or else one of its own.
        all_threads: one worker, this process, may compute on all cores. The last digits then depend on their number.

    Example:
        >>> Executor(workers=2).is_cluster, Executor("ray", address="auto").is_cluster
        (False, True)
    """

    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    all_threads: bool = False

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
        """The crew, or that of so many processes of this machine.

        Example:
            >>> Executor.of(2).workers
            2
        """
        return workers if isinstance(workers, Executor) else cls(workers=workers)

    @property
    def is_cluster(self) -> bool:
        """Whether others than this machine may do the work."""
        return self.engine == "ray"

    @contextmanager
    def start(self, work: Performable, writes: Path | None = None) -> Iterator[Runner]:
        """The crew with a work ready, for one list of jobs after the other: to begin anew takes seconds each time.

        Args:
            work: what is done for each task.
            writes: a folder into which the work itself writes files.

        Example:
            >>> from excite.jobs import Job
            >>> with Executor().start(dict) as runner:
            ...     [[outcome for _, outcome in runner([Job({"n": n})])] for n in (1, 2)]
            [[{'n': 1}], [{'n': 2}]]
        """
        if self.is_cluster:
            from excite.jobs.cluster import team_of_cluster

            with team_of_cluster(work, self, writes) as runner:
                yield runner
        elif self.workers is not None and self.workers > 1:
            with process_runner(work, self.workers) as runner:
                yield runner
        else:
            yield lambda jobs: outcomes_here(work, jobs, all_threads=self.all_threads)

    def outcomes(
        self, work: Performable, jobs: Iterable[Job], writes: Path | None = None
    ) -> Iterator[tuple[Job, Outcome]]:
        """The jobs in their order, each with its answer.

        Args:
            work: what is done for each task.
            jobs: taken one by one, as late as possible: there may be many.
            writes: a folder into which the work itself writes files.
        """
        with self.start(work, writes) as runner:
            yield from runner(jobs)
