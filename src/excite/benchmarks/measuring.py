"""What is measured of a picture, in one look at it.

Each picture goes through the network once; from that one look come the maps of all its targets, at all layers, by all
methods. What is written down for a map are facts (how far its maximum lies from the truth, how its boxes overlap with
it), so that the questions asked of them may change without another look.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch

from excite.benchmarks.measures import ALPHAS, boxes_above, distance, overlap
from excite.errors import ImageError, LostSignalWarning
from excite.images import read_image
from excite.looking import Look
from excite.methods import find_method
from excite.readouts.upsample import upsample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from excite.attention import AttentionMap
    from excite.datasets import Box
    from excite.models import Classifier
    from excite.vocabulary import Concept

__all__ = ["Cue", "Measuring", "Task"]


@dataclass(frozen=True)
class Cue:
    """Something to look for in a picture, and where it is."""

    concept: Concept
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Task:
    """A picture and what to look for in it."""

    name: str
    path: Path
    cues: tuple[Cue, ...]


@dataclass(frozen=True, eq=False)
class Measuring:
    """The work done for each picture."""

    classifier: Classifier
    layers: tuple[str, ...]
    methods: tuple[str, ...]
    with_boxes: bool
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = [self.layers, self.methods, self.with_boxes, ALPHAS, version("excite"), _identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the picture, its annotation, the question or the program does."""
        try:
            state = task.path.stat()
        except OSError as error:
            raise ImageError(f"cannot read {str(task.path)!r}: {error.strerror or error}") from None
        cues = [asdict(cue) for cue in task.cues]
        facts = [self.question, str(task.path.resolve()), state.st_mtime_ns, state.st_size, cues]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the picture, and what each map is worth."""
        picture = read_image(task.path)
        methods = [find_method(name) for name in self.methods]
        scales = dict.fromkeys(scale for method in methods for scale in method.scales)
        inputs = {scale: self.classifier.prepared(picture, scale)[None] for scale in scales}
        look = Look(self.classifier, inputs, methods, layer=self.layers)
        targets: list[dict[str, Any]] = [{"concept": cue.concept.name, "maps": []} for cue in task.cues]
        concepts = [cue.concept for cue in task.cues]
        for method in methods:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LostSignalWarning)  # the mean mass of each layer is reported
                (maps,) = look.answer(method, [concepts], [picture])
            for k, found in enumerate(maps):  # the layers of one concept together
                target = k // len(self.layers)
                targets[target]["maps"].append(self._worth(found, task.cues[target].boxes))
        return {"image": task.name, "targets": targets}

    def _worth(self, found: AttentionMap, truth: Sequence[Box]) -> dict[str, Any]:
        point = found.point()
        worth = {
            "method": found.method,
            "layer": found.layer,
            "mass": found.mass,
            "distance": None if point is None else min(distance(point, box) for box in truth),
        }
        if self.with_boxes:
            empty = point is None
            boxes = [None] * len(ALPHAS) if empty else boxes_above(upsample(found.values, found.image_size))
            worth["overlaps"] = [max(overlap(box, other) for other in truth) if box else 0.0 for box in boxes]
        return worth


def _identity(classifier: Classifier) -> list[str]:
    """What tells a classifier from one that would give other maps: its network and how it takes pictures."""
    content = hashlib.blake2b(repr(classifier.module).encode(), digest_size=16)
    for name, values in classifier.module.state_dict().items():
        content.update(name.encode())
        if isinstance(values, torch.Tensor):
            content.update(values.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    preprocess = getattr(classifier.preprocess, "__qualname__", repr(classifier.preprocess))
    return [classifier.name, preprocess, content.hexdigest()]
