"""What is done for each picture of the Pointing Game: one look, and where each map points.

What is written down are facts (the point, how far it lies from the truth), so that the tolerance may change without
another look.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from excite.datasets.difficult import is_difficult
from excite.experiments.looks import all_maps
from excite.images import read_image
from excite.metrics.boxes import area_share, distance
from excite.models.identity import identity
from excite.readouts.point import maximum_point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.attention import AttentionMap
    from excite.datasets import Sample, Target
    from excite.experiments.base import Task
    from excite.models import Classifier
    from excite.readouts.upsample import Mode

__all__ = ["Pointing"]


@dataclass(frozen=True, eq=False)
class Pointing:
    """The work done for each picture.

    Attributes:
        classifier: who is asked.
        layers: for each method, by name, the layers at which it is read.
        mode: how maps are stretched over their picture.
        difficult: the Difficult subset as pairs of a picture's name and a category; None: by the paper's rule.
        question: all of that as text.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    mode: Mode
    difficult: frozenset[tuple[str, str]] | None = None
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = ["pointing", self.layers, self.mode, version("excite"), identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the picture, its annotation, its Difficult pairs, the question or the program does."""
        listed = None if self.difficult is None else [self._listed(task.name, cue.target) for cue in task.cues]
        return task.key(json.dumps([self.question, listed]))

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the picture, and where each map points."""
        picture = read_image(task.sample.path)
        task.sample.check_size(picture.size)
        targets = [self._facts(task.sample, cue.target, picture.size) for cue in task.cues]
        for k, found in all_maps(self.classifier, picture, [cue.concept for cue in task.cues], self.layers):
            targets[k]["maps"].append(self._pointed(found, task.cues[k].target))
        return {"image": task.name, "size": list(picture.size), "targets": targets}

    def _facts(self, sample: Sample, target: Target, size: tuple[int, int]) -> dict[str, Any]:
        by_rule = self.difficult is None
        sized = replace(sample, size=size)  # an annotation need not say it
        return {
            "category": target.concept,
            "difficult": is_difficult(sized, target) if by_rule else self._listed(sample.name, target),
            "share": area_share(target, size),
            "maps": [],
        }

    def _listed(self, name: str, target: Target) -> bool:
        return self.difficult is not None and (name, target.concept) in self.difficult

    def _pointed(self, found: AttentionMap, target: Target) -> dict[str, Any]:
        point = maximum_point(found.values, found.image_size, self.mode)
        return {
            "method": found.method,
            "layer": found.layer,
            "point": None if point is None else list(point),
            "distance": None if point is None else distance(point, target, found.image_size),
        }
