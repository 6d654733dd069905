"""Which layer shall a classifier be read at? Measured on annotated pictures (the paper's layer selection effects)."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from PIL import Image

from excite.benchmarks.candidates import candidate_layers
from excite.benchmarks.layer_report import NO_BOXES, report
from excite.benchmarks.loop import run
from excite.benchmarks.measuring import Cue, Measuring, Task
from excite.errors import ConceptError, DataError, LostSignalWarning, ModelError
from excite.ledger import Ledger
from excite.looking import Look
from excite.methods import find_method
from excite.vocabulary.labels import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.benchmarks.layer_report import By, LayerReport
    from excite.datasets import Dataset, Sample
    from excite.ledger import Entry
    from excite.models import Classifier
    from excite.vocabulary import Concept

__all__ = ["LayerSweep", "checked_measure"]

METHODS = ("mwp", "c-mwp")
SQUARE = (256, 256)  # the picture whose maps' sizes are told


class LayerSweep:
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
        concepts: what the classifier calls each category that occurred; None where it has no word.
        unknown: categories for which the classifier has no word, and how many targets were left out for it.
        difficult: how many targets were left out because all their objects are flagged as difficult.
        empty: how many pictures have nothing that could be looked for.
        failures: a line for each picture or annotation that cannot be read.

    Raises:
        ConceptError: the classifier knows no category of these pictures.

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
        if skip < 0 or (limit is not None and limit < 1):
            raise DataError(f"skip {skip} and limit {limit} leave no pictures: give at least 0, and at least 1")
        self.classifier = classifier
        self.dataset = dataset
        self.methods = tuple(dict.fromkeys(find_method(method).name for method in methods))
        self.layers = self._tried(layers)
        self.names = dataset.names[skip:] if limit is None else dataset.names[skip : skip + limit]
        if classifier.labels is None:
            raise ModelError(f"{classifier.name} has no labels: give it words with excite.wrap(..., labels=...)")
        self._labels = classifier.labels
        self.concepts: dict[str, Concept | None] = {}
        self.unknown: Counter[str] = Counter()
        self.difficult = 0
        self.empty = 0
        self.failures: list[str] = []
        self.tasks = list(self._tasks())
        if not self.tasks:
            raise ConceptError(self._nothing())

    def records(self, out: Path, workers: int = 1) -> Iterator[Entry]:
        """Measure picture by picture, kept in ``records.jsonl``: started again, it goes on where it was."""
        work = Measuring(self.classifier, tuple(self.layers), self.methods, self.dataset.one_main_object)
        ledger = Ledger(out / "records.jsonl", required=("image", "targets"))
        return run(work, self.tasks, ledger, workers=workers, failures=self.failures)

    def report(
        self, records: Sequence[Entry], *, by: str = "pointing", tolerance: float | None = None, seed: int = 0
    ) -> LayerReport:
        """What the records say; see `layer_report.report`. The tolerance is the data set's own when None."""
        if not records and self.failures:
            raise DataError(f"none of the {len(self.names)} pictures could be read; the first: {self.failures[0]}")
        near = self.dataset.tolerance if tolerance is None else tolerance
        return report(records, self.layers, tolerance=near, by=checked_measure(by, self.dataset), seed=seed)

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        return {
            "model": self.classifier.name,
            "data": {"format": self.dataset.name, "folder": str(self.dataset.folder), "split": self.dataset.split},
            "pictures": len(self.names),
            "concepts": {category: concept.name for category, concept in self.concepts.items() if concept},
            "left_out": {"unknown": dict(self.unknown), "difficult": self.difficult, "empty": self.empty},
            "failures": self.failures,
        }

    def _tried(self, layers: Sequence[str] | None) -> dict[str, tuple[int, int]]:
        """The layers, each seen once to give a map by every method: not after a thousand pictures."""
        picture = Image.new("RGB", SQUARE)
        methods = [find_method(method) for method in self.methods]
        inputs = {
            scale: self.classifier.prepared(picture, scale)[None] for method in methods for scale in method.scales
        }
        module = self.classifier.module
        names = [layer.name for layer in candidate_layers(module, inputs[1.0])] if layers is None else layers
        look = Look(self.classifier, inputs, methods, layer=list(dict.fromkeys(names)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostSignalWarning)  # there is nothing to see in a black picture
            found = [one for method in methods for one in look.answer(method, [[0]], [picture])[0]]
        return {one.layer: (one.values.shape[0], one.values.shape[1]) for one in found}

    def _tasks(self) -> Iterator[Task]:
        """What to look for in each picture, and why not for the rest: nothing is left out in silence."""
        for name in self.names:
            try:
                sample = self.dataset.sample(name)
            except DataError as error:
                self.failures.append(str(error))
                continue
            cues = tuple(self._cues(sample))
            self.empty += not cues
            if cues:
                yield Task(name, sample.path, cues)

    def _cues(self, sample: Sample) -> Iterator[Cue]:
        for target in sample.targets:
            concept = self._concept(target.concept)
            if concept is None:
                self.unknown[target.concept] += 1
            elif target.difficult:
                self.difficult += 1
            else:
                yield Cue(concept, target.boxes)

    def _concept(self, category: str) -> Concept | None:
        if category not in self.concepts:
            try:
                self.concepts[category] = self.dataset.concept(category, self._labels)
            except ConceptError:
                self.concepts[category] = None
        return self.concepts[category]

    def _nothing(self) -> str:
        if self.unknown:
            return (
                f"{self.classifier.name} has no word for any category of these pictures: {listed(list(self.unknown))}"
            )
        reason = f": {self.failures[0]}" if self.failures else ""
        return f"none of these {len(self.names)} pictures has anything to look for{reason}"


def checked_measure(by: str, dataset: Dataset) -> By:
    """The measure to choose by, if there is such a one for these data."""
    if by == "pointing":
        return "pointing"
    if by != "box":
        raise DataError(f"layers cannot be chosen by {by!r}: choose by pointing or by box")
    if not dataset.one_main_object:
        raise DataError(NO_BOXES)
    return "box"
