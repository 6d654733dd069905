"""What the words of a phrase say beside what the classifier knows: where to look, and for which colour.

A classifier has no unit for "left", and its units for colours, where it has any, look at scenes more than at surfaces.
But the picture itself can answer: such words weigh the map of the phrase. On RefCOCO, where people tell one thing
from others like it, they are worth more than any other change (docs/grounding.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.grounding.colours import colour_plane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from PIL import Image

    from excite.vocabulary import ColourWord, PlaceWord, Reading

    Plane = NDArray[np.floating[Any]]

__all__ = ["heeded", "hinted"]

STEEPNESS = 6
"""The power of the ramp from one side of the picture to the other."""

THERE = 0.8
"""From here on a place counts in full: nobody means the very edge of the picture."""

FAINTEST = 0.05
"""What is left of the evidence where nothing has the colour: a colour is often named for a part, or wrongly."""


SIDES: Mapping[str, tuple[int, Callable[[Plane], Plane]]] = {
    "left": (1, lambda places: 1 - places),
    "right": (1, lambda places: places),
    "middle": (1, lambda places: 1 - np.abs(2 * places - 1)),
    "top": (0, lambda places: 1 - places),
    "bottom": (0, lambda places: places),
    "front": (0, lambda places: places),
    "back": (0, lambda places: 1 - places),
}
"""Words that send the eye somewhere: along which axis, and how much a place from 0 to 1 is there.

What is near stands low in most pictures, and what is far stands high.
"""


def heeded(reading: Reading) -> tuple[PlaceWord | ColourWord, ...]:
    """The words of a phrase that weigh its map, in its order: not all for places do ("second", "left of the car").

    Example:
        >>> from excite.vocabulary import Labels, read_phrase
        >>> [word.text for word in heeded(read_phrase("second red car from the left", Labels(["car"])))]
        ['red', 'left']
    """
    places = (place for place in reading.places if place.kind in SIDES and not place.related)
    return tuple(sorted((*places, *reading.colours), key=lambda word: word.start))


def hinted(plane: Plane, words: Sequence[PlaceWord | ColourWord], picture: Image.Image) -> Plane:
    """The map of a phrase [height, width], weighed by its hints; the same hint given twice counts once.

    Args:
        plane: at the size of the picture.
        words: from `heeded`.
        picture: in mode RGB.

    Example:
        >>> from PIL import Image
        >>> from excite.vocabulary import Labels, read_phrase
        >>> words = heeded(read_phrase("left dog", Labels(["dog"])))
        >>> hinted(np.ones((1, 4)), words, Image.new("RGB", (4, 1))).round(2).tolist()
        [[1.0, 0.23, 0.01, 0.0]]
    """
    for kind in dict.fromkeys(word.kind for word in words):
        if kind in SIDES:
            plane = plane * _ramp(kind, plane.shape)
        else:
            plane = plane * (FAINTEST + (1 - FAINTEST) * colour_plane(picture, kind))
    return plane


def _ramp(kind: str, shape: tuple[int, ...]) -> Plane:
    """From 0 to 1, towards where the word sends the eye."""
    axis, towards = SIDES[kind]
    places = (np.arange(shape[axis]) + 0.5) / shape[axis]
    ramp = (towards(places) / THERE).clip(max=1)
    return np.expand_dims(ramp**STEEPNESS, 1 - axis)
