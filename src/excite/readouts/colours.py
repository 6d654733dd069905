"""Colours for maps: tables of 256 colours made from a few anchors.

A colour map shows order only if every step looks as large as any other, and to the eye a step is mostly a
step in lightness. So a path is drawn through a handful of anchor colours, and the 256 colours are picked
along it at *equal steps of lightness*: more evidence is always lighter, in print without colour as well. The
tables live on the blue-yellow axis, which people with red-green colour blindness see as everyone does.
"""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["TABLES", "evidence_colours", "lightness", "signed_colours"]

EVIDENCE_ANCHORS = ((16, 18, 64), (28, 74, 140), (16, 138, 146), (120, 196, 104), (255, 238, 110))
"""Dark blue, blue, teal, green, yellow."""

EMBER_ANCHORS = ((12, 10, 30), (92, 24, 110), (196, 60, 78), (246, 150, 40), (255, 246, 190))
"""Nearly black, purple, red, orange, pale yellow: for pictures that are blue or green themselves."""

GREY_ANCHORS = ((0, 0, 0), (255, 255, 255))
"""Black to white: for print, and for whoever sees no colours."""

AGAINST_ANCHORS = ((0, 94, 196), (100, 165, 230), (244, 243, 240))
"""Blue to nearly white: what speaks against the concept, strongest first."""

FOR_ANCHORS = ((174, 58, 0), (240, 150, 60), (244, 243, 240))
"""Deep orange to nearly white: what speaks for the concept, strongest first."""


@cache
def evidence_colours() -> NDArray[np.uint8]:
    """The 256 colours for evidence: dark blue for none, over teal, to yellow for the most; read-only.

    Example:
        >>> evidence_colours().shape
        (256, 3)
    """
    return _frozen(_even_steps(EVIDENCE_ANCHORS, 256))


@cache
def ember_colours() -> NDArray[np.uint8]:
    """The 256 colours of a glow: nearly black for no evidence, over purple and orange, to pale yellow; read-only."""
    return _frozen(_even_steps(EMBER_ANCHORS, 256))


@cache
def grey_colours() -> NDArray[np.uint8]:
    """The 256 greys, at equal steps of lightness; read-only."""
    return _frozen(_even_steps(GREY_ANCHORS, 256))


TABLES: Mapping[str, Callable[[], NDArray[np.uint8]]] = {
    "evidence": evidence_colours,
    "ember": ember_colours,
    "grey": grey_colours,
}
"""The colours that people may choose for evidence."""


@cache
def signed_colours() -> NDArray[np.uint8]:
    """The 256 colours for signed maps: blue below zero, nearly white about it, orange above; read-only.

    Equally strong values of either sign are equally dark, so that neither side looks stronger than it is.

    Example:
        >>> signed_colours()[0].tolist()
        [0, 94, 196]
    """
    return _frozen(np.concatenate([_even_steps(AGAINST_ANCHORS, 128), _even_steps(FOR_ANCHORS, 128)[::-1]]))


def lightness(colours: NDArray[np.generic]) -> NDArray[np.float64]:
    """The perceived lightness (CIE L*, 0 black to 100 white) of sRGB colours ``[..., 3]`` in 0..255.

    Example:
        >>> lightness(np.array([255, 255, 255])).round()
        np.float64(100.0)
    """
    srgb = np.asarray(colours, dtype=np.float64) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    light: NDArray[np.float64] = np.where(
        luminance > (6 / 29) ** 3, 116 * np.cbrt(luminance) - 16, luminance * (29 / 3) ** 3
    )
    return light


def _even_steps(anchors: tuple[tuple[int, int, int], ...], count: int) -> NDArray[np.uint8]:
    """Pick ``count`` colours at equal steps of lightness on the path through the anchors, dark to light."""
    corners = np.array(anchors, dtype=np.float64)
    along = np.linspace(0, len(corners) - 1, 4096)
    path = np.stack([np.interp(along, np.arange(len(corners)), channel) for channel in corners.T], axis=1)
    light = lightness(path)
    wanted = np.linspace(light[0], light[-1], count)
    picked = np.stack([np.interp(wanted, light, channel) for channel in path.T], axis=1)
    table: NDArray[np.uint8] = np.rint(picked).astype(np.uint8)
    return table


def _frozen(table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    table.setflags(write=False)
    return table
