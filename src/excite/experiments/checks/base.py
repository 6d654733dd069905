"""What a check is: something measured on each picture, and what all of it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from excite.experiments.checks.seen import Seen

__all__ = ["STANDINGS", "Check", "Measured", "Panel", "Standing", "Verdict", "worst"]

Standing = Literal["holds", "doubtful", "fails"]
STANDINGS: tuple[Standing, ...] = ("holds", "doubtful", "fails")
Measured = Mapping[str, Any]
"""What a check has measured on one picture, as plain values for JSON."""


@dataclass(frozen=True)
class Panel:
    """Curves to draw.

    Attributes:
        title: what they show.
        across: the name of the axis across,
        up: and of the one up.
        lines: by name, pairs of a place and a value.
    """

    title: str
    across: str
    up: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Verdict:
    """What a check says of a method on a classifier.

    Attributes:
        standing: whether the maps can be relied on in this respect.
        sentences: that in plain words, with the figures.
        rows: a table of the figures, by the names of its columns.
        panels: curves to draw.
    """

    standing: Standing
    sentences: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    panels: tuple[Panel, ...] = ()


@dataclass(frozen=True)
class Check:
    """A check, one line in `CHECKS`.

    Attributes:
        name: what users type.
        question: what it asks.
        measure: what is found on one picture.
        judge: what all pictures say of a method, given by name.
    """

    name: str
    question: str
    measure: Callable[[Seen], dict[str, Any]]
    judge: Callable[[Sequence[Measured], str], Verdict]


def worst(standings: Sequence[Standing]) -> Standing:
    """The least reassuring of several.

    Example:
        >>> worst(["holds", "doubtful"])
        'doubtful'
    """
    return max(standings, key=STANDINGS.index)
