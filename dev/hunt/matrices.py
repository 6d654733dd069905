"""Transition matrices by brute force, from the values of a function alone: nothing of excite is used here.

A function of n numbers that gives m has a matrix [m, n] where its kind can be seen from its values, row by row:

- a result that depends on one number at most: that takes all;
- a result that is one of the numbers, chosen by their values: that takes all;
- a linear function: Eqn. 4, in proportion to the contributions with the sign of the response.

For the few others with a documented rule `expected` has the matrix. Whatever is left must be refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Values = Callable[[np.ndarray], np.ndarray]

__all__ = ["Seen", "look"]

STEP = 1e-5  # of differences
NOTHING = 1e-8  # a difference of 0, in double precision


@dataclass(frozen=True)
class Seen:
    """What a function does at a point and around it.

    Attributes:
        x: the point.
        y: the results there.
        slopes: [m, n], by differences.
        depends: [m, n], whether a number at any distance changed a result.
        linear: the slopes are the same everywhere.
        lowest: [m], results that do not move and were nowhere smaller: of a bounded function, its least value.
    """

    x: np.ndarray
    y: np.ndarray
    slopes: np.ndarray
    depends: np.ndarray
    linear: bool
    lowest: np.ndarray

    @property
    def constant(self) -> bool:
        """No number changes anything."""
        return not self.depends.any()

    @property
    def silent(self) -> np.ndarray:
        """[m], results that no signal starts at: 0, or the least value of a bounded function."""
        return (np.abs(self.y) < NOTHING) | self.lowest

    def matrix(self) -> np.ndarray | None:
        """The transitions [m, n]; None where they cannot be told from the values."""
        rows = np.zeros_like(self.slopes)
        for i, row in enumerate(self.slopes):
            children, moved = np.flatnonzero(self.depends[i]), np.flatnonzero(row)
            if len(children) <= 1:
                rows[i, children] = 1
            elif len(moved) == 1 and abs(row[moved[0]] - 1) < 1e-6 and abs(self.x[moved[0]] - self.y[i]) < 1e-12:
                rows[i, moved] = 1
            elif self.linear:
                rows[i] = self.competition(i)
            else:
                return None
        return rows

    def competition(self, i: int) -> np.ndarray:
        """Row ``i`` of a linear function: P(a_j | a_i) of Eqn. 4, for either sign of the response."""
        pushes = self.slopes[i] * self.x * (1 if self.y[i] >= 0 else -1)
        pushes = np.where(pushes > NOTHING, pushes, 0)
        return pushes / max(pushes.sum(), NOTHING)


def look(function: Values, x: np.ndarray) -> Seen:
    """Try a function at a point, where its values are finite, and around it."""
    y = function(x)
    slopes, depends, least = np.zeros((len(y), len(x))), np.zeros((len(y), len(x)), dtype=bool), y.copy()
    for j in range(len(x)):
        slopes[:, j] = (function(_moved(x, j, STEP)) - function(_moved(x, j, -STEP))) / (2 * STEP)
        for far in (-31.0, 2.3, -2.7 * x[j], -x[j]):
            other = function(_moved(x, j, far))
            depends[:, j] |= ~(np.abs(other - y) <= 1e-12 * np.abs(y) + 1e-13)
            least = np.fmin(least, other)
    slopes = np.where(np.isfinite(slopes), np.where(np.abs(slopes) < NOTHING, 0, slopes), np.inf)
    lowest = (y <= least + 1e-12) & ~slopes.any(axis=1)
    return Seen(x, y, slopes, depends | (slopes != 0), _is_linear(function, x, y, slopes), lowest)


def _is_linear(function: Values, x: np.ndarray, y: np.ndarray, slopes: np.ndarray) -> bool:
    if not np.isfinite(slopes).all():
        return False
    changes = np.random.default_rng(0).normal(size=(3, *x.shape)) * 0.7
    return all(np.allclose(function(x + change), y + slopes @ change, rtol=1e-7, atol=1e-7) for change in changes)


def _moved(x: np.ndarray, j: int, step: float) -> np.ndarray:
    other = x.copy()
    other[j] += step
    return other
