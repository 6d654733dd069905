"""Means over pictures, and how sure they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FEW", "Mean", "mean", "mean_curve"]

RESAMPLES = 2000
FEW = 5  # pictures: with less there is nothing to draw from


@dataclass(frozen=True)
class Mean:
    """A mean with its 95 % interval: the pictures are drawn again and again, as if there were other ones.

    With few pictures nobody knows how sure it is: the ends of the interval are infinite.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        digits = spec or "z.2f"  # z: never -0.00
        interval = f" ({self.low:{digits}} to {self.high:{digits}})" if math.isfinite(self.low) else ""
        return f"{self.value:{digits}}{interval}"


def mean(values: Sequence[float]) -> Mean:
    """The mean of one value a picture. Started again, the same pictures are drawn.

    Example:
        >>> str(mean([0.5] * 5)), str(mean([0.5] * 4))
        ('0.50 (0.50 to 0.50)', '0.50')
    """
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < FEW:
        return Mean(float(numbers.mean()), -math.inf, math.inf)
    drawn = np.random.default_rng(0).integers(0, len(numbers), (RESAMPLES, len(numbers)))
    low, high = np.quantile(numbers[drawn].mean(axis=1), [0.025, 0.975])
    return Mean(float(numbers.mean()), float(low), float(high))


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean of several curves of one length, place by place.

    Example:
        >>> mean_curve([[1.0, 0.0], [0.0, 0.0]])
        [0.5, 0.0]
    """
    return [float(value) for value in np.mean(curves, axis=0)]
