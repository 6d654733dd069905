"""The Pointing Game: does the maximum of a map lie on an object of the category that was asked for? (paper, 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.benchmarks.experiment import Experiment
from excite.benchmarks.pointing_places import Places
from excite.benchmarks.pointing_protocol import AUTHORS
from excite.benchmarks.pointing_tally import Run, tally
from excite.benchmarks.pointing_work import Pointing
from excite.images import read_image
from excite.ledger import Ledger
from excite.loop import run
from excite.methods import METHODS, find_method

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.attention import AttentionMap
    from excite.benchmarks.experiment import Cue, Task
    from excite.benchmarks.pointing_protocol import Protocol
    from excite.benchmarks.pointing_tally import Row
    from excite.datasets import Dataset, Target
    from excite.ledger import Entry
    from excite.models import Classifier

__all__ = ["DEFAULT_METHODS", "PointingGame", "chosen_methods"]

DEFAULT_METHODS = "excite,c-mwp,mwp,center"


class PointingGame(Experiment):
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
        methods: Sequence[str] = tuple(DEFAULT_METHODS.split(",")),
        *,
        layers: Sequence[str] | None = None,
        skip: int = 0,
        limit: int | None = None,
        difficult: frozenset[tuple[str, str]] | None = None,
        protocol: Protocol = AUTHORS,
    ) -> None:
        chosen = [find_method(name) for name in dict.fromkeys(methods)]
        super().__init__(classifier, dataset, skip=skip, limit=limit)
        self.places = Places(classifier, chosen, layers)
        self.protocol = protocol
        self.tolerance = protocol.tolerance_on(dataset)
        self.listed = difficult
        self.work = Pointing(classifier, self.places.layers, protocol.mode, difficult)

    def records(self, out: Path, workers: int = 1) -> Iterator[Entry]:
        """Play picture by picture, kept in ``records.jsonl``: started again, it goes on where it was."""
        ledger = Ledger(out / "records.jsonl", required=("image", "size", "targets"))
        return run(self.work, self.tasks, ledger, workers=workers, failures=self.failures)

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
        about = super().about()
        about["left_out"]["unreadable"] = self.places.unreadable
        return {
            **about,
            "protocol": self.protocol.name,
            "tolerance": self.tolerance,
            "inclusive": self.protocol.inclusive,
            "difficult": "the paper's rule" if self.listed is None else "a list",
            "output": "each place" if self.places.spatial else "the whole picture",
            "layers": {method: list(layers) for method, layers in self.places.layers.items()},
        }

    def show(self, image: str, category: str) -> list[AttentionMap]:
        """All maps of a pair once more, in the order of its record, each with its picture: for drawing."""
        picture = read_image(self._task(image).sample.path)
        return [found for _, found in self.work.maps(picture, [self._cue(image, category).concept])]

    def target(self, image: str, category: str) -> Target:
        """Where the objects of a category are in a picture."""
        return self._cue(image, category).target

    def _task(self, image: str) -> Task:
        return next(task for task in self.tasks if task.name == image)

    def _cue(self, image: str, category: str) -> Cue:
        return next(cue for cue in self._task(image).cues if cue.target.concept == category)


def chosen_methods(names: str) -> list[str]:
    """The methods of a list with commas, or all of them.

    Example:
        >>> chosen_methods("c-mwp, mwp")
        ['c-mwp', 'mwp']
    """
    if names.strip() == "all":
        return list(METHODS)
    return [find_method(name.strip()).name for name in names.split(",")]


def _without_pairs(game: PointingGame, row: Row) -> dict[str, list[str]]:
    """Categories that are no part of the means, because there was nothing to point at."""
    asked = row.all.categories
    hard = row.difficult.categories if row.difficult else {}
    never = [category for category in game.dataset.categories if category not in asked]
    return {
        "no_pairs": [category for category in never if category not in game.unknown],
        "no_difficult_pairs": [category for category in asked if category not in hard],
    }
