"""A map resized to its image and drawn over it, and the colour tables for maps.

Each table has 256 colours on a path through a few anchor colours, at *equal steps of lightness*: more evidence is
always lighter, in print without colour as well. The anchors lie on the blue-yellow axis, which is seen alike with
red-green colour blindness. A dark photograph is lifted first, so that there is something to see beside the evidence.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageStat
from torch import Tensor
from torch.nn.functional import interpolate, max_pool2d

from excite.errors import ExciteError

Mode = Literal["bicubic", "bilinear", "nearest"]  # the interpolation
Style = Literal["heat", "spotlight", "contours"]  # how evidence is shown


def upsample(values: Tensor, size: tuple[int, int], mode: Mode = "bicubic") -> Tensor:
    """Resize a map ``[h, w]`` to an image of ``(width, height)``, pixel areas on pixel areas (``align_corners=False``).

    Cubic interpolation is the default, as in the authors' code; it may overshoot a little beside a steep peak. Where
    the image is *smaller* than the map, bicubic and bilinear average the map down first, so that no evidence is lost.
    The result is in float32, or in the map's own precision where that is higher.
    """
    values = checked_map(values)
    width, height = checked_size(size)
    if mode not in get_args(Mode):
        raise ExciteError(f"there is no interpolation {mode!r}: use one of {', '.join(get_args(Mode))}.")
    batch = values[None, None]
    if mode == "nearest":
        return interpolate(batch, size=(height, width), mode="nearest-exact")[0, 0]
    # torch's own smoothing (antialias=True) mixes up rows when the image is one pixel wide, as of torch 2.13
    common = min(height, values.shape[0]), min(width, values.shape[1])
    batch = interpolate(batch, size=common, mode="area")
    return interpolate(batch, size=(height, width), mode=mode, align_corners=False)[0, 0]


def checked_map(values: Tensor) -> Tensor:
    """The map in at least float32; an error for what is no plane of finite numbers (an argmax over NaN looks valid)."""
    if not isinstance(values, Tensor):
        raise ExciteError(f"a map must be a torch.Tensor, not {type(values).__name__}: use torch.as_tensor(values).")
    if values.ndim != 2 or values.numel() == 0:
        raise ExciteError(
            f"a map must be a plane [h, w] with h, w >= 1, not {list(values.shape)}: pass one map at a time."
        )
    if values.is_complex():
        raise ExciteError("a map must hold real numbers, not complex ones: pass its absolute value or its real part.")
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if not values.isfinite().all():
        raise ExciteError("the map holds NaN or infinity: look for the layer or the image that brought them in.")
    return values


def checked_size(size: tuple[int, int]) -> tuple[int, int]:
    """The ``(width, height)`` of an image as plain integers; an error for anything else, such as an array's shape."""
    try:
        width, height = map(int, size)
        sensible = (width, height) == tuple(size) and width > 0 and height > 0
    except (TypeError, ValueError, OverflowError):
        sensible = False
    if not sensible:
        raise ExciteError(f"an image's size must be (width, height) in whole pixels, both at least 1, not {size!r}.")
    return width, height


ANCHORS = {
    "evidence": ((16, 18, 64), (28, 74, 140), (16, 138, 146), (120, 196, 104), (255, 238, 110)),  # blue, teal, yellow
    "ember": ((12, 10, 30), (92, 24, 110), (196, 60, 78), (246, 150, 40), (255, 246, 190)),  # for blue or green images
    "grey": ((0, 0, 0), (255, 255, 255)),  # for print and for colour blindness
}
AGAINST_ANCHORS = ((0, 94, 196), (100, 165, 230), (244, 243, 240))  # blue to nearly white: negative evidence
FOR_ANCHORS = ((174, 58, 0), (240, 150, 60), (244, 243, 240))  # deep orange to nearly white: positive evidence
SATURATION, BRIGHTNESS = 0.4, 0.8  # of the image without evidence, so that the colours of the map stand out
DIM = 0.35  # the brightness of the image around a spotlight
LEAST_LIGHT, MOST_LIFT = 0.36, 0.45  # the mean of an image, 0 to 1, below which it is lifted, and the least exponent
LEVELS = {0.25: 128, 0.5: 192, 0.75: 255}  # of the strongest evidence, where contours run, and their colours
SIGNED_LEVELS = {-0.75: 16, -0.5: 48, -0.25: 80, 0.25: 175, 0.5: 207, 0.75: 239}
GAMMA = 0.6  # below 1, half the evidence covers more than half of the image
FINER = 4  # marks are drawn this many times larger and reduced, which smooths their edges
DARK, LIGHT = (12, 12, 20), (255, 255, 255)  # a light line between dark ones shows on any background


def overlay(
    image: Image.Image,
    values: Tensor,
    *,
    opacity: float = 0.6,
    mode: Mode = "bicubic",
    point: tuple[int, int] | None = None,
    boxes: Sequence[tuple[int, int, int, int]] = (),
    style: Style = "heat",
) -> Image.Image:
    """Draw a map over its image.

    The map is divided by its maximum, so that overlays of different maps read alike: yellow is its maximum. A map with
    negative values is divided by its largest absolute value and drawn in blue (negative) and orange (positive).
    The style ``heat`` covers the image with colour, the more the stronger the evidence, up to ``opacity``; where there
    is none the image stays visible, dimmer and with less colour. ``spotlight`` leaves the image as it is where evidence
    is and dims the rest; ``contours`` draws lines around a quarter, a half and three quarters of the maximum.
    A ring marks the ``point``, an outline each of the half-open ``boxes``. The result is a new RGB image of the same
    size.
    """
    checked_style(style)
    if not 0 <= opacity <= 1:
        raise ExciteError(f"opacity must be within 0..1, not {opacity!r}: 0 hides the map, 1 covers the image.")
    values = checked_map(values.detach())
    signed = bool(values.min() < -1e-3 * values.abs().max())  # not rounding about zero
    strength = upsample(values, image.size, mode)
    if not signed:
        strength = strength.clamp(min=0)  # cubic interpolation dips below zero beside a peak
    largest = strength.abs().max()
    scaled = (strength / largest if largest > 0 else strength).float().cpu()
    picture, table = lifted(image.convert("RGB")), signed_colours() if signed else TABLES["evidence"]()
    if style == "contours":
        drawn = picture.copy()
        _contours(drawn, scaled, table, SIGNED_LEVELS if signed else LEVELS)
    else:
        heat = style == "heat"
        cover = scaled.abs() ** GAMMA * opacity if heat else scaled.clamp(min=0) ** GAMMA
        index = np.rint((scaled.numpy() + 1) * 127.5 if signed else scaled.numpy() * 255).astype(np.uint8)
        front = Image.fromarray(table[index]) if heat else picture
        mask = Image.fromarray(np.rint(cover.numpy() * 255).astype(np.uint8))
        grey = ImageEnhance.Color(picture).enhance(SATURATION)
        drawn = Image.composite(front, ImageEnhance.Brightness(grey).enhance(BRIGHTNESS if heat else DIM), mask)
    for box in boxes:
        _draw_box(drawn, box)
    if point is not None:
        _draw_ring(drawn, point)
    return drawn


def checked_style(style: str) -> Style:
    """The name of a style, or an error."""
    if style not in get_args(Style):
        raise ExciteError(f"there is no style {style!r}: use one of {', '.join(get_args(Style))}.")
    return cast("Style", style)


def lifted(picture: Image.Image) -> Image.Image:
    """A dark image with its shadows lifted (an exponent below 1); any other as it is, also one without detail."""
    grey = ImageStat.Stat(picture.convert("L"))
    mean, detail = grey.mean[0] / 255, grey.extrema[0][0] < grey.extrema[0][1]
    exponent = max(MOST_LIFT, math.log(LEAST_LIGHT) / math.log(mean)) if detail and mean < LEAST_LIGHT else 1.0
    return picture if exponent == 1 else picture.point([round(255 * (k / 255) ** exponent) for k in range(256)] * 3)


def _contours(picture: Image.Image, scaled: Tensor, table: NDArray[np.uint8], levels: Mapping[float, int]) -> None:
    """Draw lines with dark edges where the evidence crosses each level, in the colour of that number."""
    width = _line_width(picture)
    for level, number in levels.items():
        inside = (scaled * math.copysign(1, level) >= abs(level)).float()[None, None]
        for ink, reach in ((DARK, width), (tuple(table[number].tolist()), max(1, width // 2))):
            around = max_pool2d(inside, 2 * reach + 1, 1, reach) + max_pool2d(-inside, 2 * reach + 1, 1, reach)
            picture.paste(ink, mask=Image.fromarray((around[0, 0].numpy() > 0).astype(np.uint8) * 255))


def _line_width(image: Image.Image) -> int:
    """In proportion to the image, so that marks look alike at any size; seen on a telephone, two of its pixels."""
    return max(1, round(math.sqrt(image.width * image.height) / 180))


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
        raise ExciteError(f"the point {point} is outside the image of {drawn.width} x {drawn.height} pixels.")
    width = _line_width(drawn)
    radius, edge = min(7 * width, max(5, min(drawn.size) // 6)), max(1.0, 0.75 * width)
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


@cache
def _even_steps(anchors: tuple[tuple[int, int, int], ...], count: int = 256) -> NDArray[np.uint8]:
    """``count`` colours at equal steps of lightness on the path through the anchors, dark to light; read-only."""
    corners = np.array(anchors, dtype=np.float64)
    along = np.linspace(0, len(corners) - 1, 4096)
    path = np.stack([np.interp(along, np.arange(len(corners)), channel) for channel in corners.T], axis=1)
    light = lightness(path)
    wanted = np.linspace(light[0], light[-1], count)
    picked = np.stack([np.interp(wanted, light, channel) for channel in path.T], axis=1)
    table: NDArray[np.uint8] = np.rint(picked).astype(np.uint8)
    table.setflags(write=False)
    return table


TABLES: Mapping[str, Callable[[], NDArray[np.uint8]]] = {
    name: partial(_even_steps, anchors) for name, anchors in ANCHORS.items()
}
"""The colour tables to choose from: 256 colours, dark for no evidence and light for the most; read-only."""


@cache
def signed_colours() -> NDArray[np.uint8]:
    """The 256 colours for signed maps: blue, nearly white at zero, orange, equally dark at equal values; read-only."""
    table = np.concatenate([_even_steps(AGAINST_ANCHORS, 128), _even_steps(FOR_ANCHORS, 128)[::-1]])
    table.setflags(write=False)
    return table


def lightness(colours: NDArray[np.generic]) -> NDArray[np.float64]:
    """The perceived lightness (CIE L*, 0 black to 100 white) of sRGB colours ``[..., 3]`` in 0..255."""
    srgb = np.asarray(colours, dtype=np.float64) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    light: NDArray[np.float64] = np.where(
        luminance > (6 / 29) ** 3, 116 * np.cbrt(luminance) - 16, luminance * (29 / 3) ** 3
    )
    return light
