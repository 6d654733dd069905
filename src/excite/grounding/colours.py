"""How much each place of a picture has a colour that people name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Plane = NDArray[np.floating[Any]]

__all__ = ["COLOURS", "colour_plane"]

PLACES = 64  # along each side: a colour is that of a surface, not of a pixel
AROUND = 7  # places whose mean counts

HUES = {"red": 0, "orange": 25, "yellow": 50, "green": 120, "blue": 215, "purple": 280, "pink": 335}
HUE_WIDTH = 40  # degrees from a hue at which nothing is left of it
BROWN, BROWN_WIDTH = 25, 25

COLOURS = (*HUES, "brown", "black", "white", "grey")


def colour_plane(picture: Image.Image, colour: str) -> Plane:
    """How much each pixel's surroundings have a colour, 0 to 1 [height, width].

    Args:
        picture: in mode RGB.
        colour: one of `COLOURS`.

    Example:
        >>> picture = Image.new("RGB", (4, 2), (255, 0, 0))
        >>> [float(colour_plane(picture, colour).max()) for colour in ("red", "blue")]
        [1.0, 0.0]
    """
    places = _has_colour(*_hue_saturation_value(picture), colour)
    around = functional.pad(torch.from_numpy(places)[None, None], [AROUND // 2] * 4, mode="replicate")
    mean = functional.avg_pool2d(around, AROUND, stride=1)
    width, height = picture.size
    plane: Plane = functional.interpolate(mean, (height, width), mode="bilinear", align_corners=False)[0, 0].numpy()
    return plane


def _hue_saturation_value(picture: Image.Image) -> tuple[Plane, Plane, Plane]:
    small = picture.resize((PLACES, PLACES), Image.Resampling.BOX).convert("HSV")
    hue, saturation, value = np.moveaxis(np.asarray(small, np.float64) / 255, -1, 0)
    return hue * 360, saturation, value


def _has_colour(hue: Plane, saturation: Plane, value: Plane, colour: str) -> Plane:
    """0 to 1, by rules of thumb: hues are plain where they are strong and bright, the others where they are pale."""
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
    """1 at the hue, 0 so many degrees beside it."""
    return _up_to_1(1 - np.abs((hue - wanted + 180) % 360 - 180) / width)


def _up_to_1(values: Plane) -> Plane:
    return values.clip(0, 1)
