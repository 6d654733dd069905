"""The work done by this process."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from excite.jobs.jobs import attempt, one_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from excite.jobs.jobs import Job, Outcome, Performable

__all__ = ["outcomes_here"]


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
