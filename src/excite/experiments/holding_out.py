"""Pictures to choose on, and others to report on: the best of many is partly the luckiest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["checked_share", "held_out"]


def held_out(names: Iterable[str], share: float, seed: int = 0) -> frozenset[str]:
    """So many of the pictures to choose on, as if drawn by lot, but the same each time.

    Whichever the other pictures are, their order among each other depends on their names and the seed only.

    Args:
        names: of all pictures.
        share: how many of them; at least one picture is held out, and one is not.
        seed: another one draws others.

    Raises:
        DataError: there are not two pictures, or the share is not between 0 and 1.

    Example:
        >>> len(held_out(map(str, range(1000)), share=0.2))
        200
    """
    ordered = sorted(set(names), key=lambda name: _lot(name, seed))
    if len(ordered) < 2:
        raise DataError("too few pictures to choose thresholds on some and measure on others: give at least 2")
    count = round(checked_share(share) * len(ordered))
    return frozenset(ordered[: min(max(count, 1), len(ordered) - 1)])


def checked_share(share: float) -> float:
    """A share that leaves pictures on both sides, or an error that says which would.

    Example:
        >>> checked_share(0.2)
        0.2
    """
    if not 0 < share < 1:
        raise DataError(f"a share of {share:g} of the pictures cannot be held out: give one between 0 and 1, as 0.2")
    return share


def _lot(name: str, seed: int) -> str:
    # the name of a file may hold what is no text
    return hashlib.sha256(f"{seed} {name}".encode("utf-8", "surrogatepass")).hexdigest()
