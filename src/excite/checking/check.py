"""What a check is: something measured on each picture, and what all of it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from excite.checking.seen import Seen

__all__ = ["Check", "Measured", "Standing", "Verdict", "worst"]

Standing = Literal["holds", "doubtful", "fails"]
STANDINGS: tuple[Standing, ...] = ("holds", "doubtful", "fails")
Measured = Mapping[str, Any]
"""What a check has measured on one picture, as plain values for JSON."""


@dataclass(frozen=True)
class Verdict:
    """What a check says of a method on a classifier.

    Attributes:
        standing: whether the maps can be relied on in this respect.
        sentences: that in plain words, with the figures.
        rows: a table of the figures, by the names of its columns.
        curves: lines to draw, by name: pairs of a place and a value.
    """

    standing: Standing
    sentences: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A check, one line in `CHECKS`.

    Attributes:
        name: what users type.
        question: what it asks.
        measure: what is found on one picture.
        judge: what all pictures say of a method, given by name.
        axes: what its curves show, across and up.
    """

    name: str
    question: str
    measure: Callable[[Seen], dict[str, Any]]
    judge: Callable[[Sequence[Measured], str], Verdict]
    axes: tuple[str, str] = ("", "")


def worst(standings: Sequence[Standing]) -> Standing:
    """The least reassuring of several.

    Example:
        >>> worst(["holds", "doubtful"])
        'doubtful'
    """
    return max(standings, key=STANDINGS.index)
