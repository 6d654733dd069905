"""The methods that follow gradients to the picture: Grad, Deconv, guided backpropagation, and their contrasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.methods.method import Method
from excite.methods.planes import blurred, normalised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from excite.methods.method import Cue, Place
    from excite.methods.view import View
    from excite.propagation.gradients import Gradients, Variant

    Maps = dict[str, Tensor]
    Make = Callable[[Gradients, Tensor, Sequence[str] | None], Maps]

__all__ = ["C_DECONV", "C_GRAD", "C_GUIDED", "DECONV", "GRAD", "GUIDED", "contrasted", "gradient_method"]


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


def _loudest(way: Variant) -> Make:
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
