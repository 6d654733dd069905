"""Class activation maps: the channels of one layer, weighted for the class; and the baseline without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.errors import MethodError
from excite.methods.base import Maps, Method, Passes
from excite.methods.gradient import contrasted, gradient_method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.propagation.excitation_pass import Units
    from excite.propagation.gradients import Gradients

SAME = 1e-3  # how far, in parts of its largest value, a gradient may be from a product and still count as one


def _cam(gradients: Gradients, signal: Tensor, layers: Sequence[str]) -> Maps:
    """Each channel with its own weight (Zhou et al. 2016): sum_c w_c A_c."""
    arrived, one = gradients.down(signal, layers=layers), _of_one_unit(signal)
    for layer, values in (arrived if torch.equal(one, signal) else gradients.down(one, layers=layers)).items():
        _check_weights(layer, values)
    return {
        layer: torch.einsum("nc,nchw->nhw", values.sum((2, 3)), gradients.activations[layer])
        for layer, values in arrived.items()
    }


def _of_one_unit(signal: Tensor) -> Tensor:
    """What of a signal [images, units, ...] starts at each image's strongest unit: each has windows of its own."""
    rows = torch.arange(len(signal), device=signal.device)
    units = signal.abs().reshape(*signal.shape[:2], -1).sum(2).argmax(1)
    return torch.zeros_like(signal).index_put((rows, units), signal[rows, units])


def _check_weights(layer: str, gradient: Tensor) -> None:
    """A channel must weigh the same at every position, or positions must weigh the same for every channel."""
    same = max(SAME, 4 * torch.finfo(gradient.dtype).eps)
    gradient = gradient.float()
    weights = gradient.sum((2, 3))
    places = (weights[:, :, None, None] * gradient).sum(1)  # in full precision, also within autocast
    size = weights.square().sum(1).clamp(min=torch.finfo(weights.dtype).tiny)
    product = weights[:, :, None, None] * (places / size[:, None, None])[:, None]
    if bool(((gradient - product).abs().amax((1, 2, 3)) > same * gradient.abs().amax((1, 2, 3))).any()):
        raise MethodError(
            f"cam cannot be read at layer {layer!r}: it needs average pooling and one linear layer behind the last "
            "map; read the last map of a network that ends so, or use grad-cam"
        )


def _grad_cam(gradients: Gradients, signal: Tensor, layers: Sequence[str]) -> Maps:
    """Each channel with its mean gradient, positive part only (Selvaraju et al. 2017)."""
    return {
        layer: torch.einsum("nc,nchw->nhw", values.mean((2, 3)), gradients.activations[layer]).clamp(min=0)
        for layer, values in gradients.down(signal, layers=layers).items()
    }


GRAD_CAM = gradient_method(
    "grad-cam", "channels weighted by their mean gradient (Selvaraju 2017)", _grad_cam, place="top", main=True
)
CAM = gradient_method("cam", "channels weighted by the classifier's own weights (Zhou 2016)", _cam, place="top")
C_CAM = gradient_method(
    "c-cam", "cam against its dual: points where cam points", contrasted(_cam), place="top", plain=CAM
)


def _center(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    """A pyramid over the whole image, since photographers centre objects: its maximum is the middle at any size."""
    images, _, height, width = passes.inputs[1.0].shape
    pyramid = torch.outer(_slope(height), _slope(width)).expand(len(units), images, -1, -1)
    return dict.fromkeys(layers, pyramid)


def _slope(side: int) -> Tensor:
    """From both ends up to the middle; in whole numbers first, so that both sides are the same to the last bit."""
    return (side - (2 * torch.arange(side) + 1 - side).abs()) / side


CENTER = Method("center", "the middle of the image, whatever is in it", _center, place="input", forward="gradients")
