"""What the records of all experiments that compare methods have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from excite.attention import AttentionMap
    from excite.datasets import Target
    from excite.jobs.ledger_init import Entry

__all__ = ["ComparisonRun", "Place", "asked_places", "place_of"]

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


@dataclass(frozen=True)
class ComparisonRun:
    """What one network did in an experiment, with all that its tables and figures need.

    Attributes:
        classifier_name: for people to read.
        rows: what the records say.
        records: a record for each picture that was looked at.
        dataset_name: the format of the data,
        split: and which part of it.
        about: what was measured and what was left out, as plain values for JSON.
        show: makes all maps of a picture's name and a category again, in the order of the record, for drawing.
        target: where the objects are: of a picture's name and a category.
    """

    classifier_name: str
    rows: Sequence[Any]
    records: Sequence[Entry]
    dataset_name: str
    split: str
    about: Mapping[str, Any]
    show: Callable[[str, str], Sequence[AttentionMap]]
    target: Callable[[str, str], Target]
