"""What the records of all experiments that compare methods have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from excite.ledger import Entry

__all__ = ["Place", "asked_places", "place_of"]

Place = tuple[str, str]
"""A method and the layer at which it was read."""


def place_of(found: Entry) -> Place:
    """The method and the layer of a map.

    Example:
        >>> place_of({"method": "mwp", "layer": "conv5"})
        ('mwp', 'conv5')
    """
    return found["method"], found["layer"]


def asked_places(targets: Iterable[Entry]) -> Sequence[Place]:
    """What every pair was asked by: a pair that lacks one of them would be a wrong denominator.

    Raises:
        DataError: the pairs were not all asked by the same methods at the same layers.

    Example:
        >>> asked_places([{"maps": [{"method": "mwp", "layer": "conv5"}]}])
        (('mwp', 'conv5'),)
    """
    asked = {tuple(map(place_of, target["maps"])) for target in targets}
    if len(asked) > 1:
        raise DataError("these records are of different methods or layers: count those of one game at a time")
    return next(iter(asked), ())
