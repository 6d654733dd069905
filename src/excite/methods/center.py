"""The baseline that does not look: photographers put things in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.methods.gradient import gradient_method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.propagation.gradients import Gradients

__all__ = ["CENTER"]


def _middle(gradients: Gradients, signal: Tensor, layers: Sequence[str] | None) -> dict[str, Tensor]:
    """A pyramid over the whole picture: its tip stays in the middle at whatever size it is drawn."""
    shapes = {layer: gradients.activations[layer].shape for layer in layers or gradients.activations}
    return {
        layer: torch.outer(_slope(height), _slope(width)).to(signal).expand(len(signal), -1, -1)
        for layer, (_, _, height, width) in shapes.items()
    }


def _slope(side: int) -> Tensor:
    """From both ends up to the middle; in whole numbers first, so that both sides are the same to the last bit."""
    return (side - (2 * torch.arange(side) + 1 - side).abs()) / side


CENTER = gradient_method("center", "the middle of the picture, whatever is in it", _middle)
