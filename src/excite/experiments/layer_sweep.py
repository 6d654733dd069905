"""Which layer shall a classifier be read at? Measured on annotated images (the paper's layer selection effects)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image

from excite import __version__
from excite.errors import DataError
from excite.experiments.base import Experiment
from excite.experiments.readable_layers import maps_of, open_session
from excite.images import read_image
from excite.jobs import Executor, open_results
from excite.jobs.loop import run
from excite.methods import find_method
from excite.metrics.boxes import ALPHAS, box_distance, boxes_above, overlap
from excite.metrics.statistics import Share, paired_test
from excite.models.classifier import identity
from excite.models.layers import candidate_layers
from excite.readouts.upsample import upsample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.attention import AttentionMap
    from excite.datasets import Box, Dataset
    from excite.experiments.base import Task
    from excite.jobs import Entry
    from excite.models import Classifier


# What the records of a layer sweep say: chosen on one half of the images, told of the other half.

By = Literal["pointing", "box"]
Place = tuple[str, str]  # a method and a layer

ENOUGH_OVERLAP = 0.5
SIGNIFICANT = 0.05
NO_BOXES = "boxes are measured where each image has one main object, as in ImageNet: choose by pointing here"


@dataclass(frozen=True)
class Row:
    """What one method is worth at one layer, on the images that no choice was made on.

    Attributes:
        method: its name.
        layer: its name.
        size: height and width of the map of a square image.
        pointing: how many targets the maximum point hit.
        box_error: how many boxes overlap by less than a half with the object; None where no box was asked for.
        alpha: the threshold of those boxes.
        mass: how much of the signal arrives, on average.
        standing: "recommended"; "tied" when these images cannot tell it from that; "better" or "worse" otherwise.
    """

    method: str
    layer: str
    size: tuple[int, int]
    pointing: Share
    box_error: Share | None
    alpha: float | None
    mass: float
    standing: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "method": self.method,
            "layer": self.layer,
            "size": list(self.size),
            "pointing": _plain(self.pointing),
            "box_error": None if self.box_error is None else _plain(self.box_error),
            "alpha": self.alpha,
            "mass": self.mass,
            "standing": self.standing,
        }


@dataclass(frozen=True)
class LayerReport:
    """The rows of the table, and which of them is recommended.

    Attributes:
        rows: for each method its layers, from the image up.
        by: the measure it was chosen by.
        tolerance: how many pixels beside a box a point may lie.
        chosen_on: how many targets the choice was made on; the rows are about the others.
        best: for each method the layer that was best where the choice was made.
    """

    rows: tuple[Row, ...]
    by: By
    tolerance: float
    chosen_on: int
    best: Mapping[str, str]

    @property
    def recommended(self) -> Row:
        """The row of the method and layer that was best where the choice was made."""
        return next(row for row in self.rows if row.standing == "recommended")

    def measure(self, row: Row) -> Share:
        """The measure that rows are compared by."""
        return row.pointing if self.by == "pointing" or row.box_error is None else row.box_error

    def sentences(self) -> list[str]:
        """What there is to learn, in plain words."""
        row = self.recommended
        share = self.measure(row)
        what = "of the targets are hit" if self.by == "pointing" else "of the boxes miss the object"
        chosen = f"recommended: {row.layer} with {row.method}, best on {self.chosen_on} targets"
        said = [
            f"{chosen}; on {share.total} others, {100 * share.value:.1f} % {what} (95 % interval {_interval(share)})"
        ]
        tied, better = self._with("tied"), self._with("better")
        if tied:
            said.append(f"these images cannot tell it from: {tied} (paired test, 5 %)")
        if better:
            said.append(f"on the others, {better} did better than what was chosen: measure on more images")
        rest = [f"{layer} for {method}" for method, layer in self.best.items() if method != row.method]
        return [*said, f"chosen likewise: {', '.join(rest)}"] if rest else said

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        row = self.recommended
        return {
            "recommended": {"method": row.method, "layer": row.layer, "alpha": row.alpha},
            "by": self.by,
            "tolerance": self.tolerance,
            "chosen_on": self.chosen_on,
            "measured_on": row.pointing.total,
            "best": dict(self.best),
            "conclusions": self.sentences(),
            "rows": [row.to_dict() for row in self.rows],
        }

    def _with(self, standing: str) -> str:
        """The methods and layers of that standing, as words."""
        said = []
        for method in self.best:
            rows = [row for row in self.rows if row.method == method]
            layers = [row.layer for row in rows if row.standing == standing]
            every = len(layers) == len(rows) > 2
            said += [f"{method} at {'every layer' if every else ', '.join(layers)}"] if layers else []
        return "; ".join(said)


def report(
    records: Iterable[Entry],
    layers: Mapping[str, tuple[int, int]],
    *,
    tolerance: float,
    by: By = "pointing",
    seed: int = 0,
) -> LayerReport:
    """Choose method, layer and alpha on one half of the images, and tell what they are worth on the other half.

    Which half an image is in depends on its name and the seed only. A figure told of the images it was chosen on
    would be too good: the best of many is partly the luckiest.

    Args:
        records: from `LayerSweep.records`.
        layers: their maps' sizes, as in `LayerSweep.layers`.
        tolerance: how many pixels beside a box a point may lie and still be a hit.
        by: "pointing", or "box" for data with one main object an image.
        seed: another one shares the images out differently.

    Raises:
        DataError: there are too few images to share out, or boxes were not measured.
    """
    halves: tuple[list[Entry], list[Entry]] = ([], [])
    for record in records:
        halves[_half(record["image"], seed)].extend(record["targets"])
    if not all(halves):
        raise DataError("too few images to choose on one half and measure on the other: give more")
    chosen_on, measured_on = (_by_place(half, tolerance) for half in halves)
    alphas = {place: outcome.best_alpha() for place, outcome in chosen_on.items()}
    score = {place: sum(outcome.successes(by, alphas[place])) for place, outcome in chosen_on.items()}
    winner = _best(score)
    successes = {place: outcome.successes(by, alphas[place]) for place, outcome in measured_on.items()}
    rows = tuple(
        outcome.row(
            *place,
            size=layers[place[1]],
            alpha=alphas[place],
            standing="recommended" if place == winner else _standing(successes[place], successes[winner]),
        )
        for place, outcome in measured_on.items()
    )
    methods = dict.fromkeys(method for method, _ in score)
    best = {one: _best({place: hits for place, hits in score.items() if place[0] == one})[1] for one in methods}
    return LayerReport(rows, by, tolerance, len(halves[0]), best)


@dataclass(frozen=True)
class _Outcome:
    """What one method gave at one layer, on one half of the images."""

    maps: Sequence[Entry]
    tolerance: float

    def hits(self) -> list[bool]:
        return [found["distance"] is not None and found["distance"] <= self.tolerance for found in self.maps]

    def fits(self, alpha: int) -> list[bool]:
        return [found["overlaps"][alpha] >= ENOUGH_OVERLAP for found in self.maps]

    def successes(self, by: By, alpha: int | None) -> list[bool]:
        if by == "pointing":
            return self.hits()
        if alpha is None:
            raise DataError(NO_BOXES)
        return self.fits(alpha)

    def best_alpha(self) -> int | None:
        """Which of the thresholds fits most objects; of equals the first. None where no boxes were measured."""
        if "overlaps" not in self.maps[0]:
            return None
        return max(range(len(ALPHAS)), key=lambda alpha: sum(self.fits(alpha)))

    def row(self, method: str, layer: str, *, size: tuple[int, int], alpha: int | None, standing: str) -> Row:
        return Row(
            method=method,
            layer=layer,
            size=size,
            pointing=_share(self.hits()),
            box_error=None if alpha is None else _share([not fit for fit in self.fits(alpha)]),
            alpha=None if alpha is None else ALPHAS[alpha],
            mass=sum(found["mass"] for found in self.maps) / len(self.maps),
            standing=standing,
        )


def _half(name: str, seed: int) -> int:
    """0 or 1, as if by the toss of a coin, but the same each time."""
    return hashlib.sha256(f"{seed} {name}".encode()).digest()[0] % 2


def _by_place(targets: Iterable[Entry], tolerance: float) -> dict[Place, _Outcome]:
    """For each method and layer its maps, in the order of the targets."""
    maps: dict[Place, list[Entry]] = {}
    for target in targets:
        for found in target["maps"]:
            maps.setdefault((found["method"], found["layer"]), []).append(found)
    return {place: _Outcome(found, tolerance) for place, found in maps.items()}


def _best(score: Mapping[Place, int]) -> Place:
    """The place with the most successes; of equals the last, from where the way down is the shortest."""
    return max(reversed(list(score)), key=score.__getitem__)


def _standing(one: Sequence[bool], chosen: Sequence[bool]) -> str:
    if paired_test(one, chosen) >= SIGNIFICANT:
        return "tied"
    return "better" if sum(one) > sum(chosen) else "worse"


def _share(outcomes: Sequence[bool]) -> Share:
    return Share(sum(outcomes), len(outcomes))


def _interval(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _plain(share: Share) -> dict[str, float]:
    low, high = share.interval
    return {"value": share.value, "low": low, "high": high, "count": share.count, "total": share.total}


# What is measured of an image, in one look at it.
#
# Each image goes through the network once; from that one look come the maps of all its targets, at all layers, by
# all methods. What is written down for a map are facts (how far its maximum lies from the truth, how its boxes
# overlap with it), so that the questions asked of them may change without another look.


@dataclass(frozen=True, eq=False)
class Measuring:
    """The work done for each image."""

    classifier: Classifier
    layers: tuple[str, ...]
    methods: tuple[str, ...]
    with_boxes: bool
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = [self.layers, self.methods, self.with_boxes, ALPHAS, __version__, identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the image, its annotation, the question or the program does."""
        return task.key(self.question)

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the image, and what each map is worth."""
        picture = read_image(task.sample.path)
        methods = [find_method(name) for name in self.methods]
        look = open_session(self.classifier, picture, methods, self.layers)
        targets: list[dict[str, Any]] = [{"concept": cue.concept.name, "maps": []} for cue in task.cues]
        concepts = [cue.concept for cue in task.cues]
        for method in methods:
            for k, found in enumerate(maps_of(look, method, concepts, picture)):  # the layers of one concept together
                target = k // len(self.layers)
                targets[target]["maps"].append(self._worth(found, task.cues[target].boxes))
        return {"image": task.name, "targets": targets}

    def _worth(self, found: AttentionMap, truth: Sequence[Box]) -> dict[str, Any]:
        point = found.point()
        worth = {
            "method": found.method,
            "layer": found.layer,
            "mass": found.mass,
            "distance": None if point is None else min(box_distance(point, box) for box in truth),
        }
        if self.with_boxes:
            empty = point is None
            boxes = [None] * len(ALPHAS) if empty else boxes_above(upsample(found.values, found.image_size))
            worth["overlaps"] = [max(overlap(box, other) for other in truth) if box else 0.0 for box in boxes]
        return worth


# Which layer shall a classifier be read at? Measured on annotated images (the paper's layer selection effects).

METHODS = ("mwp", "c-mwp")
SQUARE = (256, 256)  # the image whose maps' sizes are told


class LayerSweep(Experiment):
    """Measures layers and methods of a classifier on annotated images.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        layers: the layers to try; None for the ends of its blocks.
        methods: names from `excite.METHODS`.
        skip: leave out so many images first,
        limit: and take so many of the rest; None for all.

    Attributes:
        layers: for each layer the height and width of the map of a square image.

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

    def records(self, out: Path, workers: int | Executor = 1) -> Iterator[Entry]:
        """Measure image by image, kept in ``records.jsonl``: started again, it goes on where it was.

        Args:
            out: the folder for it.
            workers: who does it: how many processes of this machine, or a crew. A cluster keeps ``records.parquet``.
        """
        work = Measuring(self.classifier, tuple(self.layers), self.methods, self.dataset.one_main_object)
        executor = Executor.of(workers)
        store = open_results(out / "records.jsonl", ("image", "targets"), parquet=executor.is_cluster)
        return run(work, self.tasks, store, workers=executor, failures=self.failures)

    def report(
        self, records: Sequence[Entry], *, by: str = "pointing", tolerance: float | None = None, seed: int = 0
    ) -> LayerReport:
        """What the records say; see `layer_report.report`. The tolerance is the data set's own when None."""
        self.check_some_were_read(records)
        near = self.dataset.tolerance if tolerance is None else tolerance
        return report(records, self.layers, tolerance=near, by=checked_measure(by, self.dataset), seed=seed)

    def _tried(self, layers: Sequence[str] | None) -> dict[str, tuple[int, int]]:
        """The layers, each seen once to give a map by every method: not after a thousand images."""
        picture = Image.new("RGB", SQUARE)
        methods = [find_method(method) for method in self.methods]
        if layers is None:
            inputs = self.classifier.prepared(picture)[None]
            layers = [layer.name for layer in candidate_layers(self.classifier.module, inputs)]
        look = open_session(self.classifier, picture, methods, list(dict.fromkeys(layers)))
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
