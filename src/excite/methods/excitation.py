"""Excitation Backprop: marginal winning probabilities, plain and contrastive, and the paper's ablations of contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.methods.base import Method, normalised, spread

if TYPE_CHECKING:
    from torch import Tensor

    from excite.methods.base import Cue
    from excite.methods.view import View


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


# excite's own best: the contrastive map of two looks at the image, one from nearer.

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
    "our best: the mean of c-mwp in two looks at the image, one from nearer",
    lambda view, cue: _mean(view, EXCITE, cue, dual=-1.0),
    scales=(1.0, NEARER),
    together=True,
    plain=PLAIN,
)
