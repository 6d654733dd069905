"""Excitation Backprop: marginal winning probabilities, plain and contrastive, the paper's ablations, and two scales."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from excite.methods.base import Maps, Method, Passes, normalised, resized
from excite.propagation.excitation_pass import Units, position_sums, signals_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

LARGER = 13 / 7  # a shorter side of 416 for networks made for 224: 13 positions of stride 32 instead of 7


def mwp_maps(passes: Passes, units: Units, layers: Sequence[str], scale: float = 1.0, **options: Any) -> Maps:
    """The marginal winning probability of each position, the sum over its channels. ``options``: of the pass."""
    forward = passes.winning(layers, scale)
    return position_sums(forward, signals_at(forward.output, units), layers, **options)


def _by_channels(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    """The contrastive map with channels as neurons in every network, also where tokens are."""
    forward = passes.excitation()
    return position_sums(forward, signals_at(forward.output, units), layers, dual=-1.0)


def _no_norm(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    """The contrastive signal without the normaliser of Eqn. 4. Its scale means nothing."""
    maps = mwp_maps(passes, units, layers, dual=-1.0, normalised=False)
    return {layer: normalised(each) for layer, each in maps.items()}


def _post_norm(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    """The map and its dual, each passed down without the normaliser, and normalised only when they are subtracted."""
    maps = mwp_maps(passes, units, layers, normalised=False)
    duals = mwp_maps(passes, units, layers, unit=0.0, dual=1.0, normalised=False)
    return {layer: normalised(each) - normalised(duals[layer]) for layer, each in maps.items()}


def _two_scales(passes: Passes, units: Units, layers: Sequence[str], dual: float) -> Maps:
    """The mean of the maps at both scales, for large objects and for small ones: still a share of the signal."""
    small, large = (mwp_maps(passes, units, layers, scale, dual=dual) for scale in (1.0, LARGER))
    return {layer: (_resized_share(small[layer], large[layer]) + large[layer].clamp(min=0)) / 2 for layer in large}


def _resized_share(coarse: Tensor, fine: Tensor) -> Tensor:
    """The positive part of a map at the size of a finer one, with the same sum."""
    positive = coarse.clamp(min=0)
    larger = resized(positive, fine.shape[-2:])
    total = larger.sum((-2, -1), keepdim=True)
    return larger * (positive.sum((-2, -1), keepdim=True) / total.clamp(min=1e-30))


MWP = Method("mwp", "marginal winning probability: everything that excites the concept", mwp_maps, main=True)
_ABOUT = "contrastive MWP: what excites the concept more than its opposite (the default)"
C_MWP = Method("c-mwp", _ABOUT, partial(mwp_maps, dual=-1.0), plain=MWP, main=True)  # the dual: paper, section 3.3
C_MWP_POST_NORM = Method(
    "c-mwp-post-norm", "ablation: c-mwp normalised only at the end, map and dual apart", _post_norm, plain=MWP
)
C_MWP_NO_NORM = Method("c-mwp-no-norm", "ablation: c-mwp never normalised", _no_norm, plain=MWP)
C_MWP_CHANNELS = Method(
    "c-mwp-channels", "ablation: c-mwp by channels in transformers too, not by tokens", _by_channels, plain=MWP
)
_PLAIN, _CONTRAST = partial(_two_scales, dual=0.0), partial(_two_scales, dual=-1.0)
_EXCITE_PLAIN = Method("excite-plain", "the mean of MWP at two scales of the image", _PLAIN, scales=(1.0, LARGER))
_BEST = "our best: the mean of c-mwp at two scales of the image"
EXCITE = Method("excite", _BEST, _CONTRAST, scales=(1.0, LARGER), plain=_EXCITE_PLAIN, main=True)
