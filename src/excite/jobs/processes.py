"""The work shared by several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import ExciteError
from excite.jobs.jobs import attempt, in_order
from excite.jobs.notes import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from excite.jobs.jobs import Job, Outcome, Performable, Team

__all__ = ["ctrl_c_for_parent", "packed", "team_of_processes"]

AHEAD = 8  # tasks on their way for each worker: enough that none waits while another is slow


@contextmanager
def team_of_processes(work: Performable, workers: int) -> Iterator[Team]:
    """Processes for as long as they are needed; none is begun before there is something to do for it."""
    pools: list[ProcessPoolExecutor] = []

    def submit(job: Job) -> Callable[[], Outcome]:
        if not pools:
            pools.append(_pool(work, workers))
        with ctrl_c_for_parent():  # each of the first jobs begins one more process
            return _answer(pools[0].submit(_work_here, job.task))

    try:
        yield lambda jobs: in_order(jobs, submit, lambda: AHEAD * workers)
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
