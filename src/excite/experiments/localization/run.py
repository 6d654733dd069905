"""Localisation: does the box around the strong part of a map fit the object that was asked for? (paper, 4.2).

The protocol is the paper's: the picture is squashed to the classifier's square, the map is stretched to 224 x 224, and
the tightest box around what lies above a multiple of its mean is scaled back to the picture. That multiple is chosen
for each method on held-out pictures. The label is given: every category of a picture that the classifier has a word
for is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.comparison import Comparison
from excite.experiments.defaults import HELD_OUT, LOCALIZATION_METHODS
from excite.experiments.holding_out import checked_share, held_out
from excite.experiments.localization.localization_work import CANVAS, Boxing
from excite.experiments.localization.scores import Run, tally
from excite.experiments.localization.squashing import squared
from excite.readouts.components import check_components

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.datasets import Dataset
    from excite.experiments.localization.scores import Row
    from excite.jobs.ledger_init import Entry
    from excite.models import Classifier

__all__ = ["Localization"]


class Localization(Comparison):
    """Boxes the objects of annotated pictures with several methods, and counts how many boxes fit.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        methods: names from `excite.METHODS`.
        layers: read all methods at these layers, where they can be; None for each method's own place. Methods that may
            be read anywhere are then read at the two layers that are most worth it, and the better one is chosen on
            held-out pictures: another layer fits boxes than points.
        skip: leave out so many pictures first,
        limit: and take so many of the rest; None for all.
        own_shape: show the classifier pictures of their own shape, instead of squashing them to a square.
        held_out: choose thresholds on this share of the pictures; the others are reported on.
        seed: another one holds out others.

    Attributes:
        places: where the methods are read, and why some cannot be.

    Raises:
        ExciteError: scipy is not installed.
        DataError: the share is not between 0 and 1.

    Example:
        >>> boxing = Localization(excite.load(), open_dataset("imagenet"), limit=100)          # doctest: +SKIP
        >>> records = list(boxing.records(Path("out")))                                        # doctest: +SKIP
        >>> [(row.method, row.alpha, row.error.value) for row in boxing.run(records).rows]     # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 - all but two may be left out
        self,
        classifier: Classifier,
        dataset: Dataset,
        methods: Sequence[str] = tuple(LOCALIZATION_METHODS.split(",")),
        *,
        layers: Sequence[str] | None = None,
        skip: int = 0,
        limit: int | None = None,
        own_shape: bool = False,
        held_out: float = HELD_OUT,
        seed: int = 0,
    ) -> None:
        check_components()
        self.share, self.seed = checked_share(held_out), seed
        self.own_shape = own_shape
        shown = classifier if own_shape else squared(classifier)
        super().__init__(shown, dataset, methods, layers=layers, known=classifier.layers[:2], skip=skip, limit=limit)
        self.named = layers is not None
        self.work = Boxing(shown, self.places.layers)

    def reported(self, records: Sequence[Entry]) -> frozenset[str]:
        """The pictures that no threshold is chosen on."""
        names = frozenset(record["image"] for record in records)
        return names - held_out(names, self.share, self.seed)

    def rows(self, records: Sequence[Entry]) -> list[Row]:
        """What the records say; see `localization_tally.tally`."""
        self.check_some_were_read(records)
        return tally(records, self.classifier.name, self.reported(records))

    def run(self, records: Sequence[Entry]) -> Run:
        """All that tables and figures need."""
        rows, reported = self.rows(records), self.reported(records)
        about = {**self.about(), "held_out_pictures": len(records) - len(reported), "reported": len(reported)}
        name, data = self.classifier.name, self.dataset
        return Run(name, rows, records, data.name, data.split, about, self.show, self.target, reported)

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        return {
            **super().about(),
            "layer_chosen": not self.named,
            "shape": "its own" if self.own_shape else "squashed to a square",
            "canvas": list(CANVAS),
            "held_out": self.share,
            "seed": self.seed,
        }
