"""When the loss is looked at, and how the learning rate follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Schedule"]

PATIENCE = 3  # checks
LEAST_GAIN = 0.001  # of the loss
FACTOR = 10
LOWERED = 3  # times at most


@dataclass(frozen=True)
class Schedule:
    """How long a training lasts, and at which rate it learns.

    Nothing is remembered: the rate is told by the losses of all checks so far, so a training that was stopped needs no
    more than these to go on in the same way.

    Attributes:
        pictures: to learn from.
        batch: pictures a step.
        epochs: how often each picture is seen, at most.
        rate: the learning rate at the start.
        checks: how often the loss is looked at in an epoch.
    """

    pictures: int
    batch: int = 64
    epochs: int = 3
    rate: float = 0.01
    checks: int = 4

    @property
    def epoch_steps(self) -> int:
        """Steps in an epoch."""
        return -(-self.pictures // self.batch)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.epochs * self.epoch_steps

    def is_check(self, step: int) -> bool:
        """Whether the loss is looked at after so many steps; after the last one of an epoch it always is.

        Example:
            >>> [step for step in range(1, 11) if Schedule(100, batch=10, checks=3).is_check(step)]
            [4, 7, 10]
        """
        parts, within = min(self.checks, self.epoch_steps), (step - 1) % self.epoch_steps
        return within * parts // self.epoch_steps < (within + 1) * parts // self.epoch_steps

    def rate_after(self, losses: Sequence[float]) -> float:
        """The rate for the steps behind these checks: a tenth, once the loss has gone flat, three times at most.

        Example:
            >>> Schedule(64).rate_after([5, 4, 4, 4]), Schedule(64).rate_after([5, 4, 4, 4, 4])
            (0.01, 0.001)
        """
        return self.rate / float(FACTOR) ** min(len(self._plateaus(losses)), LOWERED)

    def is_over(self, losses: Sequence[float]) -> bool:
        """Whether the loss has gone flat at the lowest rate too: nothing more is learnt."""
        return len(self._plateaus(losses)) > LOWERED

    def _plateaus(self, losses: Sequence[float]) -> list[int]:
        """After how many checks each plateau was seen: the best of the last three is hardly lower than all before.

        Before are the checks at the same rate and the last one at the rate before it.
        """
        ends: list[int] = []
        start = 0
        for end in range(1, len(losses) + 1):
            seen = losses[start:end]
            if len(seen) > PATIENCE and min(seen[-PATIENCE:]) > min(seen[:-PATIENCE]) * (1 - LEAST_GAIN):
                ends.append(end)
                start = end - 1
        return ends
