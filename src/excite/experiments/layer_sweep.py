"""Which layer shall a classifier be read at? Measured on annotated pictures (the paper's layer selection effects)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import DataError
from excite.experiments.base import Experiment
from excite.experiments.layer_report import NO_BOXES, report
from excite.experiments.looks import look_at, maps_of
from excite.experiments.measuring import Measuring
from excite.jobs import Crew
from excite.jobs.ledger_init import open_ledger
from excite.jobs.loop import run
from excite.methods import find_method
from excite.models.candidates import candidate_layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.datasets import Dataset
    from excite.experiments.layer_report import By, LayerReport
    from excite.jobs.ledger_init import Entry
    from excite.models import Classifier

__all__ = ["LayerSweep", "checked_measure"]

METHODS = ("mwp", "c-mwp")
SQUARE = (256, 256)  # the picture whose maps' sizes are told


class LayerSweep(Experiment):
    """Measures layers and methods of a classifier on annotated pictures.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        layers: the layers to try; None for the ends of its blocks.
        methods: names from `excite.METHODS`.
        skip: leave out so many pictures first,
        limit: and take so many of the rest; None for all.

    Attributes:
        layers: for each layer the height and width of the map of a square picture.

    Example:
        >>> sweep = LayerSweep(excite.load(), open_dataset("VOCdevkit"), limit=100)   # doctest: +SKIP
        >>> sweep.report(list(sweep.records(Path("out")))).recommended.layer          # doctest: +SKIP
        'blocks.14'
    """

    def __init__(
        self,
        classifier: Classifier,
        dataset: Dataset,
        *,
        layers: Sequence[str] | None = None,
        methods: Sequence[str] = METHODS,
        skip: int = 0,
        limit: int | None = None,
    ) -> None:
        super().__init__(classifier, dataset, skip=skip, limit=limit)
        self.methods = tuple(dict.fromkeys(find_method(method).name for method in methods))
        self.layers = self._tried(layers)

    def records(self, out: Path, workers: int | Crew = 1) -> Iterator[Entry]:
        """Measure picture by picture, kept in ``records.jsonl``: started again, it goes on where it was.

        Args:
            out: the folder for it.
            workers: who does it: how many processes of this machine, or a crew. A cluster keeps ``records.parquet``.
        """
        work = Measuring(self.classifier, tuple(self.layers), self.methods, self.dataset.one_main_object)
        crew = Crew.of(workers)
        ledger = open_ledger(out / "records.jsonl", ("image", "targets"), parquet=crew.is_cluster)
        return run(work, self.tasks, ledger, workers=crew, failures=self.failures)

    def report(
        self, records: Sequence[Entry], *, by: str = "pointing", tolerance: float | None = None, seed: int = 0
    ) -> LayerReport:
        """What the records say; see `layer_report.report`. The tolerance is the data set's own when None."""
        self.check_some_were_read(records)
        near = self.dataset.tolerance if tolerance is None else tolerance
        return report(records, self.layers, tolerance=near, by=checked_measure(by, self.dataset), seed=seed)

    def _tried(self, layers: Sequence[str] | None) -> dict[str, tuple[int, int]]:
        """The layers, each seen once to give a map by every method: not after a thousand pictures."""
        picture = Image.new("RGB", SQUARE)
        methods = [find_method(method) for method in self.methods]
        if layers is None:
            inputs = self.classifier.prepared(picture)[None]
            layers = [layer.name for layer in candidate_layers(self.classifier.module, inputs)]
        look = look_at(self.classifier, picture, methods, list(dict.fromkeys(layers)))
        found = [one for method in methods for one in maps_of(look, method, [0], picture)]
        return {one.layer: (one.values.shape[0], one.values.shape[1]) for one in found}


def checked_measure(by: str, dataset: Dataset) -> By:
    """The measure to choose by, if there is such a one for these data."""
    if by == "pointing":
        return "pointing"
    if by != "box":
        raise DataError(f"layers cannot be chosen by {by!r}: choose by pointing or by box")
    if not dataset.one_main_object:
        raise DataError(NO_BOXES)
    return "box"
