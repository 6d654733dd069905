"""Methods that follow gradients to the image: Grad, Deconv, guided backpropagation, their contrasts; and LRP.

`lrp` is the rule alpha-beta, with which the paper compared (software of Bach et al. 2015): docs/reference/methods.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.methods.base import Maps, Method, Passes, blurred, normalised
from excite.propagation.excitation_pass import Units, signals_at
from excite.propagation.gradients import Gamma

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from excite.methods.base import Place
    from excite.propagation.gradients import Gradients, Variant

    Make = Callable[[Gradients, Tensor, Sequence[str]], Maps]

ALPHA, BETA, EPSILON = 2.0, 1.0, 0.01
GAMMA, STABLE = Gamma(convolution=0.25, dense=0.05), 1e-6


def gradient_method(
    name: str, description: str, make: Make, *, place: Place = "input", plain: Method | None = None, main: bool = False
) -> Method:
    """A method that computes its maps [images, h, w] from gradients, one signal and the layers to read."""

    def maps(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
        gradients = passes.gradients()
        each = [make(gradients, signal, layers) for signal in signals_at(gradients.output, units)]
        return {layer: torch.stack([one[layer] for one in each]) for layer in layers}

    return Method(name, description, maps, place, "gradients", plain=plain, main=main)


def contrasted(make: Make) -> Make:
    """The map of a signal against that of its dual, the negated signal, both normalised (paper, section 4.1)."""

    def difference(gradients: Gradients, signal: Tensor, layers: Sequence[str]) -> Maps:
        dual = make(gradients, -signal, layers)
        return {
            layer: normalised(maps) - normalised(dual[layer]) for layer, maps in make(gradients, signal, layers).items()
        }

    return difference


def _largest_magnitude(variant: Variant) -> Make:
    """The largest magnitude over channels, smoothed."""

    def make(gradients: Gradients, signal: Tensor, layers: Sequence[str]) -> Maps:
        arrived = gradients.down(signal, variant, layers=layers)
        return {layer: blurred(values.abs().amax(dim=1)) for layer, values in arrived.items()}

    return make


def _relevance(values: Tensor) -> Tensor:
    """The positive part of the relevance of each position [..., channels, h, w], smoothed."""
    return blurred(values.sum(dim=-3).clamp(min=0))


def _alpha_beta(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    forward = passes.excitation()
    arrived = forward.down(signals_at(forward.output, units), alpha=ALPHA, beta=BETA, layers=layers)
    return {layer: _relevance(values) for layer, values in arrived.items()}


def _epsilon(gradients: Gradients, signal: Tensor, layers: Sequence[str]) -> Maps:
    arrived = gradients.down(signal, "lrp", epsilon=EPSILON, layers=layers)
    return {layer: _relevance(values) for layer, values in arrived.items()}


def _attended(gradients: Gradients, signal: Tensor, layers: Sequence[str]) -> Maps:
    arrived = gradients.down(signal, "attn-lrp", epsilon=STABLE, gamma=GAMMA, layers=layers)
    return {layer: _relevance(values) for layer, values in arrived.items()}


_GRAD, _DECONV, _GUIDED = _largest_magnitude("grad"), _largest_magnitude("deconv"), _largest_magnitude("guided")
GRAD = gradient_method("grad", "the size of the gradient (Simonyan 2014)", _GRAD)
DECONV = gradient_method("deconv", "deconvolution: positive signals through ReLUs (Zeiler 2014)", _DECONV)
GUIDED = gradient_method(
    "guided", "guided backprop: positive signals through active ReLUs (Springenberg 2015)", _GUIDED, main=True
)
C_GRAD = gradient_method(
    "c-grad", "grad against its dual: nothing is left, by definition", contrasted(_GRAD), plain=GRAD
)
C_DECONV = gradient_method("c-deconv", "deconv against its dual", contrasted(_DECONV), plain=DECONV)
C_GUIDED = gradient_method("c-guided", "guided against its dual", contrasted(_GUIDED), plain=GUIDED)
LRP = Method("lrp", "layer-wise relevance, alpha 2 and beta 1 (Bach 2015)", _alpha_beta, place="input")
_ATTENDED = "layer-wise relevance with rules for attention (AttnLRP, Achtibat 2024)"
ATTN_LRP = gradient_method("attn-lrp", _ATTENDED, _attended)
LRP_EPSILON = gradient_method("lrp-epsilon", "layer-wise relevance, epsilon rule (Bach 2015)", _epsilon)
