"""What all experiments share: queries on annotated images, their maps, records, runs and held-out images."""

from __future__ import annotations

import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from PIL import Image

from excite import __version__, errors
from excite.errors import ConceptError, DataError, LayerError, ModelError
from excite.images import file_state, read_image
from excite.io.cache import fingerprint
from excite.jobs import Entry, Executor, ResultStore
from excite.jobs.loop import Work, answered
from excite.methods import METHODS, Method, find_method
from excite.models.classifier import identity
from excite.session import Session, recommended_layers
from excite.vocabulary.labels import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.attention import AttentionMap
    from excite.datasets import Dataset, Sample, Target
    from excite.models import Classifier
    from excite.session import Cue
    from excite.vocabulary import Concept, Labels

MethodLayer = tuple[str, str]
"""A method and the layer at which it is read."""
BLANK = (256, 256)
SAME_EVERYWHERE = {"center"}  # reads nothing of the network, so one row will do
UNREADABLE = (LayerError, errors.MethodError, errors.NoRuleError, errors.SignalError)


# The maps of one image, and the layers at which they can be read.


def open_session(
    classifier: Classifier,
    image: Image.Image,
    methods: Sequence[Method],
    layers: Sequence[str] | Mapping[Method, Sequence[str]],
) -> Session:
    """The session of one image at all scales and layers that these methods need."""
    scales = dict.fromkeys([1.0, *(scale for method in methods for scale in method.scales)])
    inputs = {scale: classifier.prepared(image, scale)[None] for scale in scales}
    return Session(classifier, inputs, methods, layer=layers)


def maps_of(session: Session, method: Method, concepts: Sequence[Cue], image: Image.Image) -> list[AttentionMap]:
    """The maps of these concepts, the layers of one concept together; without warnings about lost signals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.LostSignalWarning)
        (maps,) = session.attend(method, [concepts], [image])
    return maps


def all_maps(
    classifier: Classifier, image: Image.Image, concepts: Sequence[Concept], layers: Mapping[str, Sequence[str]]
) -> Iterator[tuple[int, AttentionMap]]:
    """All maps, each with the number of its concept; those of one concept in the order of methods and layers."""
    methods = {find_method(name): named for name, named in layers.items()}
    session = open_session(classifier, image, list(methods), methods)
    for method, named in methods.items():
        for k, found in enumerate(maps_of(session, method, concepts, image)):
            yield k // len(named), found


class ReadableLayers:
    """The layers at which each method is read on a network: those that were named, or its recommended one.

    They are tried on a blank image. A method that cannot be read at any of the named layers (CAM has one layer only) is
    read at its recommended one; one that cannot be read at all is left out, with the reason. Without names, methods
    that can be read anywhere are read at all ``known`` layers. If no method can be read, or none at a layer that was
    named, that error is raised.
    """

    def __init__(
        self,
        classifier: Classifier,
        methods: Sequence[Method],
        named: Sequence[str] | None = None,
        *,
        known: Sequence[str] = (),
    ) -> None:
        self._classifier = classifier
        self._image = Image.new("RGB", BLANK)
        self._refused: dict[MethodLayer, errors.ExciteError] = {}
        self.spatial = False  # whether the network has an output for each position of the image
        self.layers: dict[str, tuple[str, ...]] = {}  # of each method that can be read
        for method in methods:
            asked = () if method.name in SAME_EVERYWHERE else dict.fromkeys(named or ())
            readable = self._readable(method, asked) or self._readable(method, self._own_layers(method, known))
            if readable:
                self.layers[method.name] = readable
        read = {layer for layers in self.layers.values() for layer in layers}
        for (_, layer), error in self._refused.items():
            if not self.layers or (layer in (named or ()) and layer not in read):
                raise error
        self.unreadable = {f"{method} at {layer}": str(error) for (method, layer), error in self._refused.items()}

    def _readable(self, method: Method, layers: Iterable[str]) -> tuple[str, ...]:
        return tuple(layer for layer in layers if self._reads(method, layer))

    def _reads(self, method: Method, layer: str) -> bool:
        try:
            session = open_session(self._classifier, self._image, [method], [layer])
            maps_of(session, method, [0], self._image)
        except UNREADABLE as error:
            self._refused[method.name, layer] = error
            return False
        self.spatial = session.output.dim() == 4
        return True

    def _own_layers(self, method: Method, known: Sequence[str]) -> Sequence[str]:
        if known and method.place == "layer" and method.name not in SAME_EVERYWHERE:
            return known
        try:
            return recommended_layers(method, self._classifier, self._classifier.prepared(self._image)[None])
        except LayerError as error:
            self._refused[method.name, "its own place"] = error
            return ()


# The record of each image.


@dataclass(frozen=True)
class Query:
    """A concept to look for in an image, and the annotated objects."""

    concept: Concept
    target: Target


@dataclass(frozen=True)
class ImageTask:
    """An image and its queries."""

    sample: Sample
    queries: tuple[Query, ...]

    @property
    def name(self) -> str:
        """The image's name within its data set."""
        return self.sample.name

    def key(self, question: str) -> str:
        """A digest of the image, its annotation, the queries and the question."""
        concepts = [asdict(query.concept) for query in self.queries]
        annotation = [self.sample.size, *(asdict(target) for target in self.sample.targets)]
        return fingerprint([question, *file_state(self.sample.path), concepts, annotation])


@dataclass(frozen=True, eq=False)
class Measurement(ABC):
    """Computes the record of an image; a subclass adds what else the record depends on."""

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]  # for each method, by name, the layers at which it is read
    question: str = field(init=False)  # all that records depend on besides the image, as text

    def __post_init__(self) -> None:
        facts = [*self.facts(), __version__, identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    @abstractmethod
    def facts(self) -> Sequence[Any]:
        """What records depend on, as plain values, besides the image, the classifier and the version."""

    @abstractmethod
    def __call__(self, task: Any) -> dict[str, Any]:
        """The record of an image."""

    def key(self, task: Any) -> str:
        """A digest of the image, its annotation and the question."""
        return str(task.key(self.question))


def image_records(
    work: Work[Any],
    tasks: Sequence[Any],
    path: Path,
    fields: Sequence[str],
    *,
    workers: int | Executor,
    failures: list[str],
    writes: Path | None = None,
) -> Iterator[Entry]:
    """The record of each task, kept in a file of JSON lines (on a cluster a Parquet folder beside it).

    An interrupted run resumes where it stopped. ``failures`` gets a line for each unreadable image or annotation;
    ``writes`` is a folder that the work itself writes to.
    """
    executor = Executor.of(workers)
    store = ResultStore(path, fields, parquet=executor.is_cluster)
    pairs = answered(work, tasks, store, workers=executor, failures=failures, writes=writes)
    with closing(pairs):  # otherwise, after an error of the caller, workers would go on with the rest
        for _, entry in pairs:
            yield entry


def selected(names: Sequence[str], skip: int, limit: int | None) -> Sequence[str]:
    """The images after the first ``skip``, at most ``limit`` of them."""
    if skip < 0 or (limit is not None and limit < 1):
        raise DataError(f"skip {skip} and limit {limit} leave no images: give at least 0, and at least 1")
    return names[skip:] if limit is None else names[skip : skip + limit]


def check_some_were_read(records: object, asked: int, failures: Sequence[str], why: str = "") -> None:
    """Raise a `DataError` if no image could be read."""
    if not records:
        first = f"; the first: {failures[0]}" if failures else ""
        raise DataError(f"none of the {asked} images {why}could be read{first}")


def labels_of(classifier: Classifier) -> Labels:
    """The words of a classifier; a `ModelError` if it has none."""
    if classifier.labels is None:
        raise ModelError(f"{classifier.name} has no labels: give it a file of words (--labels FILE)")
    return classifier.labels


class Experiment:
    """A classifier and annotated images, from the first ``skip`` on at most ``limit``: the queries on each image.

    A `ConceptError` is raised if the classifier knows no category of these images.
    """

    def __init__(self, classifier: Classifier, dataset: Dataset, *, skip: int = 0, limit: int | None = None) -> None:
        self.names = selected(dataset.names, skip, limit)
        self.classifier, self.dataset, self._labels = classifier, dataset, labels_of(classifier)
        self.concepts: dict[str, Concept | None] = {}  # of each category that occurred; None where there is no word
        self.unknown: Counter[str] = Counter()  # targets left out because the classifier has no word
        self.difficult = self.empty = 0  # targets left out as all their objects are difficult; images without a query
        self.failures: list[str] = []  # a line for each unreadable image or annotation
        self.tasks = list(self._tasks())  # the images with at least one query
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
        """Raise a `DataError` if no image could be read."""
        check_some_were_read(records, len(self.names), self.failures)

    def _tasks(self) -> Iterator[ImageTask]:
        for name in self.names:
            try:
                sample = self.dataset.sample(name)
            except DataError as error:
                self.failures.append(str(error))
                continue
            queries = tuple(self._queries(sample))
            self.empty += not queries
            if queries:
                yield ImageTask(sample, queries)

    def _queries(self, sample: Sample) -> Iterator[Query]:
        for target in sample.targets:
            concept = self._concept(target.concept)
            if concept is None:
                self.unknown[target.concept] += 1
            elif target.difficult:
                self.difficult += 1
            else:
                yield Query(concept, target)

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


class Comparison(Experiment):
    """Applies several methods to the same objects of annotated images, at ``layers`` as for `ReadableLayers`."""

    work: Work[ImageTask]  # computes the record of an image; set by each subclass

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
        """The record of each image, kept in ``records.jsonl``; see `image_records`."""
        path, fields = out / "records.jsonl", ("image", "size", "targets")
        return image_records(self.work, self.tasks, path, fields, workers=workers, failures=self.failures)

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
        """The maps of an image and a category, computed again in the order of the record, for drawing."""
        sample, query = self._asked(image, category)
        maps = all_maps(self.classifier, read_image(sample.path), [query.concept], self.places.layers)
        return [found for _, found in maps]

    def target(self, image: str, category: str) -> Target:
        """The annotated objects of a category in an image."""
        return self._asked(image, category)[1].target

    def _asked(self, image: str, category: str) -> tuple[Sample, Query]:
        task = next(task for task in self.tasks if task.name == image)
        return task.sample, next(query for query in task.queries if query.target.concept == category)


@dataclass(frozen=True)
class ExperimentRun:
    """The results of one network, with all that tables and figures need."""

    classifier_name: str
    rows: Sequence[Any]  # of the table
    records: Sequence[Entry]  # one for each image
    dataset_name: str  # the format of the data
    split: str  # the part of the data
    about: Mapping[str, Any]  # what was measured and what was left out, as plain values for JSON
    show: Callable[..., Any]  # computes the maps of an example again, for drawing


@dataclass(frozen=True)
class ComparisonRun(ExperimentRun):
    """The run of a `Comparison`."""

    target: Callable[[str, str], Target]  # the annotated objects of an image's name and a category


# What is read from the records.


def method_layer(found: Entry) -> MethodLayer:
    """The method and the layer of a map's record."""
    return found["method"], found["layer"]


def common_method_layers(targets: Iterable[Entry]) -> Sequence[MethodLayer]:
    """The methods and layers of all pairs; a `DataError` if not all have the same, as denominators would be wrong."""
    found = {tuple(map(method_layer, target["maps"])) for target in targets}
    if len(found) > 1:
        raise DataError("these records are of different methods or layers: count those of one game at a time")
    return next(iter(found), ())


def maps_by_method(targets: Iterable[Entry]) -> dict[MethodLayer, list[Entry]]:
    """The records of the maps of each method and layer, in the order of the targets."""
    maps: dict[MethodLayer, list[Entry]] = defaultdict(list)
    for found in (found for target in targets for found in target["maps"]):
        maps[method_layer(found)].append(found)
    return maps


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What an experiment left out and why, as sentences."""
    unknown = Counter(left_out["unknown"]).most_common()
    reasons = {
        "targets the classifier has no word for": ", ".join(f"{category} ({count})" for category, count in unknown),
        "targets flagged as difficult": left_out["difficult"],
        "images with nothing to look for": left_out["empty"],
        "categories without any pair": ", ".join(left_out.get("no_pairs", ())),
        "categories without a difficult pair, no part of that mean": ", ".join(left_out.get("no_difficult_pairs", ())),
        "methods that cannot be read there (rows.json says why)": ", ".join(left_out.get("unreadable", ())),
    }
    return [f"{reason}: {what}" for reason, what in reasons.items() if what]


def hash_of(name: str, seed: int) -> str:
    """A pseudo-random number of a name, in hexadecimal; a file name may hold bytes that are no text."""
    return hashlib.sha256(f"{seed} {name}".encode("utf-8", "surrogatepass")).hexdigest()


def held_out(names: Iterable[str], share: float, seed: int = 0) -> frozenset[str]:
    """The images to choose on, a pseudo-random share: the scores of a choice on its own images are biased."""
    ordered = sorted(set(names), key=lambda name: hash_of(name, seed))
    if len(ordered) < 2:
        raise DataError("too few images to choose thresholds on some and measure on others: give at least 2")
    count = round(checked_share(share) * len(ordered))
    return frozenset(ordered[: min(max(count, 1), len(ordered) - 1)])


def checked_share(share: float) -> float:
    """The share, if it leaves images on both sides."""
    if not 0 < share < 1:
        raise DataError(f"a share of {share:g} of the images cannot be held out: give one between 0 and 1, as 0.2")
    return share


def chosen_methods(names: str) -> list[str]:
    """The methods of a comma-separated list, or ``all``."""
    if names.strip() == "all":
        return list(METHODS)
    return [find_method(name.strip()).name for name in names.split(",")]
