"""How grounding is measured: what is the same for all pictures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import ModelError, ProposalError
from excite.grounding import Gaze, Scorer
from excite.grounding.proposals import PROPOSERS, Proposals
from excite.images import file_state
from excite.methods import find_method
from excite.models import Preprocess
from excite.models.identity import identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from PIL import Image

    from excite.experiments.grounding.grounding_facts import Asked
    from excite.grounding.proposals import Source
    from excite.methods import Method
    from excite.models import Classifier
    from excite.vocabulary import Labels

__all__ = ["Protocol", "enlarged"]


@dataclass(frozen=True, eq=False)
class Protocol:
    """How phrases are asked.

    Attributes:
        classifier: who is asked; it has labels.
        layers: for each method, by name, the layer at which it is read.
        source: who proposes regions,
        proposals: and what that is called.
        trust: how much the proposals' own order counts, 0 to 1.
        side: the shorter side of the picture as the classifier sees it.
        hints: let words for places and colours weigh the maps.
        question: all of that as text.
        labels: the words of the classifier.

    Raises:
        ModelError: the classifier has no labels.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    source: Source
    proposals: str
    trust: float
    side: int
    hints: bool
    question: str = field(init=False)
    labels: Labels = field(init=False)

    def __post_init__(self) -> None:
        labels = self.classifier.labels
        if labels is None:
            raise ModelError(f"{self.classifier.name} has no labels: give it words with excite.wrap(..., labels=...)")
        asked = [self.layers, _proposals_identity(self.proposals), self.trust, self.side, self.hints]
        facts = ["grounding", version("excite"), _source(), *asked, identity(self.classifier), _words_identity(labels)]
        object.__setattr__(self, "question", json.dumps(facts))
        object.__setattr__(self, "labels", labels)

    def look(self, picture: Image.Image, methods: Sequence[str]) -> Gaze:
        """One look at a picture, of which these methods can be asked."""
        layers: dict[Method, Sequence[str]] = {find_method(name): self.layers[name] for name in methods}
        return Gaze(self.classifier, picture, list(layers), layer=layers, side=self.side)

    def proposed(self, picture: Image.Image, task: Asked) -> tuple[Proposals, str]:
        """The candidates; without any, why there are none. The phrases of such a picture are missed, not left out."""
        try:
            return self.source.of(picture, task.name, task.described.path), ""
        except ProposalError as error:
            return Proposals(picture.size, np.zeros((0, 4), np.float32), np.zeros(0, np.float32)), str(error)

    def scorer(self, proposals: Proposals) -> Scorer:
        """What scores the candidates of a picture."""
        return Scorer(proposals, self.trust)


def enlarged(classifier: Classifier, side: int) -> Classifier:
    """The same classifier, to whom pictures are shown as large as in this experiment, if it can see them so.

    Where a method is best read may depend on that.

    Example:
        >>> enlarged(excite.load(), 300).preprocess.shorter_side
        300
    """
    prepare = classifier.preprocess
    if not isinstance(prepare, Preprocess) or prepare.square:
        return classifier
    return replace(classifier, preprocess=replace(prepare, shorter_side=side))


@cache
def _source() -> str:
    """Changes when what words mean, or how regions are scored, does: that is tuned more often than versions count."""
    parts = [files(f"excite.{part}") for part in ("grounding", "vocabulary")]
    texts = [
        file.read_bytes()
        for part in parts
        for file in sorted(part.iterdir(), key=str)
        if file.name.endswith((".py", ".txt"))  # the tables of words too
    ]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _proposals_identity(name: str) -> list[Any]:
    """Changes when the proposals would: their maker and its settings, or the files that they are read from."""
    if name in PROPOSERS:
        maker = PROPOSERS[name]
        return [name, maker.version, repr(maker)]
    path = Path(name)
    return [file_state(file) for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]


def _words_identity(labels: Labels) -> str:
    words = [labels.synonyms(unit) for unit in range(len(labels))]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
