"""What is done for each picture: every check, and the facts that it found."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from excite.experiments.checks.checks import CHECKS
from excite.experiments.checks.seen import Seen
from excite.images import file_state, read_image
from excite.models.identity import identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from excite.models import Classifier

__all__ = ["Checking"]

ODD_NAMES = ("utf-8", "surrogateescape")
AS_MEASURED = 2  # goes up when a check measures otherwise, so that older facts do not count any more


@dataclass(frozen=True, eq=False)
class Checking:
    """The work done for each picture.

    Attributes:
        classifier: who is checked.
        layers: for each method, by name, the layer at which it is read; the checked one first.
        checks: the names of the checks.
        seed: whatever is drawn at random is drawn by it.
        question: all of that as text.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    checks: Sequence[str]
    seed: int = 0
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = [AS_MEASURED, list(self.layers.items()), list(self.checks), self.seed, version("excite")]
        object.__setattr__(self, "question", json.dumps([facts, identity(self.classifier)]))

    def key(self, task: Path) -> str:
        """Changes when the picture, the classifier, the question or the program does."""
        return hashlib.sha256(json.dumps([self.question, *file_state(task)]).encode()).hexdigest()[:16]

    def __call__(self, task: Path) -> dict[str, Any]:
        """Look at the picture, and measure. Each has weights and noise of its own: a single draw may be odd."""
        seen = Seen(
            self.classifier, self.layers, read_image(task), self.seed + zlib.crc32(task.name.encode(*ODD_NAMES))
        )
        return {
            "image": str(task),
            "finding": seen.finding.name,
            "probability": float(seen.probabilities.max()),
            "checks": {name: CHECKS[name].measure(seen) for name in self.checks},
        }
