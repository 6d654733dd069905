"""The maps of phrases: the mean of the maps of their words (paper, 4.3), weighted by words of position and colour.

A classifier has no unit for "left", and its units for colours respond to scenes more than to surfaces. So such words
weight the map by the pixels of the image itself: on RefCOCO they are worth more than any other change.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from excite.errors import ConceptError, LostSignalWarning
from excite.methods import Method, find_method
from excite.models.classifier import Preprocess
from excite.readouts.overlay import upsample
from excite.session import Session
from excite.vocabulary import ColourWord, Concept, PlaceWord, Reading, read_phrase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from excite.attention import AttentionMap
    from excite.models import Classifier
    from excite.session import Layer

    Plane = NDArray[np.floating[Any]]

SIDE = 300  # the shorter side of the classifier's input: the paper's, larger than usual, for small objects
FINDINGS, ANYTHING = 12, "anything"  # so many most probable units stand for a phrase without a known word
HEAD = 3.0  # the weight of the head of a phrase, relative to its other words: *the dog* beside a horse
STEEPNESS = 6  # the power of the ramp from one side of the image to the other
THERE = 0.8  # from here on a position has full weight: nobody means the very edge of the image
FAINTEST = 0.05  # the weight where the colour is absent: a colour is often named for a part, or wrongly

SIDES: Mapping[str, tuple[int, Callable[[Plane], Plane]]] = {
    "left": (1, lambda at: 1 - at),
    "right": (1, lambda at: at),
    "middle": (1, lambda at: 1 - np.abs(2 * at - 1)),
    "top": (0, lambda at: 1 - at),
    "bottom": (0, lambda at: at),
    "front": (0, lambda at: at),  # what is near stands low in most images, and what is far stands high
    "back": (0, lambda at: 1 - at),
}
"""Words of position: the axis, and the weight of a position from 0 to 1 along it."""

CELLS, AROUND = 64, 7  # along each side, and in the mean: a colour is that of a surface, not of a pixel
HUES = {"red": 0, "orange": 25, "yellow": 50, "green": 120, "blue": 215, "purple": 280, "pink": 335}
HUE_WIDTH = 40  # degrees from a hue at which its weight is 0
BROWN, BROWN_WIDTH = 25, 25
COLOURS = (*HUES, "brown", "black", "white", "grey")


@dataclass(frozen=True, eq=False)
class PhraseMap:
    """The map of a phrase."""

    reading: Reading  # the concepts of its words
    words: tuple[AttentionMap, ...]  # of each known word; without any, the map of the most probable units
    plane: Plane  # their mean with more weight on the head, weighted by the hints, of the image's size [height, width]
    hints: tuple[PlaceWord | ColourWord, ...] = ()  # the words of position and colour that weight it

    @property
    def known(self) -> bool:
        """Whether the classifier knows any of its words."""
        return bool(self.reading.words)

    @property
    def understood(self) -> bool:
        """Whether it has a known word, or a hint ("the left one"), which weights what the classifier finds."""
        return self.known or bool(self.hints)

    @property
    def head(self) -> AttentionMap:
        """The map of the word that names the object."""
        named = zip(self.reading.words, self.words, strict=self.known)
        return next((found for word, found in named if word == self.reading.head), self.words[0])

    @property
    def point(self) -> tuple[int, int] | None:
        """The pixel (x, y) with most evidence; None where there is none."""
        y, x = divmod(int(self.plane.argmax()), self.plane.shape[1])
        return (x, y) if self.plane[y, x] > 0 else None


class PhraseSession(Session):
    """A session of one image in mode RGB, its shorter side enlarged to ``side``, that maps phrases."""

    def __init__(
        self,
        classifier: Classifier,
        picture: Image.Image,
        methods: Sequence[Method],
        *,
        layer: Layer | dict[Method, Sequence[str]] | None = None,
        side: int = SIDE,
    ) -> None:
        if classifier.labels is None:
            raise ConceptError(f"{classifier.name} has no labels to read a phrase with: load it with labels")
        scale = enlargement(classifier, side)
        scales = dict.fromkeys([1.0, *(one for method in methods for one in method.scales)])
        inputs = {one: classifier.prepared(picture, one * scale)[None] for one in scales}
        self.picture = picture
        super().__init__(classifier, inputs, methods, layer=layer)
        self.labels = classifier.labels  # known without a forward pass

    def phrase_maps(self, method: Method, readings: Sequence[Reading], *, hints: bool = True) -> list[PhraseMap]:
        """The map of each phrase; without hints, all words count the same, as in the paper."""
        cues = [[word.concept for word in reading.words] or [self._anything()] for reading in readings]
        wanted = list(dict.fromkeys(cue for each in cues for cue in each))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostSignalWarning)  # each map has its mass
            (found,) = self.attend(method, [wanted], [self.picture])
        maps = dict(zip(wanted, found, strict=True))
        both = zip(readings, cues, strict=True)
        return [self._phrase(reading, tuple(maps[cue] for cue in each), hints=hints) for reading, each in both]

    def _anything(self) -> Concept:
        """What the classifier finds in the image, whatever that is."""
        best = self.probabilities[0, : len(self.labels)].topk(min(FINDINGS, len(self.labels))).indices
        return Concept(ANYTHING, tuple(best.tolist()))

    def _phrase(self, reading: Reading, words: tuple[AttentionMap, ...], *, hints: bool) -> PhraseMap:
        counts = torch.tensor([HEAD if hints and word == reading.head else 1.0 for word in reading.words or (None,)])
        mean = torch.einsum("w,wyx->yx", counts / counts.sum(), torch.stack([word.values for word in words]))
        plane: Plane = upsample(mean, self.picture.size).clamp(min=0).numpy()
        weighing = active_hints(reading) if hints else ()
        return PhraseMap(reading, words, apply_hints(plane, weighing, self.picture), weighing)


def map_phrases(
    classifier: Classifier,
    picture: Image.Image,
    phrases: Sequence[str],
    *,
    method: str = "c-mwp",
    layer: Layer | None = None,
    side: int = SIDE,
    hints: bool = True,
) -> list[PhraseMap]:
    """Where in an image phrases point: for each the mean of the maps of its words (paper, 4.3).

    The picture is in mode RGB; the other arguments are those of `excite.ground`.
    """
    chosen = find_method(method)
    session = PhraseSession(classifier, picture, [chosen], layer=layer, side=side)
    return session.phrase_maps(chosen, [read_phrase(text, session.labels) for text in phrases], hints=hints)


def enlargement(classifier: Classifier, side: int) -> float:
    """The scale of the preprocessing for this shorter side; 1 for networks with a fixed input size."""
    prepare = classifier.preprocess
    if not isinstance(prepare, Preprocess) or prepare.square:
        return 1.0
    return side / prepare.shorter_side


# Words of position and colour.


def active_hints(reading: Reading) -> tuple[PlaceWord | ColourWord, ...]:
    """The words of a phrase that weight its map, in order: some of position do not ("second", "left of the car")."""
    places = (place for place in reading.places if place.kind in SIDES and not place.related)
    return tuple(sorted((*places, *reading.colours), key=lambda word: word.start))


def apply_hints(plane: Plane, words: Sequence[PlaceWord | ColourWord], picture: Image.Image) -> Plane:
    """The map of a phrase [height, width] weighted by its hints; a repeated hint counts once."""
    for kind in dict.fromkeys(word.kind for word in words):
        if kind in SIDES:
            axis, towards = SIDES[kind]
            at = (np.arange(plane.shape[axis]) + 0.5) / plane.shape[axis]
            plane = plane * np.expand_dims((towards(at) / THERE).clip(max=1) ** STEEPNESS, 1 - axis)
        else:
            plane = plane * (FAINTEST + (1 - FAINTEST) * colour_map(picture, kind))
    return plane


def colour_map(picture: Image.Image, colour: str) -> Plane:
    """How much the surroundings of each pixel have a colour, one of `COLOURS`: 0 to 1 [height, width]."""
    small = picture.resize((CELLS, CELLS), Image.Resampling.BOX).convert("HSV")
    hue, saturation, value = np.moveaxis(np.asarray(small, np.float64) / 255, -1, 0)
    cells = torch.from_numpy(_colour_match(hue * 360, saturation, value, colour))
    around = functional.pad(cells[None, None], [AROUND // 2] * 4, mode="replicate")
    mean = functional.avg_pool2d(around, AROUND, stride=1)
    width, height = picture.size
    plane: Plane = functional.interpolate(mean, (height, width), mode="bilinear", align_corners=False)[0, 0].numpy()
    return plane


def _colour_match(hue: Plane, saturation: Plane, value: Plane, colour: str) -> Plane:
    """0 to 1, by rules of thumb: hues need saturation and brightness, the others have little saturation."""
    if colour in HUES:
        return _near(hue, HUES[colour], HUE_WIDTH) * _up_to_1(1.5 * saturation) * _up_to_1(1.5 * value)
    if colour == "brown":
        return _near(hue, BROWN, BROWN_WIDTH) * _up_to_1(1.5 * saturation) * _up_to_1(1 - np.abs(2 * value - 0.9))
    if colour == "white":
        return _up_to_1(1 - 2 * saturation) * _up_to_1(2 * value - 1)
    if colour == "black":
        return _up_to_1(1 - 2 * value)
    return _up_to_1(1 - 3 * saturation) * _up_to_1(1 - np.abs(3 * value - 1.5))


def _near(hue: Plane, wanted: float, width: float) -> Plane:
    """1 at the hue, falling to 0 at so many degrees beside it."""
    return _up_to_1(1 - np.abs((hue - wanted + 180) % 360 - 180) / width)


def _up_to_1(values: Plane) -> Plane:
    return values.clip(0, 1)
