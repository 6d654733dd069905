"""excite's own best: the contrastive map of two looks at the picture, one from nearer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.methods.base import Method
from excite.methods.excitation import won
from excite.methods.planes import spread

if TYPE_CHECKING:
    from torch import Tensor

    from excite.methods.base import Cue
    from excite.methods.view import View

__all__ = ["EXCITE", "NEARER"]

NEARER = 13 / 7  # a shorter side of 416 for networks made for 224: 13 places of stride 32 instead of 7


def _mean(view: View, method: Method, cue: Cue, dual: float) -> dict[str, Tensor]:
    """The mean of what arrives in both looks, so that it still is a share of the signal.

    The wider look sees the whole of large objects and what is around them, the nearer one small things. Where they
    agree they win.
    """
    wide, near = (won(view, method, cue, scale, dual=dual) for scale in method.scales)
    return {layer: (_on_places_of(wide[layer], near[layer]) + near[layer].clamp(min=0)) / 2 for layer in near}


def _on_places_of(coarse: Tensor, fine: Tensor) -> Tensor:
    """The positive part of a map on the places of a finer one, with the same sum."""
    positive = coarse.clamp(min=0)
    wider = spread(positive, fine.shape[-2:])
    total = wider.sum((1, 2), keepdim=True)
    return wider * (positive.sum((1, 2), keepdim=True) / total.clamp(min=1e-30))


PLAIN: Method = Method(
    "excite-plain",
    "the mean of MWP in two looks, one from nearer",
    lambda view, cue: _mean(view, PLAIN, cue, dual=0.0),
    scales=(1.0, NEARER),
    together=True,
)
EXCITE: Method = Method(
    "excite",
    "our best: the mean of c-mwp in two looks at the picture, one from nearer",
    lambda view, cue: _mean(view, EXCITE, cue, dual=-1.0),
    scales=(1.0, NEARER),
    together=True,
    plain=PLAIN,
)
