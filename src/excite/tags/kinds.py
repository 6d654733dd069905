"""The kinds of pictures in a generated corpus: how each comes by its first five tags, and what becomes of it.

Every plain picture has two marks among its first five: tags that no other picture of the same user begins with, unless
it is made from this one. So two pictures share more than three of their first five only where that was meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIRST", "KINDS", "Kind", "firsts_of", "kinds_of"]

FIRST = 5
KEPT = ""
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """A kind of picture.

    Attributes:
        name: what it is.
        share: how many of all pictures are of it.
        made_from: the kind of the picture before it, by the same user, whose first five it takes; "" for none.
        replaced: how many of those five it replaces by marks of its own.
        seen: the rule that drops it when pictures are compared with all that were seen before, "" if it is kept,
        kept: and when they are compared with kept ones only.
        once: whether a picture may be taken for it once only, because two made from it would be like each other.
    """

    name: str
    share: float
    made_from: str = ""
    replaced: int = 0
    seen: str = KEPT
    kept: str = KEPT
    once: bool = False


KINDS = (
    Kind("plain", 0.26),
    Kind("few", 0.08, seen="few_tags", kept="few_tags"),
    Kind("sorted", 0.20, seen="alphabetical", kept="alphabetical"),
    Kind("as a sorted one", 0.01, made_from="sorted", once=True),  # which never came as far as being compared
    Kind("same five", 0.18, "plain", 0, "similar", "similar"),
    Kind("same four", 0.17, "plain", 1, "similar", "similar"),
    Kind("same three", 0.06, "plain", 2),
    Kind("like one that was dropped", 0.03, "same four", 1, "similar", KEPT, once=True),  # with the plain one: three
    Kind("of nobody", 0.005, "plain"),  # the same five as a plain one, but nobody knows whose
    Kind("picture named again", 0.005, "plain", 0, "repeated_image", "repeated_image"),
)
PLACES = {kind.name: place for place, kind in enumerate(KINDS)}
PLAIN = PLACES["plain"]


def kinds_of(users: Rows, random: np.random.Generator) -> tuple[Rows, Rows]:
    """The kind of each picture, and the picture it is made from (-1: none); pictures stand in the order of their users.

    What should be made from a picture that its user has not shown yet becomes a plain one.

    Example:
        >>> kinds, made_from = kinds_of(np.zeros(1000, np.int64), np.random.default_rng(0))
        >>> bool((made_from < np.arange(1000)).all())
        True
    """
    shares = np.array([kind.share for kind in KINDS])
    kinds = random.choice(len(KINDS), len(users), p=shares / shares.sum())
    made_from = np.full(len(users), -1)
    for place, kind in enumerate(KINDS):  # each is made from one that stands further up: those are settled already
        if kind.made_from:
            mine = np.flatnonzero(kinds == place)
            last = _last_before(kinds == PLACES[kind.made_from], users)[mine]
            if kind.once:
                last[1:][last[1:] == last[:-1]] = -1
            made_from[mine] = last
            kinds[mine[last < 0]] = PLAIN
    return kinds, made_from


def _last_before(chosen: NDArray[np.bool_], users: Rows) -> Rows:
    """For each picture the last chosen one before it by the same user; -1 for none."""
    places = np.where(chosen, np.arange(len(chosen)), -1)
    last = np.maximum.accumulate(np.concatenate([[-1], places[:-1]]))
    return np.where((last >= 0) & (users[last] == users), last, -1)


def firsts_of(kinds: Rows, made_from: Rows, own: Rows, marks: Rows, random: np.random.Generator) -> Rows:
    """The first five tags of each picture, before they are put in another order.

    Args:
        kinds: of the pictures,
        made_from: and what each is made from.
        own: [pictures, 5], five tags of its own for each picture.
        marks: [pictures, 2], two marks of its own for each picture; a plain one begins with them.
        random: chooses which tags are replaced.
    """
    firsts = own.copy()
    firsts[:, :2] = marks
    for place, kind in enumerate(KINDS):
        if kind.made_from:
            mine = np.flatnonzero(kinds == place)
            firsts[mine] = firsts[made_from[mine]]
            _replace(firsts, mine, marks, kind, random)
    return firsts


def _replace(firsts: Rows, mine: Rows, marks: Rows, kind: Kind, random: np.random.Generator) -> None:
    """Put marks in the place of some tags.

    A picture made from a plain one replaces one of the last four, and one made from that the first: two different ones
    of the plain one's five.
    """
    if kind.replaced == 1:
        column: Any = 0 if kind.made_from != "plain" else random.integers(1, FIRST, len(mine))
        firsts[mine, column] = marks[mine, 0]
    elif kind.replaced == 2:
        firsts[mine, :2] = marks[mine]
