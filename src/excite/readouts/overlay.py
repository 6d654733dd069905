"""The map over its picture, for human eyes."""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance
from torch import Tensor

from excite.errors import ExciteError
from excite.readouts.colours import evidence_colours, signed_colours
from excite.readouts.upsample import Mode, checked_map, upsample

__all__ = ["overlay"]

SATURATION = 0.15
"""How much of the picture's colour is left where there is no evidence: the map's colours must stand out."""

BRIGHTNESS = 0.8
"""How bright the picture is where there is no evidence."""

GAMMA = 0.6
"""How fast evidence starts to cover the picture: below 1, half the evidence covers more than half."""

FINER = 4
"""Marks are drawn this many times larger and shrunk, which smooths their edges."""

DARK, LIGHT = (12, 12, 20), (255, 255, 255)
"""A light line between dark ones shows on any background."""


def overlay(
    image: Image.Image,
    values: Tensor,
    *,
    opacity: float = 0.6,
    mode: Mode = "bicubic",
    point: tuple[int, int] | None = None,
    box: tuple[int, int, int, int] | None = None,
) -> Image.Image:
    """Draw a map over its picture, in colours that cover the more the more evidence there is.

    The map is divided by its maximum, so that overlays of different maps can be read the same way: yellow is
    where this map is strongest. Where there is no evidence the picture stays visible, dimmed and nearly grey;
    a map without any evidence gives just that. A map with negative values is drawn by its largest absolute
    value in blue (against) and orange (for).

    Args:
        image: the picture; it is not changed.
        values: the map, ``[h, w]``, of any size.
        opacity: how much of the picture the strongest evidence covers, 0 to 1.
        mode: how the map is stretched over the picture.
        point: ``(x, y)`` to mark with a ring, as `maximum_point` gives it.
        box: ``(x0, y0, x1, y1)`` to outline, half-open, as `threshold_box` gives it.

    Returns:
        A new RGB picture of the same size.

    Raises:
        ExciteError: the map is not a finite, non-empty plane, the opacity is not within 0..1, the point is
            outside the picture or the box holds no pixel.

    Example:
        >>> import torch
        >>> overlay(Image.new("RGB", (40, 30)), torch.eye(7), point=(0, 0)).size
        (40, 30)
    """
    if not 0 <= opacity <= 1:
        raise ExciteError(f"opacity must be within 0..1, not {opacity!r}: 0 hides the map, 1 covers the picture.")
    signed = _is_signed(values)
    strength = _strength(upsample(values.detach(), image.size, mode), signed=signed)
    table = signed_colours() if signed else evidence_colours()
    index = np.rint((strength + 1) * 127.5 if signed else strength * 255).astype(np.uint8)
    cover = Image.fromarray(np.rint(np.abs(strength) ** GAMMA * (opacity * 255)).astype(np.uint8))
    drawn = Image.composite(Image.fromarray(table[index]), _dimmed(image.convert("RGB")), cover)
    if box is not None:
        _draw_box(drawn, box)
    if point is not None:
        _draw_ring(drawn, point)
    return drawn


def _is_signed(values: Tensor) -> bool:
    """Whether the map has negative values that could be seen: rounding about zero does not count."""
    values = checked_map(values)
    return bool(values.min() < -1e-3 * values.abs().max())


def _strength(stretched: Tensor, *, signed: bool) -> NDArray[np.float32]:
    """The map divided by its largest absolute value: within 0..1, or -1..1 when signed; zeros stay zeros."""
    if not signed:
        stretched = stretched.clamp(min=0)  # the cubic curve dips below zero beside a peak
    largest = stretched.abs().max()
    strength: NDArray[np.float32] = (stretched / largest if largest > 0 else stretched).float().cpu().numpy()
    return strength


def _dimmed(image: Image.Image) -> Image.Image:
    """The picture with less colour and less light: visible, but behind the map."""
    return ImageEnhance.Brightness(ImageEnhance.Color(image).enhance(SATURATION)).enhance(BRIGHTNESS)


def _line_width(image: Image.Image) -> int:
    """Marks grow with the picture, so that they look the same when it is shown at another size."""
    return max(1, round(math.sqrt(image.width * image.height) / 250))


def _draw_box(drawn: Image.Image, box: tuple[int, int, int, int]) -> None:
    """Outline a half-open box: a light line on its outermost pixels between two dark ones."""
    x0, y0, x1, y1 = box
    if x0 >= x1 or y0 >= y1:
        raise ExciteError(f"the box {box} holds no pixel: a box is (x0, y0, x1, y1) with x0 < x1 and y0 < y1.")
    width = _line_width(drawn)
    edge = max(1, width // 2)
    draw = ImageDraw.Draw(drawn)
    draw.rectangle((x0 - edge, y0 - edge, x1 - 1 + edge, y1 - 1 + edge), outline=DARK, width=width + 2 * edge)
    draw.rectangle((x0, y0, x1 - 1, y1 - 1), outline=LIGHT, width=width)


def _draw_ring(drawn: Image.Image, point: tuple[int, int]) -> None:
    """Mark a pixel with a ring and a dot in its middle, light on dark."""
    x, y = point
    if not (0 <= x < drawn.width and 0 <= y < drawn.height):
        raise ExciteError(f"the point {point} is outside the picture of {drawn.width} x {drawn.height} pixels.")
    width = _line_width(drawn)
    radius, edge = min(9 * width, max(5, min(drawn.size) // 6)), max(1.0, 0.75 * width)
    reach = radius + 2 * width
    for colour, extra in ((DARK, edge), (LIGHT, 0.0)):
        stencil = _ring_stencil(reach, radius + extra, 1.5 * width + 2 * extra, dot=1.25 * width + extra)
        drawn.paste(colour, (x - reach, y - reach), stencil)


def _ring_stencil(reach: int, outside: float, thick: float, *, dot: float) -> Image.Image:
    """A smooth mask, ``2 * reach + 1`` pixels wide: a ring ``thick`` inside its outer radius, and a dot."""
    side = (2 * reach + 1) * FINER
    stencil = Image.new("L", (side, side))
    draw = ImageDraw.Draw(stencil)
    for radius, ink in ((outside, 255), (outside - thick, 0), (dot, 255)):
        near, far = side / 2 - radius * FINER, side / 2 + radius * FINER - 1
        draw.ellipse((near, near, far, far), fill=ink)
    return stencil.resize((2 * reach + 1, 2 * reach + 1), Image.Resampling.BOX)
