"""The work shared by the machines of a Ray cluster, any of which may be lost."""

from __future__ import annotations

import os
import pickle
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from excite.io.files import save_text
from excite.jobs.connecting import connected
from excite.jobs.jobs import in_order
from excite.jobs.processes import packed
from excite.jobs.ray_worker import ENVIRONMENT, Terms
from excite.jobs.troop import Troop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from excite.jobs.executor import Crew
    from excite.jobs.jobs import Job, Outcome, Performable, Team

__all__ = ["team_of_cluster"]

AHEAD = 8  # tasks on their way for each worker: enough that none waits while a lost one is replaced
TOKEN = ".excite-shared"  # noqa: S105 - a file that tells whether a folder is shared


@contextmanager
def team_of_cluster(work: Performable, crew: Crew, writes: Path | None) -> Iterator[Team]:
    """Workers of a cluster for as long as they are needed; nobody is asked for anything before there is a job.

    Args:
        work: what is done for each task.
        crew: where the cluster is, and how many workers it shall have.
        writes: a folder into which the work itself writes files; all machines must see it.
    """
    with ExitStack() as ending:
        troops: list[Troop] = []

        def submit(job: Job) -> Callable[[], Outcome]:
            if not troops:
                workers = ending.enter_context(connected(crew))
                terms = ending.enter_context(_terms(job, writes))
                troops.append(ending.enter_context(closing(Troop(packed(work), terms, workers))))
            return troops[0].submit(job)

        yield lambda jobs: in_order(jobs, submit, lambda: AHEAD * troops[0].size)


@contextmanager
def _terms(job: Job, writes: Path | None) -> Iterator[Terms]:
    """What workers must have in common with this machine; for so long there is a file by which to tell."""
    word = uuid4().hex
    token = None if writes is None else save_text(word, writes.absolute() / TOKEN)
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    try:
        yield Terms(
            folder=str(Path.cwd()),
            environment=environment,
            token=None if token is None else str(token),
            word=word,
            task=pickle.dumps(job.task),
            key=job.key,
        )
    finally:
        if token is not None:
            token.unlink(missing_ok=True)
