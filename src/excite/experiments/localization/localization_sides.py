"""The maps of one method on both sides: pictures that thresholds are chosen on, and pictures that are reported on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from excite.errors import DataError
from excite.experiments.layer_report import ENOUGH_OVERLAP
from excite.experiments.records import asked_places, place_of
from excite.metrics.statistics import Share

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from excite.experiments.records import Place
    from excite.jobs.ledger_init import Entry

__all__ = ["Sides", "sides_of"]


@dataclass(frozen=True)
class Sides:
    """What one method gave at one layer.

    Attributes:
        place: the method and the layer.
        held_out: its maps of the pictures to choose on.
        reported: its maps of the pictures to report on,
        pictures: and for each the number of its picture among these.
    """

    place: Place
    held_out: Sequence[Entry]
    reported: Sequence[Entry]
    pictures: Sequence[int]

    @property
    def empty(self) -> int:
        """How many of the maps that are reported on have no box, since nothing is above zero."""
        return sum(found["boxes"][0] is None for found in self.reported)

    def chosen(self, rule: str) -> int:
        """Which threshold has the smallest error where one is chosen; of equals the first."""
        return int(_errors(self.held_out, rule, ENOUGH_OVERLAP).argmin())

    @property
    def share_chosen(self) -> Share:
        """By the paper's rule, how many are missed where the threshold is chosen."""
        at = self.chosen("paper")
        missed = [found["overlaps"]["paper"][at] < ENOUGH_OVERLAP for found in self.held_out]
        return Share(sum(missed), len(missed))

    def misses(self, rule: str) -> NDArray[np.bool_]:
        """Which pairs that are reported on are missed, at the threshold that was chosen."""
        at = self.chosen(rule)
        return np.array([found["overlaps"][rule][at] < ENOUGH_OVERLAP for found in self.reported])

    def curve(self, rule: str, enough: float = ENOUGH_OVERLAP) -> tuple[float, ...]:
        """The error in percent on what is reported, at each threshold, if so much overlap is enough."""
        return tuple((100 * _errors(self.reported, rule, enough)).tolist())


def sides_of(records: Sequence[Entry], reported: Collection[str]) -> list[Sides]:
    """For each method and layer its maps on both sides, in the order of the pairs.

    Raises:
        DataError: the records are of different methods or layers, or all pictures are on one side.

    Example:
        >>> found = {"method": "mwp", "layer": "conv5"}
        >>> records = [{"image": name, "targets": [{"maps": [found]}]} for name in "abc"]
        >>> [(sides.place, len(sides.held_out), sides.pictures) for sides in sides_of(records, {"b", "c"})]
        [(('mwp', 'conv5'), 1, [0, 1])]
    """
    places = asked_places(target for record in records for target in record["targets"])
    choose, tell = ([one for one in records if (one["image"] in reported) is told] for told in (False, True))
    if not choose or not tell:
        raise DataError("thresholds are chosen on some pictures and told of others: there are none on one of the sides")
    held_out, told = _by_place(choose), _by_place(tell)
    pictures = [k for k, record in enumerate(tell) for _ in record["targets"]]
    return [Sides(place, held_out[place], told[place], pictures) for place in places]


def _by_place(records: Iterable[Entry]) -> dict[Place, list[Entry]]:
    maps: dict[Place, list[Entry]] = {}
    for record in records:
        for target in record["targets"]:
            for found in target["maps"]:
                maps.setdefault(place_of(found), []).append(found)
    return maps


def _errors(maps: Iterable[Entry], rule: str, enough: float) -> NDArray[np.float64]:
    """The share that is missed, at each threshold."""
    errors: NDArray[np.float64] = (np.array([found["overlaps"][rule] for found in maps]) < enough).mean(axis=0)
    return errors
