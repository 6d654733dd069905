"""The best layer of a classifier, measured on annotated images (the paper's layer selection effects)."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image

from excite.attention import AttentionMap
from excite.datasets import Box, Dataset
from excite.errors import DataError
from excite.experiments import base
from excite.experiments.report import figures
from excite.images import read_image
from excite.jobs import Entry, Executor
from excite.methods import find_method
from excite.metrics.boxes import ALPHAS, MATCH, box_distance, box_iou, boxes_above
from excite.metrics.removal import replaced
from excite.metrics.statistics import Share, paired_test
from excite.models import Classifier
from excite.models.layers import candidate_layers
from excite.readouts.overlay import upsample

Sizes = Mapping[str, tuple[int, int]]  # of the maps at each layer

By = Literal["pointing", "box", "removal"]

METHODS = ("mwp", "c-mwp")
NO_BOXES = "boxes are measured where each image has one main object, as in ImageNet: choose by pointing here"
REMOVED, LOST = 0.2, 0.5  # the share of the pixels that is removed, and of the probability that may be left after it
MEASURES: Mapping[By, tuple[str, str]] = {  # as a sentence and as a title
    "pointing": ("of the targets are hit", "targets hit [%]"),
    "box": ("of the boxes miss the object", "boxes that miss the object [%]"),
    "removal": ("lose the concept with the strongest fifth of the map", "concepts lost with a fifth of the map [%]"),
}


@dataclass(frozen=True)
class LayerRow:
    """The scores of one method at one layer, on the images that no choice was made on."""

    method: str
    layer: str
    size: tuple[int, int]  # height and width of the map of a square image
    pointing: Share | None  # the share of targets that the maximum hits; None without boxes
    box_error: Share | None  # the share of boxes with an IoU below a half; None where no boxes were measured
    alpha: float | None  # the threshold of those boxes
    mass: float  # the mean share of the signal that arrives
    standing: str  # "recommended"; "tied" if not significantly different from it; "better" or "worse" otherwise
    removal: Share | None = None  # the share of targets lost when the strongest part of the map is removed

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain: dict[str, Any] = vars(self) | {"size": list(self.size)}
        for name in ("pointing", "box_error", "removal"):
            if (share := plain[name]) is not None:
                low, high = share.interval
                counts = {"count": share.count, "total": share.total}
                plain[name] = {"value": share.value, "low": low, "high": high} | counts
        return plain


@dataclass(frozen=True)
class LayerReport:
    """The rows of the table, and which of them is recommended."""

    rows: tuple[LayerRow, ...]  # for each method its layers, from the image up
    by: By  # the measure of the choice
    tolerance: float  # the largest distance in pixels of a hit
    chosen_on: int  # number of targets the choice was made on; the rows are about the others
    best: Mapping[str, str]  # for each method the best layer where the choice was made

    @property
    def recommended(self) -> LayerRow:
        """The row of the method and layer that was best where the choice was made."""
        return next(row for row in self.rows if row.standing == "recommended")

    def measure(self, row: LayerRow) -> Share:
        """The measure that rows are compared by."""
        share = {"pointing": row.pointing, "box": row.box_error, "removal": row.removal}[self.by]
        assert share is not None  # noqa: S101 - `checked_measure` lets nobody choose by what was not measured
        return share

    def sentences(self) -> list[str]:
        """The conclusions."""
        row = self.recommended
        share = self.measure(row)
        what = MEASURES[self.by][0]
        low, high = (f"{100 * end:.1f}" for end in share.interval)
        chosen = f"recommended: {row.layer} with {row.method}, best on {self.chosen_on} targets"
        lines = [f"{chosen}; on {share.total} others, {100 * share.value:.1f} % {what} (95 % interval {low} to {high})"]
        tied, better = self._with("tied"), self._with("better")
        lines += [f"these images cannot tell it from: {tied} (paired test, 5 %)"] if tied else []
        lines += [f"on the others, {better} did better than what was chosen: measure on more images"] if better else []
        rest = [f"{layer} for {method}" for method, layer in self.best.items() if method != row.method]
        return [*lines, f"chosen likewise: {', '.join(rest)}"] if rest else lines

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        row = self.recommended
        return {
            "recommended": {"method": row.method, "layer": row.layer, "alpha": row.alpha},
            "by": self.by,
            "tolerance": self.tolerance,
            "chosen_on": self.chosen_on,
            "measured_on": self.measure(row).total,
            "best": dict(self.best),
            "conclusions": self.sentences(),
            "rows": [row.to_dict() for row in self.rows],
        }

    def _with(self, standing: str) -> str:
        """The methods and layers of that standing, as words."""
        lines = []
        for method in self.best:
            rows = [row for row in self.rows if row.method == method]
            layers = [row.layer for row in rows if row.standing == standing]
            every = len(layers) == len(rows) > 2
            lines += [f"{method} at {'every layer' if every else ', '.join(layers)}"] if layers else []
        return "; ".join(lines)


def report(
    records: Iterable[Entry], layers: Sizes, *, tolerance: float, by: By = "pointing", seed: int = 0
) -> LayerReport:
    """Choose method, layer and alpha on one half of the images, and score them on the other half."""
    halves: tuple[list[Entry], list[Entry]] = ([], [])
    for record in records:
        halves[half_of(record["image"], seed)].extend(record["targets"])
    if not all(halves):
        raise DataError("too few images to choose on one half and measure on the other: give more")
    chosen_on, measured_on = map(base.maps_by_method, halves)
    alphas = {key: _best_alpha(maps) for key, maps in chosen_on.items()}

    def successes(maps: Sequence[Entry], alpha: int | None) -> list[bool]:
        if by == "box" and alpha is None:
            raise DataError(NO_BOXES)
        if by == "removal":
            return _lost(maps)
        return _hits(maps, tolerance) if alpha is None or by == "pointing" else _fits(maps, alpha)

    score = {key: sum(successes(maps, alphas[key])) for key, maps in chosen_on.items()}
    winner = _best(score)
    chosen = successes(measured_on[winner], alphas[winner])
    rows = []
    for key, maps in measured_on.items():
        alpha, total = alphas[key], len(maps)
        hits = Share(sum(_hits(maps, tolerance)), total) if "distance" in maps[0] else None
        lost = Share(sum(_lost(maps)), total) if "left" in maps[0] else None
        error = None if alpha is None else Share(total - sum(_fits(maps, alpha)), total)
        mass = sum(found["mass"] for found in maps) / total
        standing = "recommended" if key == winner else _standing(successes(maps, alpha), chosen)
        threshold = None if alpha is None else ALPHAS[alpha]
        rows.append(LayerRow(*key, layers[key[1]], hits, error, threshold, mass, standing, lost))
    best = {one: _best({key: hits for key, hits in score.items() if key[0] == one})[1] for one, _ in score}
    return LayerReport(tuple(rows), by, tolerance, len(halves[0]), best)


def half_of(name: str, seed: int) -> int:
    """0 or 1, pseudo-random and the same each time."""
    return int(base.hash_of(name, seed)[:2], 16) % 2


def _hits(maps: Sequence[Entry], tolerance: float) -> list[bool]:
    return [found["distance"] is not None and found["distance"] <= tolerance for found in maps]


def _lost(maps: Sequence[Entry]) -> list[bool]:
    return [found["left"] < LOST for found in maps]


def _fits(maps: Sequence[Entry], alpha: int) -> list[bool]:
    return [found["overlaps"][alpha] >= MATCH for found in maps]


def _best_alpha(maps: Sequence[Entry]) -> int | None:
    """The threshold that fits most objects; of equals the first. None where no boxes were measured."""
    measured = range(len(ALPHAS)) if "overlaps" in maps[0] else ()
    return max(measured, key=lambda alpha: sum(_fits(maps, alpha)), default=None)


def _best(score: Mapping[base.MethodLayer, int]) -> base.MethodLayer:
    """The method and layer with the most successes; of equals the last, whose top-down pass is the shortest."""
    return max(reversed(list(score)), key=score.__getitem__)


def _standing(one: Sequence[bool], chosen: Sequence[bool]) -> str:
    if paired_test(one, chosen) >= 0.05:
        return "tied"
    return "better" if sum(one) > sum(chosen) else "worse"


@dataclass(frozen=True, eq=False)
class LayerMeasurement(base.Measurement):
    """Computes the record of an image: all its targets, at all layers, by all methods, from shared forward passes."""

    with_boxes: bool  # whether boxes are measured too
    removing: bool = False  # whether, for want of boxes, the strongest part of each map is removed instead

    def facts(self) -> list[Any]:
        """The layers and methods, and the thresholds of boxes."""
        removing = [REMOVED] if self.removing else []
        return [next(iter(self.layers.values())), list(self.layers), self.with_boxes, ALPHAS, *removing]

    def __call__(self, task: base.ImageTask) -> dict[str, Any]:
        """The record of an image."""
        picture, concepts = read_image(task.sample.path), [query.concept for query in task.queries]
        targets: list[dict[str, Any]] = [{"concept": concept.name, "maps": []} for concept in concepts]
        for k, found in base.all_maps(self.classifier, picture, concepts, self.layers):
            facts = {"method": found.method, "layer": found.layer, "mass": found.mass}
            more = self._left(found, picture) if self.removing else self._facts(found, task.queries[k].target.boxes)
            targets[k]["maps"].append(facts | more)
        return {"image": task.name, "targets": targets}

    def _left(self, found: AttentionMap, picture: Image.Image) -> dict[str, Any]:
        """The share of the concept's probability that is left when the strongest pixels get the mean colour."""
        sharp = self.classifier.prepared(picture)
        order = upsample(found.values, (sharp.shape[2], sharp.shape[1]), "bilinear").flatten().argsort(descending=True)
        both = torch.stack([sharp, replaced(sharp, sharp.mean((1, 2), keepdim=True).expand_as(sharp), order, REMOVED)])
        with torch.no_grad():
            probabilities = self.classifier.probabilities(self.classifier.module(both).float())
        before, after = (self.classifier.chance(one, found.units) for one in probabilities)
        return {"left": after / max(before, 1e-30)}

    def _facts(self, found: AttentionMap, truth: Sequence[Box]) -> dict[str, Any]:
        point = found.point()
        facts: dict[str, Any] = {"distance": None if point is None else min(box_distance(point, box) for box in truth)}
        if self.with_boxes:
            boxes = [None] * len(ALPHAS) if point is None else boxes_above(upsample(found.values, found.image_size))
            facts["overlaps"] = [float(box_iou([box], truth).max()) if box else 0.0 for box in boxes]
        return facts


class LayerSweep(base.Experiment):
    """Measures layers and methods of a classifier on annotated images."""

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
        """The record of each image, kept in ``records.jsonl``; see `excite.experiments.base.image_records`."""
        layers = dict.fromkeys(self.methods, tuple(self.layers))
        work = LayerMeasurement(self.classifier, layers, self.dataset.one_main_object, not self.dataset.has_boxes)
        path, fields = out / "records.jsonl", ("image", "targets")
        return base.image_records(work, self.tasks, path, fields, workers=workers, failures=self.failures)

    def report(
        self, records: Sequence[Entry], *, by: str | None = None, tolerance: float | None = None, seed: int = 0
    ) -> LayerReport:
        """The report on the records; see `report`. The tolerance is the data set's own when None."""
        self.check_some_were_read(records)
        near = self.dataset.tolerance if tolerance is None else tolerance
        return report(records, self.layers, tolerance=near, by=checked_measure(by, self.dataset), seed=seed)

    def _tried(self, layers: Sequence[str] | None) -> dict[str, tuple[int, int]]:
        """The layers, each read once by every method: an error is raised before any work."""
        picture = Image.new("RGB", base.BLANK)  # whose map sizes are listed
        methods = [find_method(method) for method in self.methods]
        if layers is None:
            inputs = self.classifier.prepared(picture)[None]
            layers = [layer.name for layer in candidate_layers(self.classifier.module, inputs)]
        session = base.open_session(self.classifier, picture, methods, list(dict.fromkeys(layers)))
        found = [one for method in methods for one in base.maps_of(session, method, [0], picture)]
        return {one.layer: (one.values.shape[0], one.values.shape[1]) for one in found}


def checked_measure(by: str | None, dataset: Dataset) -> By:
    """The measure of the choice, if these data have it; None for the usual one."""
    usual: By = "pointing" if dataset.has_boxes else "removal"
    measure = next((name for name in MEASURES if name == (by or usual)), None)
    if measure is None:
        raise DataError(f"layers cannot be chosen by {by!r}: choose by {', '.join(MEASURES)}")
    if (measure == "removal") is dataset.has_boxes:
        what = "have boxes" if dataset.has_boxes else "have labels but no boxes"
        raise DataError(f"layers cannot be chosen by {by} here, as these images {what}: choose by {usual}")
    if measure == "box" and not dataset.one_main_object:
        raise DataError(NO_BOXES)
    return measure


def layer_figure(report: LayerReport, title: str, path: Path) -> Path:
    """Draw the measure of each layer with 95 % intervals, a line for each method; the recommended one is marked."""
    layers = {row.layer: f"{row.layer}\n{row.size[0]}x{row.size[1]}" for row in report.rows}
    names, methods = list(layers), list(report.best)
    figure = figures.new_figure(max(5.5, 0.85 * len(layers) + 1.5), 4.4)
    axes = figure.add_subplot()
    ends = []
    for k, method in enumerate(methods):
        rows = [row for row in report.rows if row.method == method]
        offset = 0.14 * (k - (len(methods) - 1) / 2)  # so that intervals do not overlap
        xs, values = [names.index(row.layer) + offset for row in rows], [report.measure(row).percent for row in rows]
        figures.line(axes, xs, values, method, k)
        if report.recommended in rows:
            at = rows.index(report.recommended)
            ring = {"s": 190, "facecolors": "none", "edgecolors": figures.INK, "linewidths": 1.8, "zorder": 3}
            named = figures.label_of(f"recommended: {rows[at].layer}, {method}")
            axes.scatter([xs[at]], [values[at].value], label=named, **ring)
        ends += [end for value in values for end in (value.low, value.high)]
    figures.name_layers(axes, list(layers.values()), long=11)  # letters that fit side by side
    axes.set_ylabel(MEASURES[report.by][1], color=figures.INK)
    axes.set_xlabel("layer, and the size of the map of a square image", color=figures.INK)
    total = f"{report.measure(report.recommended).total} targets that no choice was made on; bars: 95 % intervals"
    axes.set_title(figures.label_of(f"{title}\n{total}"), fontsize=10, color=figures.INK, parse_math=False)
    axes.set_ylim(10 * math.floor(min(ends) / 10), min(100.0, 10 * math.ceil(max(ends) / 10)) + 1)
    figures.style_axes(axes)
    axes.tick_params(axis="x", labelsize=8)
    figure.legend(loc="outside lower center", ncols=len(figures.LOOKS) + 1, frameon=False, fontsize=9)
    return figures.save_png(figure, path)
