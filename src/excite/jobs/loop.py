"""The loop of all long runs: task by task, resumable, with one worker or many."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from excite.errors import ExciteError
from excite.jobs import Entry, Executor, Job, Runner, attempt

Task = TypeVar("Task", contravariant=True)  # noqa: PLC0105 - a word is a better name


class Work(Protocol[Task]):
    """The computation for each task. It must be picklable to run in several processes."""

    def key(self, task: Task) -> str:
        """Identifies the result: changes when the task or the computation does."""

    def __call__(self, task: Task) -> dict[str, Any]:
        """The result, as plain values for JSON."""


class Store(Protocol):
    """Where results are kept by their keys, such as `ResultStore`."""

    def read(self) -> Mapping[str, Entry]:
        """All that is stored."""

    def add(self, entry: Entry) -> None:
        """Store one more, at once."""

    def close(self) -> None:
        """Release what is held open."""


class Progress(Protocol):
    """Passes items on while it shows how many of a total there are."""

    def __call__(self, items: Iterable[Any], total: int, what: str = "pictures", /) -> Iterator[Any]:
        """The same items."""


def no_progress(items: Iterable[Any], _total: int, _what: str = "pictures") -> Iterator[Any]:
    """A `Progress` that shows nothing."""
    return iter(items)


def run(
    work: Work[Task],
    tasks: Iterable[Task],
    store: Store,
    *,
    workers: int | Executor | Runner = 1,
    failures: list[str] | None = None,
) -> Iterator[Entry]:
    """Compute the result of each task and store it at once; stored results are not computed again.

    The results come in the order of the tasks and do not depend on the executor: every worker computes on one thread,
    because the last digits of a sum depend on the number of threads.

    Args:
        work: the computation.
        tasks: its inputs.
        store: keeps the results.
        workers: a number of processes (1: this one), an executor, or a runner that was started with this work.
        failures: gets a line for each task whose image or annotation cannot be read; without it, that is an error.
    """
    # closed in any case: otherwise, after an error of the consumer, workers would go on with the rest
    with closing(answered(work, tasks, store, workers=workers, failures=failures)) as pairs:
        for _, entry in pairs:
            yield entry


def answered(
    work: Work[Task],
    tasks: Iterable[Task],
    store: Store,
    *,
    workers: int | Executor | Runner = 1,
    failures: list[str] | None = None,
    still: Callable[[Entry], bool] = bool,
    writes: Path | None = None,
) -> Generator[tuple[Any, Entry], None, None]:
    """As `run`, each result with its task.

    ``still`` says whether a stored result is still valid; ``writes`` is a folder into which the work itself writes.
    """
    try:
        jobs = _jobs(work, tasks, store.read(), still)
        started = nullcontext(workers) if callable(workers) else Executor.of(workers).start(work, writes)
        with started as runner, closing(cast("Generator[tuple[Job, Any], None, None]", runner(jobs))) as outcomes:
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
    """The jobs, made one by one: there may be a hundred million."""
    for task in tasks:
        key = attempt(work.key, task)
        if isinstance(key, ExciteError):
            yield Job(task, known=key)
            continue
        entry = done.get(key)
        yield Job(task, key, entry if entry is not None and still(entry) else None)
