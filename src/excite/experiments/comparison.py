"""Experiments that compare methods on the same pictures: where each is read, its records, its maps once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.base import Experiment
from excite.experiments.looks import all_maps
from excite.experiments.readable_layers import Places
from excite.images import read_image
from excite.jobs import Crew
from excite.jobs.ledger_init import open_ledger
from excite.jobs.loop import run
from excite.methods import METHODS, find_method

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.attention import AttentionMap
    from excite.datasets import Dataset, Target
    from excite.experiments.base import Cue, Task
    from excite.jobs.ledger_init import Entry
    from excite.jobs.loop import Work
    from excite.models import Classifier

__all__ = ["Comparison", "chosen_methods"]


class Comparison(Experiment):
    """Asks several methods for the same objects of annotated pictures.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        methods: names from `excite.METHODS`.
        layers: read all methods at these layers, where they can be; None for each method's own place.
        known: without named layers, read methods that may be read anywhere at all of these.
        skip: leave out so many pictures first,
        limit: and take so many of the rest; None for all.

    Attributes:
        places: where the methods are read, and why some cannot be.
        work: what is done for each picture; each kind of comparison has its own.
    """

    work: Work[Task]

    def __init__(
        self,
        classifier: Classifier,
        dataset: Dataset,
        methods: Sequence[str],
        *,
        layers: Sequence[str] | None = None,
        known: Sequence[str] = (),
        skip: int = 0,
        limit: int | None = None,
    ) -> None:
        chosen = [find_method(name) for name in dict.fromkeys(methods)]
        super().__init__(classifier, dataset, skip=skip, limit=limit)
        self.places = Places(classifier, chosen, layers, known=known)

    def records(self, out: Path, workers: int | Crew = 1) -> Iterator[Entry]:
        """Ask picture by picture, kept in ``records.jsonl``: started again, it goes on where it was.

        Args:
            out: the folder for it.
            workers: who does it: how many processes of this machine, or a crew. A cluster keeps ``records.parquet``.
        """
        crew = Crew.of(workers)
        ledger = open_ledger(out / "records.jsonl", ("image", "size", "targets"), parquet=crew.is_cluster)
        return run(self.work, self.tasks, ledger, workers=crew, failures=self.failures)

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        about = super().about()
        about["left_out"]["unreadable"] = self.places.unreadable
        return {
            **about,
            "output": "each place" if self.places.spatial else "the whole picture",
            "layers": {method: list(layers) for method, layers in self.places.layers.items()},
        }

    def show(self, image: str, category: str) -> list[AttentionMap]:
        """All maps of a pair once more, in the order of its record, each with its picture: for drawing."""
        picture = read_image(self._task(image).sample.path)
        concept = self._cue(image, category).concept
        return [found for _, found in all_maps(self.classifier, picture, [concept], self.places.layers)]

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
