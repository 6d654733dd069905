"""Excitation Backprop: marginal winning probabilities, plain and contrastive, and the paper's ablations of contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.methods.base import Method
from excite.methods.planes import normalised

if TYPE_CHECKING:
    from torch import Tensor

    from excite.methods.base import Cue
    from excite.methods.view import View

__all__ = ["C_MWP", "C_MWP_NO_NORM", "C_MWP_POST_NORM", "MWP", "won"]


def won(view: View, method: Method, cue: Cue, scale: float = 1.0, **options: Any) -> dict[str, Tensor]:
    """What arrives at each place: a place wins when any of its neurons does. Several signals give a map each."""
    sweep = view.winners(scale)
    arrived = sweep.down(cue(sweep.output), layers=view.layers.get(method), **options)
    return {layer: values.sum(dim=-3).flatten(0, -3) for layer, values in arrived.items()}


def _no_norm(view: View, cue: Cue) -> dict[str, Tensor]:
    """The contrastive signal passed down without the normaliser of Eqn. 4. Its scale means nothing."""
    maps = won(view, C_MWP_NO_NORM, cue, dual=-1.0, normalised=False)
    return {layer: normalised(each) for layer, each in maps.items()}


def _post_norm(view: View, cue: Cue) -> dict[str, Tensor]:
    """The map and its dual, each passed down without the normaliser, and normalised only when they are subtracted.

    With the normaliser it would hardly differ from c-MWP: a map and its dual then sum to the same, but for what biases
    took.
    """
    maps = won(view, C_MWP_POST_NORM, cue, normalised=False)
    duals = won(view, C_MWP_POST_NORM, cue, unit=0.0, dual=1.0, normalised=False)
    return {layer: normalised(each) - normalised(duals[layer]) for layer, each in maps.items()}


MWP: Method = Method(
    "mwp",
    "marginal winning probability: everything that excites the concept",
    lambda view, cue: won(view, MWP, cue),
    together=True,
)
C_MWP: Method = Method(
    "c-mwp",
    "contrastive MWP: what excites the concept more than its opposite (the default)",
    lambda view, cue: won(view, C_MWP, cue, dual=-1.0),
    together=True,
    plain=MWP,
)
C_MWP_POST_NORM = Method(
    "c-mwp-post-norm", "ablation: c-mwp normalised only at the end, map and dual apart", _post_norm, plain=MWP
)
C_MWP_NO_NORM = Method("c-mwp-no-norm", "ablation: c-mwp never normalised", _no_norm, plain=MWP)
