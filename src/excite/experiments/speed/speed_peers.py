"""The peers: other packages' methods, run as their own documentation shows, on a network that they can run.

None of them is needed. Each is imported only when it is its turn, and one that is not installed, or that fails on a
network, is a row with its reason.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from excite.errors import DataError
from excite.experiments.speed.contenders import top_classes
from excite.experiments.speed.networks import private_copy
from excite.experiments.speed.speed_rounds import Contender
from excite.experiments.speed.timing import Case
from excite.models.layers import top_layer
from excite.models.packages import torchvision_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from torch import Tensor

    from excite.experiments.speed.networks import Subject

    Ask: TypeAlias = Callable[[Tensor, int], object]  # a map of pictures and a class

__all__ = ["PEERS", "PEER_NAMES", "TORCHRAY", "ZENNIT", "Peer", "peer_contender"]


@dataclass(frozen=True)
class Peer:
    """A method of another package.

    Attributes:
        name: for the table, its package first.
        install: how to get the package.
        start: makes, of a network of its own and a layer's name, what answers pictures and a class.
        at_layer: whether it ends at the layer; otherwise it goes on to the picture.
    """

    name: str
    install: str
    start: Callable[[nn.Module, str, Tensor], Ask]
    at_layer: bool = True


def peer_contender(peer: Peer, subject: Subject, concepts: int = 1) -> Contender:
    """A peer on one picture; for several concepts it is called as often, having no other way.

    Example:
        >>> from excite.experiments.speed.networks import open_subject
        >>> peer_contender(PEERS[0], open_subject("efficientnet-lite0"), 5).case.method
        'captum saliency'
    """
    case = Case(subject.name, subject.layer if peer.at_layer else "input", peer.name, concepts)

    def prepare() -> Callable[[], object]:
        batch = subject.batch(1)
        units = top_classes(subject.output(batch), concepts)
        try:
            torchvision_models()  # some peers import it, which may need a hand
            ask = peer.start(private_copy(subject.module), subject.layer, batch)
        except ModuleNotFoundError as error:
            raise DataError(f"not installed (no module {error.name!r}): {peer.install}") from None
        return lambda: [ask(batch, unit) for unit in units]

    return Contender(case, prepare)


def _captum(name: str) -> Callable[[nn.Module, str, Tensor], Ask]:
    """A method of captum that goes down to the picture."""

    def start(network: nn.Module, _layer: str, _batch: Tensor) -> Ask:
        method = getattr(importlib.import_module("captum.attr"), name)(network)
        return lambda batch, unit: method.attribute(batch.detach().requires_grad_(), target=unit)

    return start


def _captum_grad_cam(network: nn.Module, layer: str, _batch: Tensor) -> Ask:
    method = importlib.import_module("captum.attr").LayerGradCam(network, network.get_submodule(layer))
    return lambda batch, unit: method.attribute(batch, target=unit)


def _grad_cam(network: nn.Module, layer: str, _batch: Tensor) -> Ask:
    package = importlib.import_module("pytorch_grad_cam")
    target = importlib.import_module("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
    method = package.GradCAM(model=network, target_layers=[network.get_submodule(layer)])
    return lambda batch, unit: method(input_tensor=batch, targets=[target(unit)])


def _zennit_network(network: nn.Module) -> nn.Module:
    """The network with zennit's rules on it for good, which spares it putting them there for each picture."""
    composites = importlib.import_module("zennit.composites")
    for_torchvision = importlib.import_module("zennit.torchvision")
    general = importlib.import_module("zennit.canonizers")
    known = {"ResNet": for_torchvision.ResNetCanonizer, "VGG": for_torchvision.VGGCanonizer}
    canonizer = known.get(type(network).__name__, general.SequentialMergeBatchNorm)()
    composites.ExcitationBackprop(canonizers=[canonizer]).register(network)
    return network


def _zennit(network: nn.Module, _layer: str, _batch: Tensor) -> Ask:
    ruled = _zennit_network(network)

    def ask(batch: Tensor, unit: int) -> object:
        pictures = batch.detach().requires_grad_()
        output = ruled(pictures)
        return torch.autograd.grad(output, pictures, _one_hot(output, unit))

    return ask


def _zennit_at_layer(network: nn.Module, layer: str, _batch: Tensor) -> Callable[[Tensor, int], tuple[Tensor, ...]]:
    ruled, kept = _zennit_network(network), []
    ruled.get_submodule(layer).register_forward_hook(lambda _module, _inputs, answer: kept.append(answer))

    def ask(batch: Tensor, unit: int) -> tuple[Tensor, ...]:
        kept.clear()
        output = ruled(batch.detach().requires_grad_())
        return torch.autograd.grad(output, kept[-1], _one_hot(output, unit))

    return ask


def _zennit_contrastive(network: nn.Module, layer: str, batch: Tensor) -> Ask:
    """A contrast out of it takes a second pass, of a network whose classifier has the negated weights."""
    dual = private_copy(network)
    classifier = dual.get_submodule(_last_weights(network, batch))
    for name, weight in list(classifier.named_parameters(recurse=False)):
        setattr(classifier, name, nn.Parameter(-weight.detach()))
    both = [_zennit_at_layer(each, layer, batch) for each in (network, dual)]

    def ask(batch: Tensor, unit: int) -> object:
        (up,), (down,) = (each(batch, unit) for each in both)
        return up - down

    return ask


def _torchray(network: nn.Module, layer: str, _batch: Tensor) -> Ask:
    package = importlib.import_module("torchray.attribution.excitation_backprop")
    network = _torchray_network(package, network)
    return lambda batch, unit: package.excitation_backprop(network, batch, unit, saliency_layer=layer)


def _torchray_contrastive(network: nn.Module, layer: str, batch: Tensor) -> Ask:
    package = importlib.import_module("torchray.attribution.excitation_backprop")
    top, last = top_layer(network, batch), _last_weights(network, batch)
    network = _torchray_network(package, network)
    return lambda batch, unit: package.contrastive_excitation_backprop(
        network, batch, unit, saliency_layer=layer, contrast_layer=top, classifier_layer=last
    )


def _torchray_network(package: Any, network: nn.Module) -> nn.Module:
    """Its own rewrite of torchvision's ResNets, without which it counts shortcuts twice."""
    rewritten: nn.Module = package.update_resnet(network) if isinstance(network, package.ResNet) else network
    return rewritten


def _last_weights(network: nn.Module, batch: Tensor) -> str:
    """The last module with weights that runs: the classifier's own."""
    seen: list[str] = []
    handles = [
        child.register_forward_hook(lambda _module, _inputs, _answer, name=name: seen.append(name))
        for name, child in network.named_modules()
        if any(weight.dim() > 1 for weight in child.parameters(recurse=False))
    ]
    with torch.no_grad():
        network(batch)
    for handle in handles:
        handle.remove()
    return seen[-1]


def _one_hot(output: Tensor, unit: int) -> Tensor:
    signal = torch.zeros_like(output)
    signal[:, unit] = 1
    return signal


TORCHRAY = Peer(
    "torchray contrastive excitation",
    "pip install torchray (its licence forbids commercial use)",
    _torchray_contrastive,
)
ZENNIT = Peer("zennit excitation", "pip install zennit", _zennit_at_layer)
PEERS = (
    Peer("captum saliency", "pip install captum", _captum("Saliency"), at_layer=False),
    Peer("captum guided backprop", "pip install captum", _captum("GuidedBackprop"), at_layer=False),
    Peer("captum lrp", "pip install captum", _captum("LRP"), at_layer=False),
    Peer("captum grad-cam", "pip install captum", _captum_grad_cam),
    ZENNIT,
    Peer("zennit excitation, contrastive", ZENNIT.install, _zennit_contrastive),
    Peer("zennit excitation to input", ZENNIT.install, _zennit, at_layer=False),
    Peer("torchray excitation", TORCHRAY.install, _torchray),
    TORCHRAY,
    Peer("grad-cam", "pip install grad-cam", _grad_cam),
)
PEER_NAMES = {peer.name: peer for peer in PEERS}
