"""What a map is worth, given the true boxes of what was looked for: pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.datasets import Box

__all__ = ["ALPHAS", "boxes_above", "overlap"]

ALPHAS = tuple(0.5 * k for k in range(21))
"""The thresholds that are tried, in means of the map (the paper's range 0:0.5:10)."""


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes.

    Example:
        >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
        0.3333333333333333
    """
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    inside = max(width, 0) * max(height, 0)
    union = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - inside
    return inside / union if union else 0.0


def boxes_above(stretched: Tensor, alphas: Sequence[float] = ALPHAS) -> list[tuple[int, int, int, int] | None]:
    """What `excite.readouts.threshold_box` gives for each alpha, all at once.

    A row holds a pixel above the threshold when its maximum is, so the map itself is gone through only once.

    Args:
        stretched: the map at the size of its picture.
        alphas: thresholds, in means of the map.

    Example:
        >>> boxes_above(torch.tensor([[0.0, 0.0, 3.0]]), [0, 1, 4])
        [(2, 0, 3, 1), (2, 0, 3, 1), None]
    """
    thresholds = torch.stack([(alpha * stretched.mean()).clamp(min=0) for alpha in alphas])[:, None]
    columns, rows = stretched.amax(dim=0) > thresholds, stretched.amax(dim=1) > thresholds
    return [_box(*both) for both in zip(columns, rows, strict=True)]


def _box(columns: Tensor, rows: Tensor) -> tuple[int, int, int, int] | None:
    across, down = columns.nonzero(), rows.nonzero()
    if len(across) == 0:
        return None
    return int(across[0]), int(down[0]), int(across[-1]) + 1, int(down[-1]) + 1
