"""Edge strength at each pixel, from colours and texture.

The finest scale measures the change of the colours; the coarser ones that of local histograms of colours and edge
directions: a striped shirt has strong edges inside, but the same mixture of stripes on both sides of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

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
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], dtype=torch.float32
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
    return [_change(mixture if index else colours, sigma) for index, sigma in enumerate(scales)]


def _shares(colours: Tensor, bins: int = 8) -> Tensor:
    """The soft assignment of each pixel to a few bins of each channel."""
    shares = []
    for channel, (low, high) in zip(colours, ((0, 1), (-0.4, 0.4), (-0.4, 0.4)), strict=True):
        at = (channel.clamp(low, high) - low) / (high - low) * (bins - 1)
        shares.append((1 - (at - torch.arange(bins).view(-1, 1, 1)).abs()).clamp_min(0))
    return torch.cat(shares)


def _texture(light: Tensor) -> Tensor:
    """The strength of fine stripes of four directions at each pixel."""
    dx, dy = _derivatives(light[None], 1.0)
    strength = torch.sqrt(dx**2 + dy**2)
    angle = torch.atan2(dy, dx) * 2
    turns = torch.arange(4).view(-1, 1, 1) * (torch.pi / 2)
    return (torch.cos(angle - turns).clamp_min(0) * strength * 3).clamp_max(1)


def _change(channels: Tensor, sigma: float) -> tuple[Array, Array]:
    """The largest eigenvalue of the structure tensor, as a strength, and its direction (0 to pi)."""
    dx, dy = _derivatives(channels, sigma)
    xx, yy, xy = (dx * dx).sum(0), (dy * dy).sum(0), (dx * dy).sum(0)
    root = torch.sqrt((xx - yy) ** 2 + 4 * xy**2)
    strength = torch.sqrt(((xx + yy + root) / 2).clamp_min(0)) * sigma
    strength = torch.where(strength < FAINTEST, 0, strength)
    angle = torch.remainder(torch.atan2(2 * xy, xx - yy) / 2, torch.pi)
    return strength.numpy(), angle.numpy()


def _derivatives(channels: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Gaussian derivatives to the right and downwards of each channel [channels, height, width].

    For the short rows of a small image a matrix product is several times quicker than torch's convolutions.
    """
    height, width = channels.shape[1:]
    smooth_rows, slope_rows = _filters(height, sigma)
    smooth_columns, slope_columns = _filters(width, sigma)
    dx = smooth_rows @ (channels @ slope_columns.T)
    dy = slope_rows @ (channels @ smooth_columns.T)
    return dx, dy


def _filters(length: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Matrices [length, length] of the Gaussian and its derivative; beyond its ends, a line is constant."""
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
