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
    from numpy.typing import NDArray
    from PIL import Image

    from excite.vocabulary import Reading

    Plane = NDArray[np.floating[Any]]

__all__ = ["hinted"]

STEEPNESS = 4
"""The power of the ramp from one side of the picture to the other."""

FAINTEST = 0.1
"""What is left of the evidence where nothing has the colour: a colour is often named for a part, or wrongly."""


def hinted(plane: Plane, reading: Reading, picture: Image.Image) -> Plane:
    """The map of a phrase [height, width], weighed by its words for places and colours.

    Args:
        plane: at the size of the picture.
        reading: of the phrase.
        picture: in mode RGB.

    Example:
        >>> from PIL import Image
        >>> from excite.vocabulary import Labels, read_phrase
        >>> weighed = hinted(np.ones((1, 4)), read_phrase("left dog", Labels(["dog"])), Image.new("RGB", (4, 1)))
        >>> weighed.round(2).tolist()
        [[0.59, 0.15, 0.02, 0.0]]
    """
    for kind in dict.fromkeys(place.kind for place in reading.places if not place.related):
        plane = plane * _ramp(kind, plane.shape)
    for kind in dict.fromkeys(colour.kind for colour in reading.colours):
        plane = plane * (FAINTEST + (1 - FAINTEST) * colour_plane(picture, kind))
    return plane


def _ramp(kind: str, shape: tuple[int, ...]) -> Plane:
    """From 0 to 1, towards where the word sends the eye; 1 everywhere for words that name no side.

    What is near stands low in most pictures, and what is far stands high.
    """
    rows, columns = ((np.arange(side) + 0.5) / side for side in shape)
    ramps: dict[str, Plane] = {
        "left": 1 - columns[None],
        "right": columns[None],
        "top": 1 - rows[:, None],
        "bottom": rows[:, None],
        "front": rows[:, None],
        "back": 1 - rows[:, None],
        "middle": 1 - np.abs(2 * columns[None] - 1),
    }
    return ramps.get(kind, np.ones((1, 1))) ** STEEPNESS
