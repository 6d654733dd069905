"""What is done for each picture of localisation: one look, and how the boxes of each map lie.

What is written down are facts (the boxes, how much they overlap with the truth), so that the choice of thresholds may
change without another look.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.experiments.localization.localization_rules import RULES, boxes_of, overlaps_of
from excite.experiments.looks import all_maps
from excite.images import read_image
from excite.models.identity import identity
from excite.readouts.upsample import upsample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.attention import AttentionMap
    from excite.datasets import Target
    from excite.experiments.base import Task
    from excite.models import Classifier

__all__ = ["CANVAS", "Boxing"]

CANVAS = (224, 224)
"""Boxes are made on the map at this size, the paper's, whatever the size of the picture."""


@dataclass(frozen=True, eq=False)
class Boxing:
    """The work done for each picture.

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
        facts = ["localization", self.layers, CANVAS, rules, version("excite"), identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the picture, its annotation, the question or the program does."""
        return task.key(self.question)

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the picture, and how the boxes of each map lie."""
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
    scale = np.array([width / CANVAS[0], height / CANVAS[1]] * 2)  # back to the picture's own pixels
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
