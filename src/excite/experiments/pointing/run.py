"""The Pointing Game: does the maximum of a map lie on an object of the category that was asked for? (paper, 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.comparison import Comparison, chosen_methods
from excite.experiments.defaults import POINTING_METHODS
from excite.experiments.pointing.pointing_protocol import AUTHORS
from excite.experiments.pointing.pointing_work import Pointing
from excite.experiments.pointing.scores import Run, tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.datasets import Dataset
    from excite.experiments.pointing.pointing_protocol import Protocol
    from excite.experiments.pointing.scores import Row
    from excite.jobs.ledger_init import Entry
    from excite.models import Classifier

__all__ = ["PointingGame", "chosen_methods"]


class PointingGame(Comparison):
    """Points at the objects of annotated pictures with several methods, and counts the hits.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        methods: names from `excite.METHODS`.
        layers: read all methods at these layers, where they can be; None for each method's own place.
        skip: leave out so many pictures first,
        limit: and take so many of the rest; None for all.
        difficult: the Difficult subset, as pairs of a picture's name and a category; None: by the paper's rule.
        protocol: whose game.

    Attributes:
        places: where the methods are read, and why some cannot be.
        tolerance: how many pixels beside an object a point may lie.

    Example:
        >>> game = PointingGame(excite.load("head"), open_dataset("VOCdevkit"), limit=100)  # doctest: +SKIP
        >>> records = list(game.records(Path("out")))                                       # doctest: +SKIP
        >>> [(row.method, row.all.value, row.difficult.value) for row in game.rows(records)]  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 - all but two may be left out
        self,
        classifier: Classifier,
        dataset: Dataset,
        methods: Sequence[str] = tuple(POINTING_METHODS.split(",")),
        *,
        layers: Sequence[str] | None = None,
        skip: int = 0,
        limit: int | None = None,
        difficult: frozenset[tuple[str, str]] | None = None,
        protocol: Protocol = AUTHORS,
    ) -> None:
        super().__init__(classifier, dataset, methods, layers=layers, skip=skip, limit=limit)
        self.protocol = protocol
        self.tolerance = protocol.tolerance_on(dataset)
        self.listed = difficult
        self.work = Pointing(classifier, self.places.layers, protocol.mode, difficult)

    def rows(self, records: Sequence[Entry]) -> list[Row]:
        """What the records say; see `pointing_tally.tally`."""
        self.check_some_were_read(records)
        return tally(records, self.classifier.name, self.tolerance, inclusive=self.protocol.inclusive)

    def run(self, records: Sequence[Entry]) -> Run:
        """All that tables and figures need."""
        rows = self.rows(records)
        about = self.about()
        about["left_out"] |= _without_pairs(self, rows[0])
        dataset = self.dataset
        return Run(self.classifier.name, rows, records, dataset.name, dataset.split, about, self.show, self.target)

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        return {
            **super().about(),
            "protocol": self.protocol.name,
            "tolerance": self.tolerance,
            "inclusive": self.protocol.inclusive,
            "difficult": "the paper's rule" if self.listed is None else "a list",
        }


def _without_pairs(game: PointingGame, row: Row) -> dict[str, list[str]]:
    """Categories that are no part of the means, because there was nothing to point at."""
    asked = row.all.categories
    hard = row.difficult.categories if row.difficult else {}
    never = [category for category in game.dataset.categories if category not in asked]
    return {
        "no_pairs": [category for category in never if category not in game.unknown],
        "no_difficult_pairs": [category for category in asked if category not in hard],
    }
