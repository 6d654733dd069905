"""Who shall do the work, as the user has chosen."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from excite.errors import ExciteError
from excite.jobs.here import outcomes_here
from excite.jobs.processes import team_of_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from excite.jobs.jobs import Job, Outcome, Performable, Team

__all__ = ["ENGINES", "Crew"]

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Crew:
    """Who does the work, and how many.

    Attributes:
        engine: "local", this machine; or "ray", a cluster of many.
        workers: how many processes; None for one, or with Ray for one for each CPU of the cluster.
        address: of the cluster, HOST:PORT or ray://HOST:PORT; "auto" for the one that this machine belongs to, "local"
            for one of its own. None for one that is there, or else one of its own.
        all_threads: one worker, this process, may compute on all cores. The last digits then depend on their number.

    Example:
        >>> Crew(workers=2).is_cluster, Crew("ray", address="auto").is_cluster
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
    def of(cls, workers: int | Crew) -> Crew:
        """The crew, or that of so many processes of this machine.

        Example:
            >>> Crew.of(2).workers
            2
        """
        return workers if isinstance(workers, Crew) else cls(workers=workers)

    @property
    def is_cluster(self) -> bool:
        """Whether others than this machine may do the work."""
        return self.engine == "ray"

    @contextmanager
    def hired(self, work: Performable, writes: Path | None = None) -> Iterator[Team]:
        """The crew with a work ready, for one list of jobs after the other: to begin anew takes seconds each time.

        Args:
            work: what is done for each task.
            writes: a folder into which the work itself writes files.

        Example:
            >>> from excite.jobs import Job
            >>> with Crew().hired(dict) as team:
            ...     [[outcome for _, outcome in team([Job({"n": n})])] for n in (1, 2)]
            [[{'n': 1}], [{'n': 2}]]
        """
        if self.is_cluster:
            from excite.jobs.cluster import team_of_cluster

            with team_of_cluster(work, self, writes) as team:
                yield team
        elif self.workers is not None and self.workers > 1:
            with team_of_processes(work, self.workers) as team:
                yield team
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
        with self.hired(work, writes) as team:
            yield from team(jobs)
