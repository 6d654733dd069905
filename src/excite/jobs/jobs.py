"""A task and its answer; the same attempt at it, whoever makes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from excite.errors import DataError, ExciteError, ImageError

__all__ = ["Job", "Outcome", "Performable", "Team", "attempt", "in_order", "one_thread"]

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


Team = Callable[[Iterable[Job]], Iterator[tuple[Job, Outcome]]]
"""Workers who have a work ready: takes jobs, and gives each with its answer, in order; as often as one likes."""


def attempt(work: Callable[[Any], Any], task: Any) -> Any:
    """The answer, or what is wrong with this picture. What is wrong with the question itself is raised.

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
