"""The baseline that does not look: photographers put things in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.methods.base import Method

if TYPE_CHECKING:
    from torch import Tensor

    from excite.methods.base import Cue
    from excite.methods.view import View

__all__ = ["CENTER"]


def _middle(view: View, _cue: Cue) -> dict[str, Tensor]:
    """A pyramid over the whole picture: its tip stays in the middle at whatever size it is drawn."""
    pictures, _, height, width = view.prepare(1.0).shape
    pyramid = torch.outer(_slope(height), _slope(width)).expand(pictures, -1, -1)
    return dict.fromkeys(view.layers[CENTER], pyramid)


def _slope(side: int) -> Tensor:
    """From both ends up to the middle; in whole numbers first, so that both sides are the same to the last bit."""
    return (side - (2 * torch.arange(side) + 1 - side).abs()) / side


CENTER = Method("center", "the middle of the picture, whatever is in it", _middle, place="input", way="gradients")
