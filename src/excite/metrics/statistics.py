"""How sure a share is, and whether two of them differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Estimate", "Share", "paired_test"]

Z = 1.959963984540054  # the normal distribution has 95 % within so many deviations


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, in percent."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Share:
    """So many of so many, with Wilson's 95 % interval (which, unlike the textbook's, holds near 0 and 1 as well)."""

    count: int
    total: int

    @property
    def value(self) -> float:
        """The share itself."""
        return self.count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share lies, in 95 of 100 such samples.

        Example:
            >>> low, high = Share(0, 10).interval
            >>> round(low, 3), round(high, 3)
            (0.0, 0.278)
        """
        share, extra = self.value, Z * Z / self.total
        middle = share + extra / 2
        half = math.sqrt(extra * (share * (1 - share) + extra / 4))
        return max(0.0, (middle - half) / (1 + extra)), min(1.0, (middle + half) / (1 + extra))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} ({100 * low:.1f}-{100 * high:.1f})"


def paired_test(one: Sequence[bool], other: Sequence[bool]) -> float:
    """How likely two outcomes on the same targets would differ at least so much if neither were better.

    Only the targets count that one got and the other missed; each would be a fair coin (McNemar's test, exact).

    Example:
        >>> paired_test([True] * 6, [False] * 6)
        0.03125
    """
    gained = sum(a and not b for a, b in zip(one, other, strict=True))
    lost = sum(b and not a for a, b in zip(one, other, strict=True))
    tosses, ways, tail = gained + lost, 1, 0
    for heads in range(min(gained, lost) + 1):
        tail += ways
        ways = ways * (tosses - heads) // (heads + 1)  # in how many ways there is one more head
    return min(1.0, 2 * tail / (1 << tosses))
