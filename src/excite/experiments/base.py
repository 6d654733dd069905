"""What a classifier can be asked about annotated images: nothing is left out in silence."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from excite.errors import ConceptError, DataError, ModelError
from excite.experiments.readable_layers import ReadableLayers, all_maps
from excite.images import file_state, read_image
from excite.jobs import Executor, open_results
from excite.jobs.loop import run
from excite.methods import METHODS, find_method
from excite.vocabulary.labels import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.attention import AttentionMap
    from excite.datasets import Box, Dataset, Sample, Target
    from excite.jobs import Entry
    from excite.jobs.loop import Work
    from excite.models import Classifier
    from excite.vocabulary import Concept


@dataclass(frozen=True)
class Cue:
    """Something to look for in an image, and where it is."""

    concept: Concept
    target: Target

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Where it is."""
        return self.target.boxes


@dataclass(frozen=True)
class Task:
    """An image and what to look for in it."""

    sample: Sample
    cues: tuple[Cue, ...]

    @property
    def name(self) -> str:
        """The image's name within its data set."""
        return self.sample.name

    def key(self, question: str) -> str:
        """Changes when the image, its annotation, what is looked for or the question does."""
        concepts = [asdict(cue.concept) for cue in self.cues]
        annotation = [self.sample.size, *(asdict(target) for target in self.sample.targets)]
        facts = [question, *file_state(self.sample.path), concepts, annotation]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


class Experiment:
    """A classifier and annotated images: which concepts are looked for where.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        skip: leave out so many images first,
        limit: and take so many of the rest; None for all.

    Attributes:
        tasks: the images with something to look for.
        concepts: what the classifier calls each category that occurred; None where it has no word.
        unknown: categories for which the classifier has no word, and how many targets were left out for it.
        difficult: how many targets were left out because all their objects are flagged as difficult.
        empty: how many images have nothing that could be looked for.
        failures: a line for each image or annotation that cannot be read.

    Raises:
        ConceptError: the classifier knows no category of these images.
    """

    def __init__(self, classifier: Classifier, dataset: Dataset, *, skip: int = 0, limit: int | None = None) -> None:
        if skip < 0 or (limit is not None and limit < 1):
            raise DataError(f"skip {skip} and limit {limit} leave no images: give at least 0, and at least 1")
        if classifier.labels is None:
            raise ModelError(f"{classifier.name} has no labels: give it words with excite.wrap(..., labels=...)")
        self.classifier = classifier
        self.dataset = dataset
        self.names = dataset.names[skip:] if limit is None else dataset.names[skip : skip + limit]
        self._labels = classifier.labels
        self.concepts: dict[str, Concept | None] = {}
        self.unknown: Counter[str] = Counter()
        self.difficult = 0
        self.empty = 0
        self.failures: list[str] = []
        self.tasks = list(self._tasks())
        if not self.tasks:
            raise ConceptError(self._nothing())

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

    def check_some_were_read(self, records: object) -> None:
        """Refuse to count nothing."""
        if not records and self.failures:
            raise DataError(f"none of the {len(self.names)} images could be read; the first: {self.failures[0]}")

    def _tasks(self) -> Iterator[Task]:
        """What to look for in each image, and why not for the rest."""
        for name in self.names:
            try:
                sample = self.dataset.sample(name)
            except DataError as error:
                self.failures.append(str(error))
                continue
            cues = tuple(self._cues(sample))
            self.empty += not cues
            if cues:
                yield Task(sample, cues)

    def _cues(self, sample: Sample) -> Iterator[Cue]:
        for target in sample.targets:
            concept = self._concept(target.concept)
            if concept is None:
                self.unknown[target.concept] += 1
            elif target.difficult:
                self.difficult += 1
            else:
                yield Cue(concept, target)

    def _concept(self, category: str) -> Concept | None:
        if category not in self.concepts:
            try:
                self.concepts[category] = self.dataset.concept(category, self._labels)
            except ConceptError:
                self.concepts[category] = None
        return self.concepts[category]

    def _nothing(self) -> str:
        if self.unknown:
            return f"{self.classifier.name} has no word for any category of these images: {listed(list(self.unknown))}"
        reason = f": {self.failures[0]}" if self.failures else ""
        return f"none of these {len(self.names)} images has anything to look for{reason}"


def left_out_words(left_out: Mapping[str, Any]) -> list[str]:
    """What an experiment left out and why, for people to read.

    Example:
        >>> left_out_words({"unknown": {"sheep": 3}, "difficult": 0, "empty": 2})
        ['targets the classifier has no word for: sheep (3)', 'pictures with nothing to look for: 2']
    """
    unknown = Counter(left_out["unknown"]).most_common()
    said = {
        "targets the classifier has no word for": ", ".join(f"{category} ({count})" for category, count in unknown),
        "targets flagged as difficult": left_out["difficult"],
        "pictures with nothing to look for": left_out["empty"],
    }
    return [f"{reason}: {what}" for reason, what in said.items() if what]


def failures_of(abouts: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each image or annotation that could not be read, whichever of several experiments needed it.

    Example:
        >>> failures_of([{"failures": ["a.jpg is empty"]}, {"failures": ["a.jpg is empty", "b.jpg is a folder"]}])
        ['a.jpg is empty', 'b.jpg is a folder']
    """
    return list(dict.fromkeys(failure for about in abouts for failure in about["failures"]))


# What the records of all experiments that compare methods have in common.

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
        records: a record for each image that was looked at.
        dataset_name: the format of the data,
        split: and which part of it.
        about: what was measured and what was left out, as plain values for JSON.
        show: makes all maps of an image's name and a category again, in the order of the record, for drawing.
        target: where the objects are: of an image's name and a category.
    """

    classifier_name: str
    rows: Sequence[Any]
    records: Sequence[Entry]
    dataset_name: str
    split: str
    about: Mapping[str, Any]
    show: Callable[[str, str], Sequence[AttentionMap]]
    target: Callable[[str, str], Target]


# Images to choose on, and others to report on: the best of many is partly the luckiest.


def held_out(names: Iterable[str], share: float, seed: int = 0) -> frozenset[str]:
    """So many of the images to choose on, as if drawn by lot, but the same each time.

    Whichever the other images are, their order among each other depends on their names and the seed only.

    Args:
        names: of all images.
        share: how many of them; at least one image is held out, and one is not.
        seed: another one draws others.

    Raises:
        DataError: there are not two images, or the share is not between 0 and 1.

    Example:
        >>> len(held_out(map(str, range(1000)), share=0.2))
        200
    """
    ordered = sorted(set(names), key=lambda name: _lot(name, seed))
    if len(ordered) < 2:
        raise DataError("too few images to choose thresholds on some and measure on others: give at least 2")
    count = round(checked_share(share) * len(ordered))
    return frozenset(ordered[: min(max(count, 1), len(ordered) - 1)])


def checked_share(share: float) -> float:
    """A share that leaves images on both sides, or an error that says which would.

    Example:
        >>> checked_share(0.2)
        0.2
    """
    if not 0 < share < 1:
        raise DataError(f"a share of {share:g} of the images cannot be held out: give one between 0 and 1, as 0.2")
    return share


def _lot(name: str, seed: int) -> str:
    # the name of a file may hold what is no text
    return hashlib.sha256(f"{seed} {name}".encode("utf-8", "surrogatepass")).hexdigest()


# What experiments compare unless they are told otherwise; here, so that commands can say it without heavy imports.

POINTING_METHODS = "excite,c-mwp,mwp,center"
GROUNDING_METHODS = "excite,c-mwp,mwp,grad,guided,cam,center"  # lrp can be asked for, and is slow
LOCALIZATION_METHODS = "grad,deconv,lrp,cam,grad-cam,mwp,c-mwp,extent"

HELD_OUT = 0.2
"""The share of the images on which thresholds are chosen."""


# Experiments that compare methods on the same images: where each is read, its records, its maps once more.


class Comparison(Experiment):
    """Asks several methods for the same objects of annotated images.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        methods: names from `excite.METHODS`.
        layers: read all methods at these layers, where they can be; None for each method's own place.
        known: without named layers, read methods that may be read anywhere at all of these.
        skip: leave out so many images first,
        limit: and take so many of the rest; None for all.

    Attributes:
        places: where the methods are read, and why some cannot be.
        work: what is done for each image; each kind of comparison has its own.
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
        self.places = ReadableLayers(classifier, chosen, layers, known=known)

    def records(self, out: Path, workers: int | Executor = 1) -> Iterator[Entry]:
        """Ask image by image, kept in ``records.jsonl``: started again, it goes on where it was.

        Args:
            out: the folder for it.
            workers: who does it: how many processes of this machine, or a crew. A cluster keeps ``records.parquet``.
        """
        executor = Executor.of(workers)
        store = open_results(out / "records.jsonl", ("image", "size", "targets"), parquet=executor.is_cluster)
        return run(self.work, self.tasks, store, workers=executor, failures=self.failures)

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        about = super().about()
        about["left_out"]["unreadable"] = self.places.unreadable
        return {
            **about,
            "output": "each place" if self.places.spatial else "the whole image",
            "layers": {method: list(layers) for method, layers in self.places.layers.items()},
        }

    def show(self, image: str, category: str) -> list[AttentionMap]:
        """All maps of a pair once more, in the order of its record, each with its image: for drawing."""
        picture = read_image(self._task(image).sample.path)
        concept = self._cue(image, category).concept
        return [found for _, found in all_maps(self.classifier, picture, [concept], self.places.layers)]

    def target(self, image: str, category: str) -> Target:
        """Where the objects of a category are in an image."""
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
