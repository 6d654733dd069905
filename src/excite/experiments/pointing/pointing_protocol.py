"""Whose Pointing Game is played. What both have in common, and what is kept from neither, is in docs/pointing.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.datasets import Dataset
    from excite.readouts.upsample import Mode

__all__ = ["AUTHORS", "PROTOCOLS", "Protocol", "find_protocol"]


@dataclass(frozen=True)
class Protocol:
    """In what the published games differ.

    Attributes:
        name: what users type.
        mode: how a map is stretched over its picture, before its maximum is taken.
        inclusive: whether a point that lies exactly the tolerance beside an object hits it.
        tolerance: how many pixels that is; None: by the data set's custom.
    """

    name: str
    mode: Mode
    inclusive: bool
    tolerance: float | None = None

    def tolerance_on(self, dataset: Dataset) -> float:
        """The tolerance, if it lets anything be a hit."""
        tolerance = dataset.tolerance if self.tolerance is None else self.tolerance
        if tolerance < 0 or (tolerance == 0 and not self.inclusive):
            raise DataError(f"with a tolerance of {tolerance:g} pixels nothing is a hit by {self.name!r}: give more")
        return tolerance


AUTHORS = Protocol("authors", mode="bicubic", inclusive=True)
TORCHRAY = Protocol("torchray", mode="bilinear", inclusive=False)
PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in (AUTHORS, TORCHRAY)}


def find_protocol(name: str, tolerance: float | None = None) -> Protocol:
    """The protocol of that name, with another tolerance where one is given.

    Example:
        >>> find_protocol("torchray").inclusive
        False
    """
    if name in PROTOCOLS:
        return replace(PROTOCOLS[name], tolerance=tolerance)
    close = get_close_matches(name, PROTOCOLS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise DataError(f"there is no protocol {name!r}{hint}: use one of {', '.join(PROTOCOLS)}")
