"""The one loop of all long work: image by image, resumed where it was stopped, by one worker or many."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from excite.errors import ExciteError
from excite.jobs import Executor, Job, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from excite.jobs import Entry, ResultStore, Runner

__all__ = ["Progress", "Work", "answered", "no_progress", "run"]

Task = TypeVar("Task", contravariant=True)  # noqa: PLC0105 - a word is a better name


class Work(Protocol[Task]):
    """What is done for each task. Several processes can share it when it can be pickled."""

    def key(self, task: Task) -> str:
        """Changes when the task, or anything that is asked of it, does."""

    def __call__(self, task: Task) -> dict[str, Any]:
        """The answer, as plain values for JSON."""


class Progress(Protocol):
    """Passes things on while it shows how many of a total there are."""

    def __call__(self, items: Iterable[Any], total: int, what: str = "pictures", /) -> Iterator[Any]:
        """The same things."""


def no_progress(items: Iterable[Any], _total: int, _what: str = "pictures") -> Iterator[Any]:
    """Show nothing of how far the work is.

    Example:
        >>> list(no_progress([1, 2], 2))
        [1, 2]
    """
    return iter(items)


def run(
    work: Work[Task],
    tasks: Iterable[Task],
    store: ResultStore,
    *,
    workers: int | Executor | Runner = 1,
    failures: list[str] | None = None,
) -> Iterator[Entry]:
    """Do the work for each task and write each answer down at once; what is written down already is not done again.

    The answers come in the order of the tasks, the same whoever does the work: all compute on one thread, because the
    last digits of a sum depend on how it was shared out.

    Args:
        work: what to do.
        tasks: what to do it for.
        store: where the answers are kept.
        workers: who does it: how many processes of this machine, a crew, or a team that has this work ready. With 1,
            this process does it.
        failures: gets a line for each task whose image or annotation cannot be read; without it, that is an error.
    """
    # closed in any case: otherwise, after an error of whoever reads the answers, workers would go on with the rest
    with closing(answered(work, tasks, store, workers=workers, failures=failures)) as pairs:
        for _, entry in pairs:
            yield entry


def answered(
    work: Work[Task],
    tasks: Iterable[Task],
    store: ResultStore,
    *,
    workers: int | Executor | Runner = 1,
    failures: list[str] | None = None,
    still: Callable[[Entry], bool] = bool,
    writes: Path | None = None,
) -> Generator[tuple[Any, Entry], None, None]:
    """As `run`, each answer with its task.

    Args:
        work: what to do.
        tasks: what to do it for.
        store: where the answers are kept.
        workers: who does it.
        failures: gets a line for each task that cannot be read.
        still: whether an earlier answer still counts.
        writes: a folder into which the work itself writes files.
    """
    try:
        jobs = _jobs(work, tasks, store.read(), still)
        found = workers(jobs) if callable(workers) else Executor.of(workers).outcomes(work, jobs, writes)
        outcomes = cast("Generator[tuple[Job, Any], None, None]", found)
        with closing(outcomes):
            for job, outcome in outcomes:
                if isinstance(outcome, ExciteError):
                    if failures is None:
                        raise outcome
                    failures.append(str(outcome))
                    continue
                entry = outcome
                if job.known is None:
                    entry = {"key": job.key, **outcome}
                    store.add(entry)
                yield job.task, entry
    finally:
        store.close()


def _jobs(
    work: Work[Task], tasks: Iterable[Task], done: Mapping[str, Entry], still: Callable[[Entry], bool]
) -> Iterator[Job]:
    """What is to be done, made one by one when somebody is free for it: there may be a hundred million."""
    for task in tasks:
        key = attempt(work.key, task)
        if isinstance(key, ExciteError):
            yield Job(task, known=key)
            continue
        entry = done.get(key)
        yield Job(task, key, entry if entry is not None and still(entry) else None)
