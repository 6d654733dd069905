"""How strongly an image changes at each pixel: the borders of things, from colours and texture.

The share of each colour around a pixel is followed instead of the colour itself: a striped shirt has strong edges
inside, but the stripes on both sides of such an edge are the same mixture a few pixels further away. So the finest
scale looks at the colours, and the coarser ones look at how mixtures of colours and directions change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["edge_strength"]

FAINTEST = 1e-4
"""A change of one grey level is ten times as strong; what is below is rounding, and must not make regions."""


def lab(picture: Array) -> Tensor:
    """The colours of an sRGB image [height, width, 3] as CIE Lab [3, height, width], roughly within -1..1.

    Example:
        >>> [round(value, 2) + 0 for value in lab(np.full((1, 1, 3), 255, np.uint8)).flatten().tolist()]
        [1.0, 0.0, 0.0]
    """
    linear = torch.from_numpy(picture.astype(np.float32) / 255)
    linear = torch.where(linear > 0.04045, ((linear + 0.055) / 1.055) ** 2.4, linear / 12.92)
    to_xyz = torch.tensor(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]],
        dtype=torch.float32,
    ) / torch.tensor([[0.9505], [1.0], [1.089]])
    xyz = torch.einsum("oc,hwc->ohw", to_xyz, linear)
    cube = torch.where(xyz > 0.008856, xyz.clamp_min(1e-6) ** (1 / 3), 7.787 * xyz + 16 / 116)
    light = 1.16 * cube[1] - 0.16
    return torch.stack([light, 5 * (cube[0] - cube[1]), 2 * (cube[1] - cube[2])])


def edge_strength(picture: Array, scales: tuple[float, ...] = (1.0, 2.0, 4.0)) -> list[tuple[Array, Array]]:
    """Strength of change [height, width] and its direction in radians (0 to pi), at each of the scales (in pixels).

    Example:
        >>> picture = np.zeros((9, 9, 3), np.uint8)
        >>> picture[:, 5:] = 255
        >>> [int(strength[4].argmax()) for strength, direction in edge_strength(picture, (1.0, 2.0))]
        [4, 4]
    """
    colours = lab(picture)
    mixture = torch.cat([_shares(colours), _texture(colours[0])])
    found = []
    for number, sigma in enumerate(scales):
        channels = colours if number == 0 else mixture
        found.append(_change(channels, sigma))
    return found


def _shares(colours: Tensor, bins: int = 8) -> Tensor:
    """For each pixel, how much it belongs to each of a few shades of each channel."""
    shares = []
    for channel, (low, high) in zip(colours, ((0, 1), (-0.4, 0.4), (-0.4, 0.4)), strict=True):
        place = (channel.clamp(low, high) - low) / (high - low) * (bins - 1)
        shares.append((1 - (place - torch.arange(bins).view(-1, 1, 1)).abs()).clamp_min(0))
    return torch.cat(shares)


def _texture(light: Tensor) -> Tensor:
    """How strong fine stripes of four directions are at each pixel."""
    dx, dy = _derivatives(light[None], 1.0)
    strength = torch.sqrt(dx**2 + dy**2)
    angle = torch.atan2(dy, dx) * 2
    turns = torch.arange(4).view(-1, 1, 1) * (torch.pi / 2)
    return (torch.cos(angle - turns).clamp_min(0) * strength * 3).clamp_max(1)


def _change(channels: Tensor, sigma: float) -> tuple[Array, Array]:
    """The strongest change over all channels together, and where it points to (0 to pi)."""
    dx, dy = _derivatives(channels, sigma)
    xx, yy, xy = (dx * dx).sum(0), (dy * dy).sum(0), (dx * dy).sum(0)
    root = torch.sqrt((xx - yy) ** 2 + 4 * xy**2)
    strength = torch.sqrt(((xx + yy + root) / 2).clamp_min(0)) * sigma
    strength = torch.where(strength < FAINTEST, 0, strength)
    angle = torch.remainder(torch.atan2(2 * xy, xx - yy) / 2, torch.pi)
    return strength.numpy(), angle.numpy()


def _derivatives(channels: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Smoothed derivatives to the right and downwards of each channel [channels, height, width].

    A small image's rows are short: a product with a matrix is several times quicker than torch's convolutions.
    """
    height, width = channels.shape[1:]
    smooth_rows, slope_rows = _filters(height, sigma)
    smooth_columns, slope_columns = _filters(width, sigma)
    dx = smooth_rows @ (channels @ slope_columns.T)
    dy = slope_rows @ (channels @ smooth_columns.T)
    return dx, dy


def _filters(length: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Matrices [length, length] that smooth a line and take its slope; beyond its ends, the line goes on level."""
    reach = max(1, round(3 * sigma))
    at = torch.arange(-reach, reach + 1, dtype=torch.float32)
    smooth = torch.exp(-(at**2) / (2 * sigma**2))
    smooth /= smooth.sum()
    slope = at * smooth / (at**2 * smooth).sum()
    rows = torch.arange(length).repeat_interleave(len(at))
    columns = (rows + at.long().repeat(length)).clamp(0, length - 1)
    made = []
    for kernel in (smooth, slope):
        matrix = torch.zeros(length, length)
        matrix.index_put_((rows, columns), kernel.repeat(length), accumulate=True)
        made.append(matrix)
    return made[0], made[1]
