"""Check of stability: maps must be robust to noise, and equivariant to flips and shifts of the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from excite.experiments.checks.base import Check, Verdict
from excite.metrics.ranking import rank_correlation
from excite.metrics.statistics import mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.experiments.checks.base import CheckedImage, Measured, Standing

NOISE = 5.0  # the standard deviation, of 255 levels
SHIFT = 1 / 32  # of the shorter side
GRID = 8  # cells along the shift at which maps are compared: photographs have millions of pixels
STEADY, SHAKY = 0.8, 0.5  # rank correlations


def under_small_changes(seen: CheckedImage) -> dict[str, Any]:
    """The rank correlation of each method's map with that of the noisy, the mirrored and the shifted image.

    And the L2 distance of the map under noise, relative to the map's norm.
    """
    noisy = seen.maps_of(picture=_noisy(seen.picture, seen.seed))
    mirrored = seen.maps_of(picture=ImageOps.mirror(seen.picture))
    likeness, moved = {}, {}
    for method, found in seen.maps.items():
        likeness[method] = {
            "noise": seen.likeness(method, noisy[method]),
            "flip": rank_correlation(found.values, mirrored[method].values.flip(-1)),
        }
        moved[method] = relative_distance(found.values, noisy[method].values)
    for method, shifted in _shifted(seen).items():
        likeness[method]["shift"] = shifted
    return {"likeness": likeness, "moved": moved}


def relative_distance(one: Tensor, other: Tensor) -> float:
    """The L2 distance of another map to the first, relative to the norm of the first.

    Example:
        >>> import torch
        >>> relative_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]]))
        0.8
    """
    length = float(one.double().norm())
    return float((other.double() - one.double()).norm()) / length if length else 0.0


def _noisy(picture: Image.Image, seed: int) -> Image.Image:
    levels = np.asarray(picture, dtype=np.float64)
    noise = np.random.default_rng(seed).normal(0.0, NOISE, levels.shape)
    return Image.fromarray((levels + noise).round().clip(0, 255).astype(np.uint8))


def _shifted(seen: CheckedImage) -> dict[str, float]:
    """Two crops of the image, without its right and lower and without its left and upper edge, where they overlap."""
    width, height = seen.picture.size
    step = max(1, round(SHIFT * min(width, height)))
    if step * 4 > min(width, height):
        return {}
    first = seen.maps_of(picture=seen.picture.crop((0, 0, width - step, height - step)))
    second = seen.maps_of(picture=seen.picture.crop((step, step, width, height)))
    size = GRID * (width - step) // step, GRID * (height - step) // step
    return {
        method: rank_correlation(
            first[method].upsample(size, "bilinear")[GRID:, GRID:],
            second[method].upsample(size, "bilinear")[:-GRID, :-GRID],
        )
        for method in seen.layers
    }


def judge_stability(measured: Sequence[Measured], method: str) -> Verdict:
    """The lowest of the rank correlations under noise, flip and shift."""
    names = list(measured[0]["likeness"])
    kinds = [kind for kind in ("noise", "flip", "shift") if all(kind in one["likeness"][method] for one in measured)]
    means = {name: {kind: mean([one["likeness"][name][kind] for one in measured]) for kind in kinds} for name in names}
    moved = {name: mean([one["moved"][name] for one in measured]) for name in names}
    least = min(kinds, key=lambda kind: means[method][kind].value)
    lowest = means[method][least].value
    standing: Standing = "holds" if lowest >= STEADY else "doubtful" if lowest >= SHAKY else "fails"
    words = {"holds": "stay", "doubtful": "mostly stay", "fails": "do not stay"}[standing]
    values = ", ".join(f"{kind} {value}" for kind, value in means[method].items())
    text = (
        f"The maps {words} where they belong when the image changes a little: rank correlation {values}; "
        f"noise of {NOISE:.0f} levels moves {moved[method]} of the map's length."
    )
    rows = [
        {
            "method": name,
            **{kind: str(value) for kind, value in means[name].items()},
            "moved by noise": str(moved[name]),
        }
        for name in names
    ]
    return Verdict(standing, (text,), rows)


STABILITY = Check("stability", "Do the maps stay when the image hardly changes?", under_small_changes, judge_stability)
