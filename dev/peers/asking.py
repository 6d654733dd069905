"""How each package is asked for Excitation Backprop: in the way of its own documentation that comes nearest to it.

Every answer is read at the image, which all packages can. Images here are never negative, so the paper's
assumption holds there too, and a signal of 1 must arrive whole in a network without biases.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excite.models.sources import torchvision_models
from excite.propagation import mwp

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PEERS", "Peer", "one_hot", "part", "tapped", "zennit_composite"]


@dataclass(frozen=True)
class Peer:
    """A package of the table.

    Attributes:
        name: as its column is called.
        package: as it is imported.
        distribution: as pip calls it.
        excitation: its winning probabilities at the image, of a network, an image and an output unit; None: it has
            none. With ``defaults=True`` without the options that make it right.
    """

    name: str
    package: str
    distribution: str
    excitation: Callable[..., Tensor] | None

    @property
    def installed(self) -> bool:
        """Whether it can be asked here."""
        return find_spec(self.package) is not None

    @property
    def version(self) -> str:
        """What is installed here."""
        return version(self.distribution)


def part(name: str) -> Any:
    """A module of a package."""
    if name.startswith(("torchray", "pytorch_grad_cam", "zennit")):
        torchvision_models()  # they import it, which may need a hand
    return importlib.import_module(name)


def tapped(network: nn.Module) -> nn.Sequential:
    """The network below a layer that does nothing, where the image can be read."""
    whole = nn.Sequential()
    whole.add_module("tap", nn.Identity())
    whole.add_module("network", network)
    whole.training = network.training
    return whole


def one_hot(output: Tensor, unit: int) -> Tensor:
    """A signal of 1 at an output unit."""
    return torch.zeros_like(output).index_fill_(1, torch.tensor([unit]), 1.0)


def _excite(network: nn.Module, picture: Tensor, unit: int, **_defaults: bool) -> Tensor:
    return mwp(tapped(network), picture, unit, layer="tap")


def _captum(network: nn.Module, picture: Tensor, unit: int, *, defaults: bool = False) -> Tensor:
    """LRP with alpha 1, beta 0 and without biases is Excitation Backprop times the logit."""
    rules = part("captum.attr._utils.lrp_rules")  # no public module has them
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.AvgPool2d, nn.AdaptiveAvgPool2d)):
            module.rule = rules.Alpha1_Beta0_Rule(set_bias_to_zero=not defaults)
        elif isinstance(module, nn.BatchNorm2d):
            module.rule = rules.IdentityRule()  # its documentation names it for batch norms
    logit = network(picture)[0, unit].detach()
    return part("captum.attr").LRP(network).attribute(picture.clone(), target=unit).detach() / logit


def zennit_composite(network: nn.Module, *, defaults: bool = False) -> Any:
    """Its composite with the canonizer for the network, and the rules that its other composites have for the rest."""
    kind, rules, types = type(network).__name__, part("zennit.rules"), part("zennit.types")
    if kind == "ResNet":
        canonizers = [part("zennit.torchvision").ResNetCanonizer()]
    elif kind == "DenseNet":
        canonizers = []  # norms stand before their convolutions there, and merging them raises an error
    else:
        canonizers = [part("zennit.canonizers").SequentialMergeBatchNorm()]
    passing = [((nn.SiLU, nn.ReLU6), rules.Pass()), (types.BatchNorm, rules.Pass())]
    best = {} if defaults else {"zero_params": "bias", "stabilizer": 1e-20, "layer_map": passing}
    return part("zennit.composites").ExcitationBackprop(canonizers=canonizers, **best)


def _zennit(network: nn.Module, picture: Tensor, unit: int, *, defaults: bool = False) -> Tensor:
    composite = zennit_composite(network, defaults=defaults)
    with part("zennit.attribution").Gradient(model=network, composite=composite) as attributor:
        return attributor(picture.clone(), lambda output: one_hot(output, unit))[1].detach()


def _torchray(network: nn.Module, picture: Tensor, unit: int, **_defaults: bool) -> Tensor:
    package = part("torchray.attribution.excitation_backprop")
    if isinstance(network, package.ResNet):
        network = package.update_resnet(network)  # its own rewrite, without which it counts shortcuts twice
    return package.excitation_backprop(
        tapped(network), picture.clone(), unit, saliency_layer="tap", gradient_to_saliency=lambda layer: layer.grad
    ).detach()


PEERS = (
    Peer("excite", "excite", "excite", _excite),
    Peer("captum", "captum", "captum", _captum),
    Peer("zennit", "zennit", "zennit", _zennit),
    Peer("TorchRay", "torchray", "torchray", _torchray),
    Peer("grad-cam", "pytorch_grad_cam", "grad-cam", None),
)
