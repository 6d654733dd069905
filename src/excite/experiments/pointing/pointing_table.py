"""Who hit what in the Pointing Game, as tables of pictures and categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from excite.experiments.records import Place, asked_places, place_of
from excite.metrics.pointing_bootstrap import mean_shares, resampled_means

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from excite.jobs.ledger_init import Entry

__all__ = ["Place", "Table", "place_of"]


@dataclass(frozen=True, eq=False)
class Table:
    """The outcomes of all pairs of a picture and a category; both are in it only where they have a pair.

    Attributes:
        categories: their names, sorted.
        asked: [pictures, categories], which pairs there are.
        hits: for each method and layer, which of them it hit; nothing where there are no pairs.
    """

    categories: tuple[str, ...]
    asked: NDArray[np.bool_]
    hits: dict[Place, NDArray[np.bool_]]

    @classmethod
    def of(cls, records: Iterable[Entry], is_hit: Callable[[float | None], bool]) -> Table:
        """The table of these records; a distance, or None for a map that points nowhere, is a hit or not.

        Raises:
            DataError: the pairs were not all asked by the same methods at the same layers.
        """
        pictures = [record["targets"] for record in records if record["targets"]]
        categories = sorted({target["category"] for targets in pictures for target in targets})
        columns = {category: k for k, category in enumerate(categories)}
        shape = len(pictures), len(categories)
        asked = np.zeros(shape, dtype=bool)
        places = asked_places(target for targets in pictures for target in targets)
        hits = {place: np.zeros(shape, dtype=bool) for place in places}
        for row, targets in enumerate(pictures):
            for target in targets:
                cell = row, columns[target["category"]]
                asked[cell] = True
                for found in target["maps"]:
                    hits[place_of(found)][cell] = is_hit(found["distance"])
        return cls(tuple(categories), asked, hits)

    def mean(self, place: Place) -> float:
        """The mean over categories of the share that was hit."""
        return float(mean_shares(self.hits[place].sum(axis=0), self.asked.sum(axis=0)))

    def resampled(self, places: Sequence[Place]) -> NDArray[np.float64]:
        """That mean for resampled pictures, the same for all places: [places, resamples]."""
        return resampled_means(self.asked, [self.hits[place] for place in places])
