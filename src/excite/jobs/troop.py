"""Workers of a Ray cluster, and what each is doing: a task whose worker is lost is given to another.

Ray could restart workers and repeat tasks by itself. But a worker that it cannot restart, because its machine is gone,
would keep its tasks for ever; so here every task is given out when somebody is free, and one at a time.
"""

from __future__ import annotations

import textwrap
import time
import warnings
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError
from excite.jobs.notes import note
from excite.jobs.ray_worker import worker_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.jobs.jobs import Job, Outcome
    from excite.jobs.ray_worker import Terms

__all__ = ["Troop"]

DEATHS = 4  # a task that has ended so many workers is not tried again
STILLBORN = 8  # so many workers that end before they can begin, one after the other, are no accident
PATIENCE = 60.0  # seconds without any worker before that is told


@dataclass(eq=False)
class _Errand:
    """A task on its way."""

    task: Any
    deaths: int = 0
    outcome: Outcome | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome is not None or self.error is not None

    @property
    def name(self) -> str:
        """What to call the task."""
        called = getattr(self.task, "name", None) or getattr(self.task, "image", None) or self.task
        return textwrap.shorten(str(called), 100)


class Troop:
    """Workers, one CPU each.

    Args:
        content: the work, pickled.
        terms: what they must have in common with this machine.
        size: how many; those for whom there is no CPU yet begin when there is one.
    """

    def __init__(self, content: bytes, terms: Terms, size: int) -> None:
        import ray

        self.size = size
        self._ray = ray
        self._lost = _lost_errors()
        self._terms = terms.plain()
        self._content = ray.put(content)
        self._kind = ray.remote(worker_class())
        self._joining: dict[Any, Any] = {}  # by what is waited for: the worker
        self._busy: dict[Any, tuple[Any, _Errand]] = {}
        self._idle: list[Any] = []
        self._errands: deque[_Errand] = deque()
        self._stillborn = 0
        self._alone_since: float | None = time.monotonic()
        for _ in range(size):
            self._recruit()

    def submit(self, job: Job) -> Callable[[], Outcome]:
        """Have a task done as soon as somebody is free; what it gives waits for the answer."""
        errand = _Errand(job.task)
        self._errands.append(errand)
        self._give_out()
        return lambda: self._answer(errand)

    def close(self) -> None:
        """Send all workers home, also in the middle of their work."""
        for worker in [*self._joining.values(), *self._idle, *(worker for worker, _ in self._busy.values())]:
            self._ray.kill(worker)

    def _answer(self, errand: _Errand) -> Outcome:
        """Wait for the answer. Errors wait for their turn too, so that all answers before them are kept."""
        while not errand.is_done:
            self._step()
        if errand.error is not None:
            raise errand.error
        assert errand.outcome is not None  # noqa: S101 - it is done
        return errand.outcome

    def _recruit(self) -> None:
        worker = self._kind.options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD").remote()
        self._joining[worker.join.remote(self._content, self._terms)] = worker

    def _give_out(self) -> None:
        while self._errands and self._idle:
            worker, errand = self._idle.pop(), self._errands.popleft()
            self._busy[worker.do.remote(errand.task)] = worker, errand

    def _step(self) -> None:
        """Wait a little for anybody to be ready, and give them the next task."""
        ready, _ = self._ray.wait([*self._busy, *self._joining], timeout=1.0)
        for reference in ready:
            if reference in self._joining:
                self._welcome(reference)
            else:
                self._collect(reference)
        self._give_out()
        self._tell_if_alone()

    def _welcome(self, reference: Any) -> None:
        worker = self._joining.pop(reference)
        try:
            complaint = self._ray.get(reference)
        except self._lost as error:
            self._stillborn += 1
            if self._stillborn >= STILLBORN:
                reason = " ".join(str(error).split())[:300]
                raise ExciteError(f"the cluster's workers end before they begin ({reason}): see `ray status`") from None
            self._recruit()
            return
        except self._ray.exceptions.RayTaskError as error:
            reason = " ".join(str(error.cause).split())[:300]
            raise ExciteError(f"a worker of the cluster cannot take the work ({reason})") from error
        if complaint is not None:
            raise ExciteError(complaint)
        self._stillborn = 0
        self._idle.append(worker)

    def _collect(self, reference: Any) -> None:
        worker, errand = self._busy.pop(reference)
        try:
            errand.outcome, notes = self._ray.get(reference)
        except self._lost:
            self._ray.kill(worker)  # it may be out of sight only, and would keep its CPU
            self._mourn(errand)
            return
        except self._ray.exceptions.RayTaskError as error:
            errand.error = error.cause if isinstance(error.cause, ExciteError) else error
            notes = []
        self._idle.append(worker)
        for said in notes:
            warnings.warn(said, stacklevel=2)

    def _mourn(self, errand: _Errand) -> None:
        """A worker is gone, with its machine or without: others take over."""
        errand.deaths += 1
        if errand.deaths < DEATHS:
            self._errands.appendleft(errand)  # others wait for it
            note(f"a worker of the cluster was lost at {errand.name}: another one takes over")
        else:
            errand.error = ExciteError(
                f"{errand.deaths} workers ended without an answer at {errand.name}, perhaps for want of memory: "
                "give them more, or leave it out; what was finished is kept"
            )
        self._recruit()

    def _tell_if_alone(self) -> None:
        """Say once in a while that nobody does the work: a busy cluster looks like one that hangs."""
        if self._busy or self._idle:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > PATIENCE:
            self._alone_since = float("inf")  # told
            note("no worker of the Ray cluster is ready: they are slow to begin, or no CPU is free (see `ray status`)")


def _lost_errors() -> tuple[type[Exception], ...]:
    """What Ray says when a worker, its machine or its answer is gone."""
    from ray import exceptions

    return (
        exceptions.RayActorError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.OutOfMemoryError,
        exceptions.WorkerCrashedError,
    )
