"""The course of a training: step by step, looked at now and then, and saved so that it can be stopped anywhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from excite.errors import DataError
from excite.training.tags.batches import epoch_order
from excite.training.tags.checkpoints import Standing, read_checkpoint, save_checkpoint
from excite.training.tags.curves import Check, save_curves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from excite.jobs.loop import Watch
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee
    from excite.training.tags.schedule import Schedule
    from excite.training.tags.sources import FixedViews, FreshViews, Plan
    from excite.training.tags.validation import Aside

__all__ = ["Course", "Keeper"]

AT_CHECK = 0.1  # of the usual time between two saves


@dataclass
class Keeper:
    """Saves how far a training is.

    Attributes:
        path: the file for all that the next step depends on,
        curves: and the one for people who look at the curves.
        key: changes when a training would take another course.
        every: seconds between two saves at most; behind a check a tenth of it is enough. A small corpus has a check
            every moment, and a disk takes longer to be sure of a file than a step takes.
    """

    path: Path
    curves: Path
    key: str
    every: float = 300
    _last: float = field(default_factory=time.monotonic)

    def is_due(self, *, at_check: bool) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self._last >= self.every * (AT_CHECK if at_check else 1)

    def save(self, trainee: Trainee, standing: Standing) -> None:
        """Only the first process writes."""
        if trainee.processes.first:
            save_curves(standing.checks, self.curves)
            save_checkpoint(self.path, self.key, trainee, standing)
        self._last = time.monotonic()


@dataclass(eq=False)
class Course:
    """A training on its way.

    Attributes:
        trainee: the network.
        schedule: how long it lasts, and at which rate it learns.
        lessons: what there is to learn,
        groups: which pictures lie together,
        source: and where their features come from.
        aside: the pictures kept aside.
        keeper: saves how far it is.
        seed: tells the order of the pictures.
        watch: shows how far it is.
        standing: how far it is.
    """

    trainee: Trainee
    schedule: Schedule
    lessons: Lessons
    groups: NDArray[np.int64]
    source: FreshViews | FixedViews
    aside: Aside
    keeper: Keeper
    seed: int
    watch: Watch
    standing: Standing = field(default_factory=Standing)
    _failed: list[tuple[int, str]] = field(default_factory=list)
    _seen: int = 0  # pictures since the last check or the start
    _since: float = field(default_factory=time.monotonic)

    def resume(self) -> bool:
        """Go on from the last checkpoint of this same training; whether there was one."""
        found = read_checkpoint(self.keeper.path, self.keeper.key, self.trainee)
        self.standing = found or self.standing
        return found is not None

    def fail(self, failed: Iterable[tuple[int, str]]) -> None:
        """Note pictures that cannot be read; they are told to the other processes at the next check."""
        self._failed.extend(failed)

    def run(self, checked: Callable[[Check], None] = lambda _check: None) -> None:
        """Make all steps that are left.

        Args:
            checked: is told each check, where somebody wants to know.
        """
        left, told = self.schedule.steps - self.standing.step, len(self.standing.checks)
        for _ in self.watch(self._steps(), left, "steps"):
            fresh, told = self.standing.checks[told:], len(self.standing.checks)
            for check in fresh:
                checked(check)

    def _steps(self) -> Iterator[dict[str, int]]:
        schedule, standing = self.schedule, self.standing
        units = torch.from_numpy(self.lessons.units)
        rate = schedule.rate_after(standing.losses)
        if schedule.is_over(standing.losses):
            return
        over = False
        self._since = time.monotonic()
        for given in self.source(self._plans()):
            is_check = schedule.is_check(standing.step + 1)
            wish = self.trainee.processes.first and self.keeper.is_due(at_check=is_check)
            report = self.trainee.step(given.features, units[torch.from_numpy(given.rows)], rate, wish=wish)
            self.fail(given.failures)
            standing.step += 1
            standing.loss += report.loss
            standing.pictures += report.pictures
            self._seen += report.pictures
            if is_check:
                self._check(rate)
                rate = schedule.rate_after(standing.losses)
                over = standing.step == schedule.steps or schedule.is_over(standing.losses)
            if report.wished or over:
                self.share_failures()
                self.keeper.save(self.trainee, standing)
            yield {"step": standing.step}
            if over:
                return

    def _plans(self) -> Iterator[Plan]:
        """The steps that are left; of each, this process's share of the rows."""
        processes, batch = self.trainee.processes, self.schedule.batch
        epoch, within = divmod(self.standing.step, self.schedule.epoch_steps)
        for number in range(epoch, self.schedule.epochs):
            order = epoch_order(self.groups, self.seed, number)
            first = within if number == epoch else 0
            for step in range(first, self.schedule.epoch_steps):
                yield number, order[step * batch : (step + 1) * batch][processes.rank :: processes.size]

    def share_failures(self) -> None:
        """Every process knows of all pictures that cannot be read."""
        failed, self._failed = self._failed + self.aside.failures, []
        self.aside.failures = []
        for part in self.trainee.processes.gathered(failed):
            self.standing.failures.add(part)

    def _check(self, rate: float) -> None:
        """Look at the losses."""
        standing = self.standing
        if not standing.pictures:
            self.share_failures()
            first = next(iter(standing.failures.lines), "no reason is known")
            raise DataError(f"not one picture since the last check can be read; the first of all: {first}")
        check = Check(
            step=standing.step,
            epoch=round(standing.step / self.schedule.epoch_steps, 6),
            rate=rate,
            training_loss=standing.loss / standing.pictures,
            validation_loss=self.aside.loss(),
            pictures_per_second=round(self._seen / max(time.monotonic() - self._since, 1e-9), 1),
        )
        standing.checks.append(check)
        standing.loss, standing.pictures, self._seen, self._since = 0.0, 0, 0, time.monotonic()
