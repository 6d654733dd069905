"""The one loop of all long work: picture by picture, resumed where it was stopped, on one process or several."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from excite.errors import DataError, ExciteError, ImageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.ledger import Entry, Ledger

__all__ = ["Work", "run"]

Task = TypeVar("Task", contravariant=True)  # noqa: PLC0105 - a word is a better name
Outcome = dict[str, Any] | ExciteError


class Work(Protocol[Task]):
    """What is done for each task. Several processes can share it when it can be pickled."""

    def key(self, task: Task) -> str:
        """Changes when the task, or anything that is asked of it, does."""

    def __call__(self, task: Task) -> dict[str, Any]:
        """The answer, as plain values for JSON."""


def run(
    work: Work[Task], tasks: Sequence[Task], ledger: Ledger, *, workers: int = 1, failures: list[str] | None = None
) -> Iterator[Entry]:
    """Do the work for each task and write each answer down at once; what is written down already is not done again.

    The answers come in the order of the tasks, the same whatever the number of workers: all compute on one thread,
    because the last digits of a sum depend on how it was shared out.

    Args:
        work: what to do.
        tasks: what to do it for.
        ledger: where the answers are kept.
        workers: how many processes; with 1, this one does it.
        failures: gets a line for each task whose picture or annotation cannot be read; without it, that is an error.
    """
    if workers < 1:
        raise ExciteError(f"{workers} workers cannot do anything: give at least 1")
    done = ledger.read()
    keys = [_attempt(work.key, task) for task in tasks]
    missing = [task for task, key in zip(tasks, keys, strict=True) if isinstance(key, str) and key not in done]
    with _outcomes(work, missing, workers) as outcomes:
        for key in keys:
            outcome = key if isinstance(key, ExciteError) else done.get(key) or next(outcomes)
            if isinstance(outcome, ExciteError):
                if failures is None:
                    raise outcome
                failures.append(str(outcome))
                continue
            if key not in done:
                outcome = {"key": key, **outcome}
                ledger.add(outcome)
            yield outcome


def _attempt(work: Callable[[Any], Any], task: Any) -> Any:
    """The answer, or what is wrong with this picture. What is wrong with the question itself is raised."""
    try:
        return work(task)
    except (ImageError, DataError) as error:
        return error


@contextmanager
def _outcomes(work: Work[Task], tasks: Sequence[Task], workers: int) -> Iterator[Iterator[Outcome]]:
    workers = min(workers, len(tasks))
    if workers > 1:
        with _pool(work, workers) as pool:
            yield _collected(pool.map(_work_here, tasks))
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield (_attempt(work, task) for task in tasks)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _pool(work: object, workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of their own: a copy of this one would inherit locks of torch's threads."""
    try:
        content = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ExciteError(f"this classifier cannot be sent to other processes ({error}): use one worker") from None
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(content,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _collected(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    try:
        yield from outcomes
    except BrokenProcessPool:
        raise ExciteError(
            "a worker ended without an answer, perhaps for want of memory: use fewer workers; what was finished is kept"
        ) from None


_here: list[Work[Any]] = []  # in a worker: its work, unpickled once


def _begin(content: bytes) -> None:
    """A worker's first step. Ctrl-C is for the parent, who tells the workers; a dead parent tells nobody anything."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    warnings.showwarning = _note
    _here[:] = [pickle.loads(content)]  # noqa: S301 - from the parent, not from a file


def _note(message: Warning | str, *_where: object, **_more: object) -> None:
    """A worker's warning as one line, as the command itself shows its own."""
    sys.stderr.write(f"excite: note: {message}\n")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work_here(task: Any) -> Outcome:
    outcome: Outcome = _attempt(_here[0], task)
    return outcome
