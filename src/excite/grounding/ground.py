"""Which regions of a picture do phrases refer to? (paper, 4.3: text-to-region association)."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite.errors import ConceptError, DataError
from excite.grounding.phrase_maps import SIDE, Gaze
from excite.grounding.proposals import Proposals, find_proposer
from excite.grounding.scoring import TRUST, Scorer
from excite.grounding.unheeded import unheeded
from excite.images import read_image
from excite.methods import find_method
from excite.propagation import held_bytes
from excite.readouts.notebook import shown_html
from excite.vocabulary import read_phrase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

    from excite.api import ImageSource
    from excite.grounding.phrase_maps import PhraseMap
    from excite.grounding.proposals import Source
    from excite.models import Classifier
    from excite.readouts.boxes_drawn import Box

__all__ = ["GAMMA", "METHOD", "MOST", "Grounded", "Region", "Study", "ground", "rank"]

METHOD, GAMMA = "excite", 0.4  # the best in docs/grounding.md
MOST = 10
MOST_GAMMA = 10.0
"""With much more, areas to that power are no numbers any more."""
WIDTH = 1200  # pixels of a figure from left to right
WIDTH_IN_NOTEBOOKS, REGIONS_IN_NOTEBOOKS = 800, 3  # what fits between a notebook's margins


@dataclass(frozen=True)
class Region:
    """A region that a phrase may refer to.

    Attributes:
        box: half-open ``(x0, y0, x1, y1)`` in pixels.
        score: how much of the phrase's map lies in it for its size; comparable within one picture and phrase.
    """

    box: Box
    score: float


@dataclass(frozen=True, eq=False)
class Grounded:
    """A phrase and the regions it may refer to.

    Attributes:
        phrase: as it was written.
        regions: best first, none that nearly repeats another; none where there is no evidence.
        map: where the phrase points, with its words.
    """

    phrase: str
    regions: tuple[Region, ...]
    map: PhraseMap

    def figure(self, *, true_boxes: Sequence[Box] = (), width: int = WIDTH) -> Image.Image:
        """The picture with the regions, the maps of the phrase and its words, and the words in their colours.

        Args:
            true_boxes: where it really is, if that is known; they are dashed.
            width: of the figure in pixels.
        """
        from excite.grounding.drawing import draw_grounded  # it draws what is defined here

        return draw_grounded(self, true_boxes=true_boxes, width=width)

    def _repr_html_(self) -> str:
        """What a notebook shows: the figure, and the best regions in numbers."""
        drawn = None if self.map.words[0].image is None else self.figure(width=WIDTH_IN_NOTEBOOKS)
        told = [f"{', '.join(f'{side:g}' for side in one.box)} (score {one.score:.3g})" for one in self.regions]
        rows = [(f"region {rank}", text) for rank, text in enumerate(told[:REGIONS_IN_NOTEBOOKS], start=1)]
        skipped = [("skipped", ", ".join(self.map.reading.skipped))] if self.map.reading.skipped else []
        best = f"most likely {told[0]}" if told else "no region"
        return shown_html(drawn, f"Where {self.phrase} is: {best}.", [("phrase", self.phrase), *rows, *skipped])

    def to_json(self) -> dict[str, Any]:
        """All but the maps, as plain values."""
        reading = self.map.reading
        return {
            "phrase": self.phrase,
            "regions": [{"box": list(region.box), "score": region.score} for region in self.regions],
            "point": None if self.map.point is None else list(self.map.point),
            "words": [
                {"word": word.text, "concept": word.concept.name, "probability": found.probability, "mass": found.mass}
                for word, found in zip(reading.words, self.map.words, strict=self.map.known)
            ],
            "hints": [word.text for word in self.map.hints],
            "skipped": [reading.text[start:end] for start, end in unheeded(reading, self.map.hints)],
        }


def ground(  # noqa: PLR0913 - all but three may be left out
    classifier: Classifier,
    image: ImageSource,
    phrases: str | Sequence[str],
    *,
    proposals: str | Path | Source | Proposals = "hierarchy",
    method: str = METHOD,
    layer: str | None = None,
    gamma: float = GAMMA,
    trust: float = TRUST,
    side: int = SIDE,
    hints: bool = True,
    most: int | None = MOST,
) -> list[Grounded]:
    """Which regions of this picture do those phrases refer to?

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        image: a path, a PIL picture, an array [h, w, 3] or a tensor [3, h, w].
        phrases: one or several, in English. The network looks once for all of them.
        proposals: the candidates: a name from `excite.grounding.proposals.PROPOSERS`, a file or folder of
            precomputed ones, or those of this picture.
        method: a name from `excite.METHODS`.
        layer: where to read it; None for the classifier's own best.
        gamma: how much a large region must hold: 0 for as much as possible, 1 for as much as possible in each pixel.
        trust: how much the order counts in which the proposals come, 0 to 1.
        side: the shorter side of the picture as the classifier sees it.
        hints: let words for places ("left") and colours ("red") weigh the map.
        most: how many regions to tell at most; None for all.

    Example:
        >>> classifier = excite.load("words")                                               # doctest: +SKIP
        >>> (hat,) = excite.ground(classifier, "photo.jpg", "a man in a red hat")           # doctest: +SKIP
        >>> hat.regions[0].box, [word.text for word in hat.map.reading.words]               # doctest: +SKIP
        ((12.0, 30.0, 200.0, 180.0), ['man', 'hat'])
    """
    texts = _checked([phrases] if isinstance(phrases, str) else list(phrases))
    picture = read_image(image)
    study = Study(
        classifier,
        picture,
        _proposals(proposals, picture, image),
        method=method,
        layer=layer,
        trust=trust,
        side=side,
    )
    return study.ground(texts, gamma=gamma, hints=hints, most=most)


class Study:
    """As `excite.ground`, for phrases that come one after the other. Several threads may ask.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        picture: in mode RGB.
        proposals: of this picture.
        method: a name from `excite.METHODS`.
        layer: where to read it; None for the classifier's own best.
        trust: see `excite.ground`.
        side: the shorter side of the picture as the classifier sees it.

    Example:
        >>> study = Study(excite.load("words"), picture, find_proposer("hierarchy").of(picture))  # doctest: +SKIP
        >>> study.ground(["a dog"])[0].regions[0].box, study.ground(["the left dog"])             # doctest: +SKIP
    """

    def __init__(
        self,
        classifier: Classifier,
        picture: Image.Image,
        proposals: Proposals,
        *,
        method: str = METHOD,
        layer: str | None = None,
        trust: float = TRUST,
        side: int = SIDE,
    ) -> None:
        if side < 1:
            raise DataError(f"nothing can be seen in a picture with a side of {side}: give at least 1")
        self._method = find_method(method)
        self._gaze = Gaze(classifier, picture, [self._method], layer=layer, side=side)
        self._scorer = Scorer(proposals, trust)
        self._module = classifier.module
        self._lock = threading.Lock()  # a forward pass serves one question at a time

    def ground(
        self, phrases: Sequence[str], *, gamma: float = GAMMA, hints: bool = True, most: int | None = MOST
    ) -> list[Grounded]:
        """The regions that phrases refer to, see `excite.ground`.

        Raises:
            ConceptError: a phrase is blank, or there is none.
            DataError: gamma is no number from 0 to 10, or no region is wanted.
        """
        if not 0 <= gamma <= MOST_GAMMA:
            raise DataError(f"gamma is a number from 0 to 1, {MOST_GAMMA:g} at most, not {gamma}")
        if most is not None and most < 1:
            raise DataError(f"at most {most} regions are none: ask for at least 1")
        readings = [read_phrase(text, self._gaze.labels) for text in _checked(phrases)]
        with self._lock:
            maps = self._gaze.maps(self._method, readings, hints=hints)
        return [
            Grounded(text, rank(self._scorer, one, gamma, most), one) for text, one in zip(phrases, maps, strict=True)
        ]

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return held_bytes(self._module, self._gaze.look.view.passes()) + self._scorer.proposals.nbytes


def rank(scorer: Scorer, found: PhraseMap, gamma: float = GAMMA, most: int | None = MOST) -> tuple[Region, ...]:
    """The regions of a picture that a phrase may refer to, best first; none where its map is empty.

    Args:
        scorer: of the picture's proposals.
        found: the map of the phrase.
        gamma: see `ground`.
        most: how many to tell at most; None for all.
    """
    scores = scorer.scores(found.plane, gamma)
    boxes = scorer.proposals.boxes.tolist()
    return tuple(Region(tuple(boxes[k]), float(scores[k])) for k in scorer.told(scores, most))


def _checked(phrases: Sequence[str]) -> Sequence[str]:
    """The phrases, if each says anything."""
    if not phrases or not all(text.strip() for text in phrases):
        raise ConceptError("a phrase is blank: write what to look for, such as 'a man in a red hat'")
    return phrases


def _proposals(wanted: str | Path | Source | Proposals, picture: Image.Image, image: ImageSource) -> Proposals:
    """The candidates of a picture, from wherever they come."""
    if isinstance(wanted, Proposals):
        if wanted.size != picture.size:
            raise DataError(
                f"the proposals are for a picture of {wanted.size[0]} x {wanted.size[1]} pixels, this one has "
                f"{picture.size[0]} x {picture.size[1]}: give its own"
            )
        return wanted
    source = find_proposer(wanted) if isinstance(wanted, (str, Path)) else wanted
    path = Path(image) if isinstance(image, (str, os.PathLike)) else None
    return source.of(picture, path.name if path else "", path)
