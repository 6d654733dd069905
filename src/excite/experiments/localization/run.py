"""Localisation: does the box around the strong part of a map fit the object that was asked for? (paper, 4.2).

The protocol is the paper's: the image is squashed to the classifier's square, the map is stretched to 224 x 224, and
the tightest box around what lies above a multiple of its mean is scaled back to the image. That multiple is chosen
for each method on held-out images. The label is given: every category of an image that the classifier has a word
for is asked for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from excite import __version__
from excite.experiments.base import HELD_OUT, LOCALIZATION_METHODS, Comparison, checked_share, held_out
from excite.experiments.localization.scores import RULES, Run, boxes_of, overlaps_of, tally
from excite.experiments.readable_layers import all_maps
from excite.images import read_image
from excite.models import Preprocess
from excite.models.classifier import identity
from excite.readouts.box import check_components
from excite.readouts.upsample import upsample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.datasets import Dataset, Target
    from excite.experiments.base import Task
    from excite.experiments.localization.scores import Row
    from excite.jobs import Entry
    from excite.models import Classifier


# What is done for each image of localisation: one look, and how the boxes of each map lie.
#
# What is written down are facts (the boxes, how much they overlap with the truth), so that the choice of thresholds
# may change without another look.

CANVAS = (224, 224)
"""Boxes are made on the map at this size, the paper's, whatever the size of the image."""


@dataclass(frozen=True, eq=False)
class Boxing:
    """The work done for each image.

    Attributes:
        classifier: who is asked.
        layers: for each method, by name, the layers at which it is read.
        question: all of that as text.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    question: str = field(init=False)

    def __post_init__(self) -> None:
        rules = [asdict(rule) for rule in RULES.values()]
        facts = ["localization", self.layers, CANVAS, rules, __version__, identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the image, its annotation, the question or the program does."""
        return task.key(self.question)

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the image, and how the boxes of each map lie."""
        picture = read_image(task.sample.path)
        task.sample.check_size(picture.size)
        targets = [_facts(cue.target) for cue in task.cues]
        for k, found in all_maps(self.classifier, picture, [cue.concept for cue in task.cues], self.layers):
            targets[k]["maps"].append(_boxed(found, task.cues[k].target))
        return {"image": task.name, "size": list(picture.size), "targets": targets}


def _facts(target: Target) -> dict[str, Any]:
    return {"category": target.concept, "truth": [list(box) for box in target.boxes], "maps": []}


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


# Images squashed to a square, as the paper's localisation takes them.


def squared(classifier: Classifier) -> Classifier:
    """The same classifier, to whom every image is shown as a square.

    Its map then still covers the whole image, so it need only be stretched over it to lie right.

    Example:
        >>> classifier = squared(excite.load())
        >>> classifier.prepared(Image.new("RGB", (400, 300))).shape
        torch.Size([3, 224, 224])
    """
    usual = classifier.preprocess
    square = replace(usual, square=True) if isinstance(usual, Preprocess) else _Squashing(usual)
    return replace(classifier, preprocess=square)


@dataclass(frozen=True, repr=False)
class _Squashing:
    """A preparation of one's own, after the image was made a square of its shorter side."""

    after: Callable[[Image.Image], Tensor]

    def __call__(self, picture: Image.Image) -> Tensor:
        side = min(picture.size)
        return self.after(picture.resize((side, side), Image.Resampling.BICUBIC))

    def __repr__(self) -> str:
        """The same in every process, where the preparation is a function: answers are kept by it."""
        return f"squashed {getattr(self.after, '__qualname__', repr(self.after))}"


# Localisation: does the box around the strong part of a map fit the object that was asked for? (paper, 4.2).
#
# The protocol is the paper's: the image is squashed to the classifier's square, the map is stretched to 224 x 224,
# and the tightest box around what lies above a multiple of its mean is scaled back to the image. That multiple is
# chosen for each method on held-out images. The label is given: every category of an image that the classifier has
# a word for is asked for.


class Localization(Comparison):
    """Boxes the objects of annotated images with several methods, and counts how many boxes fit.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        methods: names from `excite.METHODS`.
        layers: read all methods at these layers, where they can be; None for each method's own place. Methods that may
            be read anywhere are then read at the two layers that are most worth it, and the better one is chosen on
            held-out images: another layer fits boxes than points.
        skip: leave out so many images first,
        limit: and take so many of the rest; None for all.
        own_shape: show the classifier images of their own shape, instead of squashing them to a square.
        held_out: choose thresholds on this share of the images; the others are reported on.
        seed: another one holds out others.

    Attributes:
        places: where the methods are read, and why some cannot be.

    Raises:
        ExciteError: scipy is not installed.
        DataError: the share is not between 0 and 1.

    Example:
        >>> boxing = Localization(excite.load(), open_dataset("imagenet"), limit=100)          # doctest: +SKIP
        >>> records = list(boxing.records(Path("out")))                                        # doctest: +SKIP
        >>> [(row.method, row.alpha, row.error.value) for row in boxing.run(records).rows]     # doctest: +SKIP
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
        check_components()
        self.share, self.seed = checked_share(held_out), seed
        self.own_shape = own_shape
        shown = classifier if own_shape else squared(classifier)
        super().__init__(shown, dataset, methods, layers=layers, known=classifier.layers[:2], skip=skip, limit=limit)
        self.named = layers is not None
        self.work = Boxing(shown, self.places.layers)

    def reported(self, records: Sequence[Entry]) -> frozenset[str]:
        """The images that no threshold is chosen on."""
        names = frozenset(record["image"] for record in records)
        return names - held_out(names, self.share, self.seed)

    def rows(self, records: Sequence[Entry]) -> list[Row]:
        """What the records say; see `localization_tally.tally`."""
        self.check_some_were_read(records)
        return tally(records, self.classifier.name, self.reported(records))

    def run(self, records: Sequence[Entry]) -> Run:
        """All that tables and figures need."""
        rows, reported = self.rows(records), self.reported(records)
        about = {**self.about(), "held_out_pictures": len(records) - len(reported), "reported": len(reported)}
        name, data = self.classifier.name, self.dataset
        return Run(name, rows, records, data.name, data.split, about, self.show, self.target, reported)

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
