"""The maps of phrases: all words of all phrases of a picture come from one look at it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import ConceptError, LostSignalWarning
from excite.grounding.hints import heeded, hinted
from excite.methods import find_method
from excite.models.preprocess import Preprocess
from excite.readouts.upsample import upsample
from excite.session import Look
from excite.vocabulary import Concept, read_phrase

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from excite.attention import AttentionMap
    from excite.methods import Method
    from excite.models import Classifier
    from excite.vocabulary import ColourWord, PlaceWord, Reading

    Plane = NDArray[np.floating[Any]]

__all__ = ["SIDE", "Gaze", "PhraseMap", "gaze"]

SIDE = 300
"""The shorter side of the picture as the classifier sees it: the paper's, larger than usual, for small things."""

FINDINGS = 12
"""How many of the classifier's own findings stand for a phrase of which it knows no word."""

ANYTHING = "anything"

HEAD = 3.0
"""How much more than the others the word counts that most likely names what is meant: *the dog* beside a horse."""


@dataclass(frozen=True, eq=False)
class PhraseMap:
    """Where in a picture a phrase points.

    Attributes:
        reading: what its words are to the classifier.
        words: the map of each word that the classifier knows; without any, the map of all that it finds.
        plane: their mean, in which the head of the phrase counts more, weighed by the hints, at the size of the picture
            [height, width].
        hints: the words for places and colours that weigh it.
    """

    reading: Reading
    words: tuple[AttentionMap, ...]
    plane: Plane
    hints: tuple[PlaceWord | ColourWord, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the classifier knows any of its words."""
        return bool(self.reading.words)

    @property
    def point(self) -> tuple[int, int] | None:
        """The pixel (x, y) with most evidence; None where there is none."""
        y, x = divmod(int(self.plane.argmax()), self.plane.shape[1])
        return (x, y) if self.plane[y, x] > 0 else None


class Gaze:
    """A picture that a classifier has looked at, of which phrases can be asked with several methods.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        picture: in mode RGB.
        methods: those that will be asked for.
        layer: where to read them, or for each method where; None: where each should be.
        side: the shorter side of the picture as the classifier sees it.
    """

    def __init__(
        self,
        classifier: Classifier,
        picture: Image.Image,
        methods: Sequence[Method],
        *,
        layer: str | dict[Method, Sequence[str]] | None = None,
        side: int = SIDE,
    ) -> None:
        if classifier.labels is None:
            raise ConceptError(f"{classifier.name} has no labels to read a phrase with: load it with labels")
        scale = enlargement(classifier, side)
        scales = dict.fromkeys([1.0, *(one for method in methods for one in method.scales)])
        inputs = {one: classifier.prepared(picture, one * scale)[None] for one in scales}
        self.picture = picture
        self.labels = classifier.labels
        self.look = Look(classifier, inputs, methods, layer=layer)

    def maps(self, method: Method, readings: Sequence[Reading], *, hints: bool = True) -> list[PhraseMap]:
        """The map of each phrase. Each word is looked for once, in however many phrases it is.

        Args:
            method: one of those that the picture was looked at for.
            readings: the phrases.
            hints: let words for places and colours weigh the map, and the head of the phrase count more; without, all
                words are one as good as another, as in the paper.
        """
        cues = [[word.concept for word in reading.words] or [self._anything] for reading in readings]
        wanted = list(dict.fromkeys(cue for each in cues for cue in each))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostSignalWarning)  # who asks sees the mass of each map
            (found,) = self.look.answer(method, [wanted], [self.picture])
        maps = dict(zip(wanted, found, strict=True))
        return [
            self._phrase(reading, tuple(maps[cue] for cue in each), hints=hints)
            for reading, each in zip(readings, cues, strict=True)
        ]

    @property
    def _anything(self) -> Concept:
        """What the classifier finds in the picture, whatever that is."""
        best = self.look.probabilities[0].topk(min(FINDINGS, len(self.labels))).indices
        return Concept(ANYTHING, tuple(best.tolist()))

    def _phrase(self, reading: Reading, words: tuple[AttentionMap, ...], *, hints: bool) -> PhraseMap:
        counts = torch.tensor([HEAD if hints and word == reading.head else 1.0 for word in reading.words or (None,)])
        mean = torch.einsum("w,wyx->yx", counts / counts.sum(), torch.stack([word.values for word in words]))
        plane: Plane = upsample(mean, self.picture.size).clamp(min=0).numpy()
        weighing = heeded(reading) if hints else ()
        return PhraseMap(reading, words, hinted(plane, weighing, self.picture), weighing)


def gaze(
    classifier: Classifier,
    picture: Image.Image,
    phrases: Sequence[str],
    *,
    method: str = "c-mwp",
    layer: str | None = None,
    side: int = SIDE,
    hints: bool = True,
) -> list[PhraseMap]:
    """Where in a picture phrases point: for each the mean of the maps of its words (paper, 4.3).

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        picture: in mode RGB.
        phrases: any English text; words that the classifier does not know are skipped, and told.
        method: a name from `excite.METHODS`.
        layer: where to read it; None for the classifier's own best.
        side: the shorter side of the picture as the classifier sees it.
        hints: let words for places and colours weigh the map, and the head of the phrase count more.

    Example:
        >>> hat, dog = gaze(classifier, picture, ["a man in a red hat", "the left dog"])  # doctest: +SKIP
        >>> hat.point, hat.reading.skipped                                                # doctest: +SKIP
    """
    chosen = find_method(method)
    looked = Gaze(classifier, picture, [chosen], layer=layer, side=side)
    return looked.maps(chosen, [read_phrase(text, looked.labels) for text in phrases], hints=hints)


def enlargement(classifier: Classifier, side: int) -> float:
    """How much larger than usual a picture is prepared; networks that take one size only see it as usual.

    Example:
        >>> enlargement(excite.load(), 336)
        1.5
    """
    prepare = classifier.preprocess
    if not isinstance(prepare, Preprocess) or prepare.square:
        return 1.0
    return side / prepare.shorter_side
