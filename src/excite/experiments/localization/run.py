"""Localisation: does the box around the strong part of a map fit the queried object? (paper, 4.2)."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from excite.attention import AttentionMap
from excite.datasets import Dataset, Target
from excite.errors import DataError
from excite.experiments import HELD_OUT, LOCALIZATION_METHODS, base
from excite.experiments.base import (
    Comparison,
    ComparisonRun,
    ImageTask,
    Measurement,
    MethodLayer,
    all_maps,
    checked_share,
)
from excite.experiments.report.tables import MethodRow, estimate_fields, methods_of
from excite.images import read_image
from excite.jobs import Entry
from excite.metrics.boxes import ALPHAS, MATCH, as_boxes, box_iou, boxes_over
from excite.metrics.statistics import Estimate, Share, Z, paired_test
from excite.models import Classifier, Preprocess
from excite.readouts.box import component_boxes
from excite.readouts.overlay import upsample

Boxes = NDArray[np.float64]

Measure = Literal["mean", "max", "range"]
Region = Literal["all", "largest", "any"]

SHARES = tuple(k / 50 for k in range(50))  # thresholds in multiples of the map's maximum: 0:0.02:0.98
V2_OVERLAPS = (0.3, 0.5, 0.7)  # the IoUs of a fit: MaxBoxAccV2 is the mean of all three
CANVAS = (224, 224)  # boxes are made on the map at this size, the paper's, whatever the size of the image
DECIMALS = 10**4
NOISE = 1e-6  # of a last decimal: what is exactly a half must not become less by arithmetic


@dataclass(frozen=True)
class Rule:
    """A way from a map to boxes."""

    name: str  # in records and tables
    thresholds: tuple[float, ...]
    # the unit of thresholds: the map's mean, its maximum, or its range (as if it were scaled to 0..1 first)
    of: Measure
    # the boxed pixels: all above the threshold; their largest connected component; or each component, of which the best
    # box counts
    region: Region


RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("paper", ALPHAS, "mean", "all"),
        Rule("largest", ALPHAS, "mean", "largest"),
        Rule("max", SHARES, "max", "all"),
        Rule("max-largest", SHARES, "range", "largest"),
        Rule("any", SHARES, "range", "any"),
    )
}
"""The paper's rule first. The last two are MaxBoxAcc and MaxBoxAccV2 of the public evaluation of weakly supervised
localisation."""


def boxes_of(stretched: Tensor) -> dict[str, list[Boxes]]:
    """The boxes ``[n, 4]`` of each rule at each of its thresholds; none where nothing is above it."""
    low, high = stretched.aminmax()
    zero, mean = torch.zeros_like(low), stretched.mean().clamp(min=0)
    units = {"mean": (zero, mean), "max": (zero, high), "range": (low, high - low)}
    components: dict[tuple[Measure, tuple[float, ...]], list[Boxes]] = {}  # rules may share them
    found: dict[str, list[Boxes]] = {}
    for rule in RULES.values():
        start, unit = units[rule.of]
        levels = start + torch.tensor(rule.thresholds, dtype=stretched.dtype) * unit
        if rule.region == "all":
            found[rule.name] = [as_boxes([] if box is None else [box]) for box in boxes_over(stretched, levels)]
            continue
        same = rule.of, rule.thresholds
        if same not in components:
            plane = stretched.numpy()
            components[same] = [component_boxes(plane > level)[0].astype(np.float64) for level in levels.numpy()]
        most = 1 if rule.region == "largest" else None  # the largest component comes first
        found[rule.name] = [boxes[:most] for boxes in components[same]]
    return found


def overlaps_of(boxes: Sequence[Boxes], truth: Boxes) -> list[float]:
    """For each threshold the IoU of its best box with the best true box; 0 where there is no box.

    Four decimals, rounded down without crossing a multiple: an IoU of exactly a half stays one when it is read again.
    """
    best = np.zeros(len(boxes))
    owners = np.repeat(np.arange(len(boxes)), [len(each) for each in boxes])
    np.maximum.at(best, owners, box_iou(np.concatenate(boxes), truth).max(axis=1))
    rounded: list[float] = (np.floor(best * DECIMALS + NOISE) / DECIMALS).tolist()
    return rounded


@dataclass(frozen=True)
class RuleResult:
    """The error of one rule for one method."""

    rule: str  # a name of `RULES`
    threshold: float  # with the smallest error on the held-out images; of equals the first
    error: Share  # the share of pairs on the other images whose box does not fit at that threshold
    curve: tuple[float, ...]  # the error in percent on those other images, at each threshold

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the curve."""
        return {"threshold": self.threshold, **estimate_fields("error", self.error.percent)}


@dataclass(frozen=True)
class LocalizationRow(MethodRow):
    """The errors of one method at one layer of one network, on the images that are not held out."""

    rules: Mapping[str, RuleResult]  # the result of each rule, the paper's first
    # MaxBoxAcc: the percentage of fits of the largest component's box at the best of all thresholds. It is chosen on
    # the reported images, so it is a little too good, as in all publications
    max_box_acc: float
    max_box_acc_v2: Mapping[float, float]  # the same for the best component's box, for each IoU of `V2_OVERLAPS`
    empty: int  # number of maps without any box
    chosen: Share  # the error by the paper's rule on the held-out images

    @property
    def alpha(self) -> float:
        """The threshold of the paper's rule, in means of the map."""
        return self.rules["paper"].threshold

    @property
    def error(self) -> Share:
        """The error by the paper's rule."""
        return self.rules["paper"].error

    @property
    def all_empty(self) -> bool:
        """Whether no map has a box."""
        return self.empty == self.error.total

    @property
    def v2_mean(self) -> float:
        """MaxBoxAccV2, in percent."""
        return sum(self.max_box_acc_v2.values()) / len(self.max_box_acc_v2)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: percentages with two decimals."""
        return {
            **self.names,
            "alpha": self.alpha,
            **estimate_fields("error", self.error.percent),
            "pairs": self.error.total,
            "rules": {name: result.to_dict() for name, result in self.rules.items()},
            "max_box_acc": round(self.max_box_acc, 2),
            "max_box_acc_v2": {
                "mean": round(self.v2_mean, 2),
                **{f"{overlap}": round(value, 2) for overlap, value in self.max_box_acc_v2.items()},
            },
            "empty": self.empty,
        }


@dataclass(frozen=True)
class LocalizationRun(ComparisonRun):
    """One network's localisation; its records include the held-out images."""

    rows: Sequence[LocalizationRow]  # from `tally`
    reported: frozenset[str]  # the names of the images that the rows are about

    @property
    def told(self) -> Sequence[LocalizationRow]:
        """The rows of the main table: of a method read at several layers the best, unless layers were named."""
        return best_layers(self.rows) if self.about.get("layer_chosen") else self.rows


@dataclass(frozen=True)
class Difference(Estimate):
    """The difference in error of two methods on the same images, in points; below 0, the first is better."""

    p: float  # of McNemar's test (`excite.metrics.statistics.paired_test`)


@dataclass(frozen=True)
class SplitMaps:
    """The records of the maps of one method at one layer, on the held-out and on the reported images."""

    key: MethodLayer  # the method and the layer
    held_out: Sequence[Entry]  # maps of the held-out images
    reported: Sequence[Entry]  # maps of the reported images

    def chosen(self, rule: str) -> int:
        """The index of the threshold with the smallest error on held-out images; of equals the first."""
        return int(_missed(self.held_out, rule).mean(axis=0).argmin())

    def misses(self, rule: str) -> NDArray[np.bool_]:
        """Which reported pairs are missed at the chosen threshold."""
        return _missed(self.reported, rule)[:, self.chosen(rule)]

    def curve(self, rule: str, enough: float = MATCH) -> tuple[float, ...]:
        """The error in percent on the reported images at each threshold, with that IoU for a fit."""
        return tuple((100 * _missed(self.reported, rule, enough).mean(axis=0)).tolist())

    def row(self, model: str) -> LocalizationRow:
        """The row of the table."""
        rules = {}
        for name, rule in RULES.items():
            threshold, misses = rule.thresholds[self.chosen(name)], self.misses(name)
            rules[name] = RuleResult(name, threshold, _share(misses), self.curve(name))
        v2 = {enough: 100 - min(self.curve("any", enough)) for enough in V2_OVERLAPS}
        empty = sum(found["boxes"][0] is None for found in self.reported)
        held_out = _share(_missed(self.held_out, "paper")[:, self.chosen("paper")])
        return LocalizationRow(model, *self.key, rules, 100 - min(rules["max-largest"].curve), v2, empty, held_out)


def _missed(maps: Iterable[Entry], rule: str, enough: float = MATCH) -> NDArray[np.bool_]:
    """Which maps miss at which threshold, [maps, thresholds]."""
    missed: NDArray[np.bool_] = np.array([found["overlaps"][rule] for found in maps]) < enough
    return missed


def _share(misses: NDArray[np.bool_]) -> Share:
    return Share(int(misses.sum()), len(misses))


def split_maps(records: Sequence[Entry], reported: Collection[str]) -> list[SplitMaps]:
    """For each method and layer its maps of held-out and of reported images; a `DataError` if one side has none."""
    keys = base.common_method_layers(target for record in records for target in record["targets"])
    sides = [[one for one in records if (one["image"] in reported) is side] for side in (False, True)]
    if not all(sides):
        raise DataError("thresholds are chosen on some images and told of others: there are none on one of the sides")
    held, told = (base.maps_by_method(target for one in side for target in one["targets"]) for side in sides)
    return [SplitMaps(key, held[key], told[key]) for key in keys]


def tally(records: Sequence[Entry], model: str, reported: Collection[str]) -> list[LocalizationRow]:
    """A row for each method and layer, in the order of the records; see `split_maps`."""
    return [maps.row(model) for maps in split_maps(records, reported)]


def best_layers(rows: Sequence[LocalizationRow]) -> list[LocalizationRow]:
    """For each method of a network the layer with the smallest error on the held-out images."""
    return [
        min((row for row in rows if row.method == method), key=lambda row: row.chosen.value)
        for method in methods_of(rows)
    ]


def difference(records: Sequence[Entry], reported: Collection[str], one: MethodLayer, other: MethodLayer) -> Difference:
    """The error of ``one`` less that of ``other`` (each a method and a layer), on the reported images.

    It is paired, so its interval is narrower than theirs; the standard error is clustered by image.
    """
    return next(differences(records, reported, [(one, other)]))


def differences(
    records: Sequence[Entry], reported: Collection[str], pairs: Iterable[tuple[MethodLayer, MethodLayer]]
) -> Iterator[Difference]:
    """The same for each of some pairs."""
    missed = {each.key: each.misses("paper") for each in split_maps(records, reported)}
    targets = [len(record["targets"]) for record in records if record["image"] in reported]
    image = np.repeat(np.arange(len(targets)), targets)  # of each pair of an image and a category
    for pair in pairs:
        one, other = (missed[key] for key in pair)
        gaps = one.astype(int) - other
        strays = np.bincount(image, weights=gaps - gaps.mean())
        error = math.sqrt((strays**2).sum() * len(strays) / max(len(strays) - 1, 1)) / len(gaps)
        value, half = float(gaps.mean()), Z * error
        p = paired_test(one.tolist(), other.tolist())
        yield Difference(100 * value, 100 * (value - half), 100 * (value + half), p)


@dataclass(frozen=True, eq=False)
class BoxMeasurement(Measurement):
    """Computes the record of an image: the boxes of each map and their IoU with the truth."""

    def facts(self) -> list[Any]:
        """The layers, and the rules of boxes."""
        return ["localization", self.layers, CANVAS, [asdict(rule) for rule in RULES.values()]]

    def __call__(self, task: ImageTask) -> dict[str, Any]:
        """The record of an image."""
        picture = read_image(task.sample.path)
        task.sample.check_size(picture.size)
        targets: list[dict[str, Any]] = [
            {"category": each.target.concept, "truth": [list(box) for box in each.target.boxes], "maps": []}
            for each in task.queries
        ]
        for k, found in all_maps(self.classifier, picture, [query.concept for query in task.queries], self.layers):
            targets[k]["maps"].append(_boxed(found, task.queries[k].target))
        return {"image": task.name, "size": list(picture.size), "targets": targets}


def _boxed(found: AttentionMap, target: Target) -> dict[str, Any]:
    width, height = found.image_size
    scale = np.array([width / CANVAS[0], height / CANVAS[1]] * 2)  # back to the image's own pixels
    boxes = {
        rule: [each * scale for each in made]
        for rule, made in boxes_of(upsample(found.values.clamp(min=0), CANVAS)).items()
    }
    truth = np.array(target.boxes)
    return {
        "method": found.method,
        "layer": found.layer,
        "boxes": [each[0].round(2).tolist() if len(each) else None for each in boxes["paper"]],
        "overlaps": {rule: overlaps_of(made, truth) for rule, made in boxes.items()},
    }


def squared(classifier: Classifier) -> Classifier:
    """The same classifier, which sees every image squashed to a square; its map still covers the whole image."""
    usual = classifier.preprocess
    square = replace(usual, square=True) if isinstance(usual, Preprocess) else _SquarePreprocess(usual)
    return replace(classifier, preprocess=square)


@dataclass(frozen=True, repr=False)
class _SquarePreprocess:
    """A user's preprocessing, after the image was resized to a square of its shorter side."""

    after: Callable[[Image.Image], Tensor]

    def __call__(self, picture: Image.Image) -> Tensor:
        side = min(picture.size)
        return self.after(picture.resize((side, side), Image.Resampling.BICUBIC))

    def __repr__(self) -> str:
        """The same in every process, also for a function: it is part of the records' keys."""
        return f"squashed {getattr(self.after, '__qualname__', repr(self.after))}"


class Localization(Comparison):
    """Boxes the objects of annotated images with several methods, and counts the boxes that fit.

    Without named ``layers``, methods that may be read anywhere are read at the classifier's two best layers, and the
    better one is chosen on held-out images: the best layer for boxes is not that for points.
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
        self.share, self.seed = checked_share(held_out), seed
        self.own_shape = own_shape
        shown = classifier if own_shape else squared(classifier)
        super().__init__(shown, dataset, methods, layers=layers, known=classifier.layers[:2], skip=skip, limit=limit)
        self.named = layers is not None
        self.work = BoxMeasurement(shown, self.places.layers)

    def reported(self, records: Sequence[Entry]) -> frozenset[str]:
        """The images that are not held out."""
        names = frozenset(record["image"] for record in records)
        return names - base.held_out(names, self.share, self.seed)

    def rows(self, records: Sequence[Entry]) -> list[LocalizationRow]:
        """The rows of the table; see `tally`."""
        self.check_some_were_read(records)
        return tally(records, self.classifier.name, self.reported(records))

    def run(self, records: Sequence[Entry]) -> LocalizationRun:
        """The results for tables and figures."""
        rows, reported = self.rows(records), self.reported(records)
        about = {**self.about(), "held_out_pictures": len(records) - len(reported), "reported": len(reported)}
        name, data = self.classifier.name, self.dataset
        return LocalizationRun(name, rows, records, data.name, data.split, about, self.show, self.target, reported)

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
