"""What is measured of a picture, in one look at it.

Each picture goes through the network once; from that one look come the maps of all its targets, at all layers, by all
methods. What is written down for a map are facts (how far its maximum lies from the truth, how its boxes overlap with
it), so that the questions asked of them may change without another look.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from excite.experiments.looks import look_at, maps_of
from excite.images import read_image
from excite.methods import find_method
from excite.metrics.boxes import box_distance
from excite.metrics.measures import ALPHAS, boxes_above, overlap
from excite.models.identity import identity
from excite.readouts.upsample import upsample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.attention import AttentionMap
    from excite.datasets import Box
    from excite.experiments.base import Task
    from excite.models import Classifier

__all__ = ["Measuring"]


@dataclass(frozen=True, eq=False)
class Measuring:
    """The work done for each picture."""

    classifier: Classifier
    layers: tuple[str, ...]
    methods: tuple[str, ...]
    with_boxes: bool
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = [self.layers, self.methods, self.with_boxes, ALPHAS, version("excite"), identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the picture, its annotation, the question or the program does."""
        return task.key(self.question)

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the picture, and what each map is worth."""
        picture = read_image(task.sample.path)
        methods = [find_method(name) for name in self.methods]
        look = look_at(self.classifier, picture, methods, self.layers)
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
