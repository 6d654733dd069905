"""Localisation: does the box around the strong part of a map fit the queried object? (paper, 4.2).

The protocol is the paper's: the image is squashed to the classifier's square, the map is stretched to 224 x 224, and
the tightest box around the pixels above alpha times its mean is scaled back to the image. Alpha is chosen for each
method on held-out images. The label is given: every category of an image that the classifier has a word for is queried.

Records hold facts (the boxes, their IoU with the truth), so that the choice of thresholds may change without another
forward pass.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from excite.experiments import HELD_OUT, LOCALIZATION_METHODS
from excite.experiments.base import Comparison, Measurement, all_maps, checked_share, held_out
from excite.experiments.localization.scores import RULES, LocalizationRun, boxes_of, overlaps_of, tally
from excite.images import read_image
from excite.models import Preprocess
from excite.readouts.overlay import upsample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.datasets import Dataset, Target
    from excite.experiments.base import ImageTask
    from excite.experiments.localization.scores import LocalizationRow
    from excite.jobs import Entry
    from excite.models import Classifier

CANVAS = (224, 224)
"""Boxes are made on the map at this size, the paper's, whatever the size of the image."""


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
    """The same classifier with a preprocessing that squashes every image to a square.

    Its map still covers the whole image, so it need only be stretched over it.

    Example:
        >>> classifier = squared(excite.load())
        >>> classifier.prepared(Image.new("RGB", (400, 300))).shape
        torch.Size([3, 224, 224])
    """
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

    Args:
        classifier, dataset, methods, skip, limit: as for a `Comparison`.
        layers: layers at which to read all methods, where possible; None for each method's own layer. Methods that may
            be read anywhere are then read at the classifier's two best layers, and the better one is chosen on held-out
            images: the best layer for boxes is not that for points.
        own_shape: keep the shape of images instead of squashing them to a square.
        held_out: the share of the images on which thresholds are chosen; the others are reported on.
        seed: of that draw.

    Raises:
        DataError: the share is not between 0 and 1.

    Example:
        >>> localization = Localization(excite.load(), open_dataset("imagenet"), limit=100)    # doctest: +SKIP
        >>> run = localization.run(list(localization.records(Path("out"))))                    # doctest: +SKIP
        >>> [(row.method, row.alpha, row.error.value) for row in run.rows]                     # doctest: +SKIP
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
        return names - held_out(names, self.share, self.seed)

    def rows(self, records: Sequence[Entry]) -> list[LocalizationRow]:
        """The rows of the table; see `excite.experiments.localization.scores.tally`."""
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
