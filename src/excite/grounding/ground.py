"""Phrase grounding: the regions of an image that phrases refer to (paper, 4.3: text-to-region association)."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import ConceptError, DataError, ExciteError
from excite.grounding.instances import instance_weights
from excite.grounding.phrase_maps import SIDE, PhraseMap, PhraseSession
from excite.grounding.scoring import TRUST, Scorer
from excite.images import read_image
from excite.methods import find_method
from excite.readouts.figure import Box, WordMap, percent
from excite.readouts.notebook import shown_html
from excite.vocabulary import ColourWord, PlaceWord, Reading, read_phrase
from excite.vocabulary.phrases import tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from PIL import Image

    from excite.attention import AttentionMap
    from excite.grounding.proposals import Proposals, Source
    from excite.models import Classifier
    from excite.session import ImageSource, Layer

    Span = tuple[int, int]

METHOD, GAMMA, MOST = "excite", 0.3, 10  # the best in docs/grounding.md
WHOLE = 0.9  # a region of more of the image is the image itself
MOST_GAMMA = 10.0  # area ** gamma overflows with much more
WIDTH, WIDTH_IN_NOTEBOOKS, REGIONS_IN_NOTEBOOKS = 1200, 800, 3  # in pixels


@dataclass(frozen=True)
class Region:
    """A region that a phrase may refer to.

    Attributes:
        box: half-open ``(x0, y0, x1, y1)`` in pixels.
        score: its share of the votes (`excite.grounding.voting`), without trust f(R) of `Scorer`; comparable within one
            image and phrase.
    """

    box: Box
    score: float


@dataclass(frozen=True, eq=False)
class Grounded:
    """A phrase and the regions it may refer to.

    Attributes:
        phrase: the text.
        regions: best first, after non-maximum suppression; empty without evidence, or where no word is understood.
        map: of the phrase, with its words.
        point: the pixel (x, y) that is most likely in it; None without evidence, or where no word is understood.
    """

    phrase: str
    regions: tuple[Region, ...]
    map: PhraseMap
    point: tuple[int, int] | None = None

    @property
    def reason(self) -> str | None:
        """Why there is no region; None where there is one."""
        if self.regions:
            return None
        return "there is no evidence for it anywhere" if self.map.understood else "no word of it is known"

    def figure(self, *, true_boxes: Sequence[Box] = (), width: int = WIDTH) -> Image.Image:
        """The image with the regions, the maps of the phrase and its words, and the words in their colours.

        Args:
            true_boxes: the annotated boxes, dashed.
            width: of the figure in pixels.

        Raises:
            ExciteError: the maps carry no image, or the width is too small.
        """
        from excite.readouts.figure import Told, grounded_figure

        reading, picture = self.map.reading, self.map.words[0].image
        if picture is None:
            raise ExciteError(f"the maps of {self.phrase!r} carry no image to draw on: ask excite.ground for them.")
        hints = self.map.hints
        return grounded_figure(
            picture,
            Told(self.phrase, tuple(map(span_of, hints)), unused_spans(reading, hints)),
            as_map(self).values,
            _word_maps(reading, self.map.words),
            [region.box for region in self.regions],
            true_boxes=true_boxes,
            width=width,
        )

    def _repr_html_(self) -> str:
        """The figure and the best regions, for a notebook."""
        figure = None if self.map.words[0].image is None else self.figure(width=WIDTH_IN_NOTEBOOKS)
        texts = [f"{', '.join(f'{side:g}' for side in one.box)} (score {one.score:.3g})" for one in self.regions]
        rows = [(f"region {rank}", text) for rank, text in enumerate(texts[:REGIONS_IN_NOTEBOOKS], start=1)]
        skipped = [("skipped", ", ".join(self.map.reading.skipped))] if self.map.reading.skipped else []
        best = f"most likely {texts[0]}" if texts else "no region"
        return shown_html(figure, f"Where {self.phrase} is: {best}.", [("phrase", self.phrase), *rows, *skipped])

    def to_json(self) -> dict[str, Any]:
        """Everything but the maps, as plain values."""
        reading = self.map.reading
        return {
            "phrase": self.phrase,
            "reason": self.reason,
            "regions": [{"box": list(region.box), "score": region.score} for region in self.regions],
            "point": None if self.point is None else list(self.point),
            "words": [
                {"word": word.text, "concept": word.concept.name, "probability": found.probability, "mass": found.mass}
                for word, found in zip(reading.words, self.map.words, strict=self.map.known)
            ],
            "hints": [word.text for word in self.map.hints],
            "skipped": [reading.text[start:end] for start, end in unused_spans(reading, self.map.hints)],
        }


def ground(  # noqa: PLR0913 - all but three may be left out
    classifier: Classifier,
    image: ImageSource,
    phrases: str | Sequence[str],
    *,
    proposals: str | Path | Source | Proposals = "hierarchy",
    method: str = METHOD,
    layer: Layer | None = None,
    gamma: float = GAMMA,
    trust: float = TRUST,
    side: int = SIDE,
    hints: bool = True,
    most: int | None = MOST,
) -> list[Grounded]:
    """Rank the regions of an image that each phrase may refer to.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        image: a path, a PIL image, an array [h, w, 3] or a tensor [3, h, w].
        phrases: one or several, in English; one forward pass serves all.
        proposals: the candidates: a name from `excite.grounding.proposals.PROPOSERS`, a file or folder of
            precomputed ones, or those of this image.
        method: a name from `excite.METHODS`.
        layer: of the map; None for the classifier's default.
        gamma: exponent of the area in f(R) = S_R / A_R ** gamma: 0 ranks by the map's sum, 1 by its mean.
        trust: weight of the proposals' own order and shapes, and with any the votes of overlapping ones, 0 to 1; 0: the
            map alone, as in the paper.
        side: the shorter side of the classifier's input.
        hints: weight the map by words of position ("left") and colour ("red").
        most: the largest number of regions; None for all.

    Example:
        >>> classifier = excite.load("words")                                               # doctest: +SKIP
        >>> (hat,) = excite.ground(classifier, "photo.jpg", "a man in a red hat")           # doctest: +SKIP
        >>> hat.regions[0].box, [word.text for word in hat.map.reading.words]               # doctest: +SKIP
        ((12.0, 30.0, 200.0, 180.0), ['man', 'hat'])
    """
    texts = _checked([phrases] if isinstance(phrases, str) else list(phrases))
    picture = read_image(image)
    found = _proposals(proposals, picture, image)
    session = GroundingSession(classifier, picture, found, method=method, layer=layer, trust=trust, side=side)
    return session.ground(texts, gamma=gamma, hints=hints, most=most)


class GroundingSession(PhraseSession):
    """A session with an image's proposals: `excite.ground` for phrases that come one after the other, in any thread."""

    def __init__(
        self,
        classifier: Classifier,
        picture: Image.Image,
        proposals: Proposals,
        *,
        method: str = METHOD,
        layer: Layer | None = None,
        trust: float = TRUST,
        side: int = SIDE,
    ) -> None:
        if side < 1:
            raise DataError(f"nothing can be seen in an image with a side of {side}: give at least 1")
        self._method = find_method(method)
        super().__init__(classifier, picture, [self._method], layer=layer, side=side)
        self._scorer = Scorer(proposals, trust)

    def ground(
        self, phrases: Sequence[str], *, gamma: float = GAMMA, hints: bool = True, most: int | None = MOST
    ) -> list[Grounded]:
        """The regions that phrases refer to, see `excite.ground`."""
        if not 0 <= gamma <= MOST_GAMMA:
            raise DataError(f"gamma is a number from 0 to 1, {MOST_GAMMA:g} at most, not {gamma}")
        if most is not None and most < 1:
            raise DataError(f"at most {most} regions are none: ask for at least 1")
        readings = [read_phrase(text, self.labels) for text in _checked(phrases)]
        with self.lock:
            maps = self.phrase_maps(self._method, readings, hints=hints)
        return [
            grounded(self._scorer, one, gamma, most) if one.understood else Grounded(phrase, (), one)
            for phrase, one in zip(phrases, maps, strict=True)
        ]

    @property
    def size(self) -> int:
        """The bytes that the forward passes and the proposals hold."""
        return super().size + self._scorer.proposals.nbytes


def grounded(scorer: Scorer, found: PhraseMap, gamma: float = GAMMA, most: int | None = MOST) -> Grounded:
    """The regions of an image that a phrase may refer to, best first, and its point; none where its map is empty.

    The whole image is a good answer only where the evidence is everywhere, so its score is multiplied by `spread`.
    """
    boxes, (width, height) = scorer.proposals.boxes, scorer.proposals.size
    is_whole = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) > WHOLE * width * height
    scores = region_scores(scorer, found, gamma) * np.where(is_whole, spread(found.plane), 1)
    chosen = zip(*scorer.chosen(scores, most), strict=True)
    regions = tuple(Region(tuple(boxes[k].tolist()), float(score)) for k, score in chosen)
    return Grounded(found.reading.text, regions, found, phrase_point(scorer, found, scores))


def phrase_point(scorer: Scorer, found: PhraseMap, scores: NDArray[np.floating[Any]]) -> tuple[int, int] | None:
    """The pixel (x, y) that is most likely meant: with hints, which choose one of several, where most votes lie."""
    return scorer.point(scores) if found.hints and scorer.trust and len(scores) else found.point


def region_scores(scorer: Scorer, found: PhraseMap, gamma: float) -> NDArray[np.floating[Any]]:
    """The score of each proposal for a phrase: by its map, and with hints as one of several objects."""
    weights = instance_weights(found, scorer.proposals.boxes, scorer.proposals.size)
    return scorer.scores(found.plane, gamma) * weights


def spread(plane: NDArray[np.floating[Any]]) -> float:
    """The share of an image whose strongest pixels hold nine tenths of a map's evidence.

    Example:
        >>> spread(np.ones((10, 10))), spread(np.eye(10))
        (0.9, 0.09)
    """
    held = np.sort(plane, axis=None)[::-1].cumsum(dtype=np.float64)
    return float((held <= 0.9 * held[-1]).mean()) if held[-1] > 0 else 0.0


def _checked(phrases: Sequence[str]) -> Sequence[str]:
    """The phrases, or an error if one is blank or there is none."""
    if not phrases or not all(text.strip() for text in phrases):
        raise ConceptError("a phrase is blank: write what to look for, such as 'a man in a red hat'")
    return phrases


def _proposals(wanted: str | Path | Source | Proposals, picture: Image.Image, image: ImageSource) -> Proposals:
    """The candidates of an image from any kind of source."""
    from excite.grounding.proposals import Proposals, find_proposer

    if isinstance(wanted, Proposals):
        if wanted.size != picture.size:
            raise DataError(
                f"the proposals are for an image of {wanted.size[0]} x {wanted.size[1]} pixels, this one has "
                f"{picture.size[0]} x {picture.size[1]}: give its own"
            )
        return wanted
    source = find_proposer(wanted) if isinstance(wanted, (str, Path)) else wanted
    path = Path(image) if isinstance(image, (str, os.PathLike)) else None
    return source.of(picture, path.name if path else "", path)


# Figures, and the words of a phrase.


def as_map(grounded: Grounded) -> AttentionMap:
    """The map of a phrase as an `AttentionMap`, to save and compare; its mass is the mean of its words'."""
    words = grounded.map.words
    return replace(
        words[0],
        values=torch.from_numpy(np.ascontiguousarray(grounded.map.plane)),
        concept=grounded.phrase,
        mass=sum(word.mass for word in words) / len(words),
        probability=None,
        units=(),
    )


def _word_maps(reading: Reading, maps: Sequence[AttentionMap]) -> list[WordMap]:
    """One map for each concept: two words of the same concept share one."""
    from excite.readouts.figure import WordMap

    if not reading.words:
        return [WordMap(one.concept, one.values, percent(one.probability)) for one in maps]
    found = {word.concept: one for word, one in zip(reading.words, maps, strict=True)}
    shown = []
    for concept, one in found.items():
        written = [word for word in reading.words if word.concept == concept]
        title = written[0].text
        meaning = "" if title.casefold().startswith(one.concept.casefold()) else one.concept  # not of the same word
        note = " ".join(filter(None, (meaning, percent(one.probability))))
        shown.append(WordMap(title, one.values, note, tuple((word.start, word.end) for word in written)))
    return shown


def unused_spans(reading: Reading, hints: Sequence[PlaceWord | ColourWord]) -> tuple[Span, ...]:
    """The positions of the content words without effect on the map: those skipped, and hints that were not applied."""
    possible = [*map(span_of, reading.places), *map(span_of, reading.colours)]
    used = {*map(span_of, hints), *((word.start, word.end) for word in reading.words)}
    missing = list(reading.skipped)
    spans = [span for span in possible if not any(first <= span[0] and span[1] <= last for first, last in used)]
    for token in tokens_of(reading.text):  # the words skipped are in the order of the phrase, with stop words between
        if any(first < token.end and token.start < last for first, last in (*possible, *used)):
            continue
        if missing and token.text == missing[0]:
            spans.append((token.start, token.end))
            del missing[0]
    return tuple(sorted(spans))


def span_of(word: PlaceWord | ColourWord) -> Span:
    """The positions of a word's first letter and end in its phrase."""
    return word.start, word.end
