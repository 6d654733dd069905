"""Layer-wise relevance propagation (Bach et al. 2015), by its two rules.

The paper that we compare with used the software of Bach et al. on Caffe networks. There the rule for pictures is
alpha-beta with alpha = 2 and beta = 1, so that is `lrp` here; the epsilon rule is `lrp-epsilon`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.methods.base import Method
from excite.methods.gradient import gradient_method
from excite.methods.planes import blurred

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.methods.base import Cue
    from excite.methods.view import View
    from excite.propagation.gradients import Gradients

__all__ = ["LRP", "LRP_EPSILON"]

ALPHA, BETA = 2.0, 1.0
EPSILON = 0.01


def _positive(relevance: dict[str, Tensor]) -> dict[str, Tensor]:
    """What speaks for the class: the positive part of the relevance of each place, smoothed."""
    return {layer: blurred(values.sum(dim=1).clamp(min=0)) for layer, values in relevance.items()}


def _alpha_beta(view: View, cue: Cue) -> dict[str, Tensor]:
    sweep = view.winners()
    return _positive(sweep.down(cue(sweep.output), alpha=ALPHA, beta=BETA, layers=view.layers.get(LRP)))


def _epsilon(gradients: Gradients, signal: Tensor, layers: Sequence[str] | None) -> dict[str, Tensor]:
    return _positive(gradients.down(signal, "lrp", epsilon=EPSILON, layers=layers))


LRP = Method("lrp", "layer-wise relevance, alpha 2 and beta 1 (Bach 2015)", _alpha_beta, place="input")
LRP_EPSILON = gradient_method("lrp-epsilon", "layer-wise relevance, epsilon rule (Bach 2015)", _epsilon)
