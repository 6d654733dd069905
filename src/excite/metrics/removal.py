"""Deletion and insertion: how fast a classifier's probability falls, or rises, in the order of a map's importance."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def shares(steps: int) -> list[float]:
    """The shares of replaced pixels at which the classifier is evaluated, from 0 to 1."""
    return [step / steps for step in range(steps + 1)]


def replaced(picture: Tensor, by: Tensor, order: Tensor, share: float) -> Tensor:
    """The image [channels, height, width] with a share of its pixels taken from another one, in the given order."""
    chosen = order[: round(share * order.numel())]
    mixed = picture.flatten(1).clone()
    mixed[:, chosen] = by.flatten(1)[:, chosen]
    return mixed.view_as(picture)


def steps_between(
    picture: Tensor,
    by: Tensor,
    importance: Tensor,
    answer: Callable[[Tensor], Sequence[float]],
    *,
    steps: int,
    together: int = 8,
) -> list[float]:
    """The classifier's answers while one image is replaced by another, most important pixels first.

    Deletion starts from the image, insertion ends with it. Pixels of equal importance go row by row.

    Args:
        picture: the first image, ``[channels, height, width]``.
        by: the last image.
        importance: a number for each pixel, ``[height, width]``.
        answer: of images ``[n, channels, height, width]`` the probability of the concept in each.
        steps: number of steps.
        together: batch size.

    Returns:
        ``steps + 1`` answers; the first is that of ``picture``.
    """
    order = importance.flatten().argsort(descending=True, stable=True)
    mixed = [replaced(picture, by, order, share) for share in shares(steps)]
    groups = (torch.stack(mixed[k : k + together]) for k in range(0, len(mixed), together))
    return [value for group in groups for value in answer(group)]


def area(curve: Sequence[float]) -> float:
    """The area under a curve over shares from 0 to 1 (trapezoids)."""
    return (sum(curve) - (curve[0] + curve[-1]) / 2) / (len(curve) - 1)
