"""The methods that follow gradients to the image: Grad, Deconv, guided backpropagation, and their contrasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.methods.base import Method, blurred, normalised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from excite.methods.base import Cue, Place
    from excite.methods.view import View
    from excite.propagation.gradients import Gradients
    from excite.propagation.steps import Way

    Maps = dict[str, Tensor]
    Make = Callable[[Gradients, Tensor, Sequence[str] | None], Maps]


def gradient_method(
    name: str, description: str, make: Make, *, place: Place = "input", plain: Method | None = None
) -> Method:
    """A method that makes its maps from gradients, a signal and the layers to read."""

    def maps(view: View, cue: Cue) -> Maps:
        gradients = view.gradients()
        return make(gradients, cue(gradients.output), view.layers.get(method))

    method = Method(name, description, maps, place, "gradients", plain=plain)
    return method


def contrasted(make: Make) -> Make:
    """The map of a signal against that of its dual, the negated signal, both normalised (paper, section 4.1)."""

    def difference(gradients: Gradients, signal: Tensor, layers: Sequence[str] | None) -> Maps:
        dual = make(gradients, -signal, layers)
        return {
            layer: normalised(maps) - normalised(dual[layer]) for layer, maps in make(gradients, signal, layers).items()
        }

    return difference


def _loudest(way: Way) -> Make:
    """The largest magnitude over channels, smoothed."""

    def make(gradients: Gradients, signal: Tensor, layers: Sequence[str] | None) -> Maps:
        arrived = gradients.down(signal, way, layers=layers)
        return {layer: blurred(values.abs().amax(dim=1)) for layer, values in arrived.items()}

    return make


GRAD = gradient_method("grad", "the size of the gradient (Simonyan 2014)", _loudest("grad"))
DECONV = gradient_method("deconv", "deconvolution: positive signals through ReLUs (Zeiler 2014)", _loudest("deconv"))
GUIDED = gradient_method(
    "guided", "guided backprop: positive signals through active ReLUs (Springenberg 2015)", _loudest("guided")
)
C_GRAD = gradient_method(
    "c-grad", "grad against its dual: nothing is left, by definition", contrasted(_loudest("grad")), plain=GRAD
)
C_DECONV = gradient_method("c-deconv", "deconv against its dual", contrasted(_loudest("deconv")), plain=DECONV)
C_GUIDED = gradient_method("c-guided", "guided against its dual", contrasted(_loudest("guided")), plain=GUIDED)


# Layer-wise relevance propagation (Bach et al. 2015), by its two rules.
#
# The paper that we compare with used the software of Bach et al. on Caffe networks. There the rule for images is
# alpha-beta with alpha = 2 and beta = 1, so that is `lrp` here; the epsilon rule is `lrp-epsilon`.

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
