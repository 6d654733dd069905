"""The candidates of the speed benchmark: excite's own methods, those of other packages, and the plan of a run.

Other packages (peers) run as their own documentation shows. Each is imported only when it is used; one that is not
installed, or that fails on a network, is a row with its reason.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from excite.errors import DataError
from excite.experiments.speed.networks import NETWORKS, private_copy
from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, GRADIENT, MWP, Candidate, Case
from excite.export.compiled import Compiled
from excite.models import wrap
from excite.models.layers import top_layer
from excite.models.sources import torchvision_models
from excite.propagation import mwp, prior
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from torch import Tensor

    from excite.experiments.speed.networks import TimedNetwork

    MapOf: TypeAlias = Callable[[Tensor, int], object]  # of images and a class

Kind = Literal["pictures", "compiled", "concepts", "layers", "peers", "memory", "endurance"]

METHODS = (GRADIENT, MWP, C_MWP, COMPILED)
FEW = 5  # concepts timed together with the headline
MOST_MAPS = 80  # concepts x images at once: more take minutes and gigabytes
MOST_PICTURES = 8  # at once, for memory, which is proportional to the batch
SECONDS, QUICK_SECONDS = 20.0, 2.0  # for the rounds of one group
QUICK: dict[str, Any] = {"batches": (1,), "concepts": (1, 5), "all_layers": False, "peers": False, "memory": False}


def plain_forward(network: TimedNetwork, pictures: int) -> Callable[[], object]:
    """The forward pass for classification, without gradients."""
    batch = network.batch(pictures)
    return lambda: network.output(batch)


def candidate(
    network: TimedNetwork, method: str, *, layer: str = "", concepts: int = 1, pictures: int = 1
) -> Candidate:
    """One of `METHODS` on a network.

    Args:
        network: the network.
        method: its name.
        layer: at which a map ends; the default layer if empty. The input gradient ends at the image.
        concepts: number on each image; the input gradient is computed for one after the other.
        pictures: number of images at once.
    """
    layer = "input" if method == GRADIENT else layer or network.layer
    case = Case(network.name, layer, method, concepts, pictures)

    def prepare() -> Callable[[], object]:
        batch = network.batch(pictures)
        signals = _signals(network.output(batch), concepts)
        if method == GRADIENT:
            return lambda: [_gradient(network, batch, signal) for signal in signals]
        if method == COMPILED:
            return _compiled(network, layer, batch, signals)
        asked = signals[0] if concepts == 1 else signals
        return lambda: mwp(network.module, batch, asked, layer=layer, contrastive=method == C_MWP)

    return Candidate(case, prepare)


def top_classes(output: Tensor, concepts: int) -> list[int]:
    """The classes with the largest mean output, over all images and positions.

    Example:
        >>> top_classes(torch.tensor([[0.0, 2.0, 1.0]]), 2)
        [1, 2]
    """
    seen = output.transpose(0, 1).flatten(1).mean(dim=1)
    chosen: list[int] = seen.topk(min(concepts, len(seen))).indices.tolist()
    return [chosen[k % len(chosen)] for k in range(concepts)]  # a small network has fewer classes


def _signals(output: Tensor, concepts: int) -> Tensor:
    return torch.stack([prior(output, {unit: 1.0}) for unit in top_classes(output, concepts)])


def _compiled(network: TimedNetwork, layer: str, batch: Tensor, signals: Tensor) -> Callable[[], object]:
    """Maps of an exported graph; the export is cached and not timed."""
    height, width = batch.shape[2:]
    classifier = wrap(network.module, name=network.name)
    compiled = Compiled(classifier, layer=layer, size=(height, width), threads=torch.get_num_threads())
    return lambda: compiled.maps(batch, signals)


def _gradient(network: TimedNetwork, batch: Tensor, signal: Tensor) -> Tensor:
    """The input gradient by autograd alone."""
    pictures = batch.detach().requires_grad_()
    (arrived,) = torch.autograd.grad(main_output(network.module(pictures)), pictures, signal)
    return arrived


@dataclass(frozen=True)
class Peer:
    """A method of another package.

    Attributes:
        name: in tables, its package first.
        install: the command to install the package.
        start: makes the function of images and a class, from a private network, a layer's name and a batch.
        at_layer: whether the map ends at the layer or at the image.
    """

    name: str
    install: str
    start: Callable[[nn.Module, str, Tensor], MapOf]
    at_layer: bool = True


def peer_candidate(peer: Peer, network: TimedNetwork, concepts: int = 1) -> Candidate:
    """A peer on one image; it is called once for each concept."""
    case = Case(network.name, network.layer if peer.at_layer else "input", peer.name, concepts)

    def prepare() -> Callable[[], object]:
        batch = network.batch(1)
        units = top_classes(network.output(batch), concepts)
        try:
            torchvision_models()  # some peers import it, which may need preparation
            ask = peer.start(private_copy(network.module), network.layer, batch)
        except ModuleNotFoundError as error:
            raise DataError(f"not installed (no module {error.name!r}): {peer.install}") from None
        return lambda: [ask(batch, unit) for unit in units]

    return Candidate(case, prepare)


def _captum(name: str) -> Callable[[nn.Module, str, Tensor], MapOf]:
    """A method of captum that ends at the image."""

    def start(network: nn.Module, _layer: str, _batch: Tensor) -> MapOf:
        method = getattr(importlib.import_module("captum.attr"), name)(network)
        return lambda batch, unit: method.attribute(batch.detach().requires_grad_(), target=unit)

    return start


def _captum_grad_cam(network: nn.Module, layer: str, _batch: Tensor) -> MapOf:
    method = importlib.import_module("captum.attr").LayerGradCam(network, network.get_submodule(layer))
    return lambda batch, unit: method.attribute(batch, target=unit)


def _grad_cam(network: nn.Module, layer: str, _batch: Tensor) -> MapOf:
    package = importlib.import_module("pytorch_grad_cam")
    target = importlib.import_module("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
    method = package.GradCAM(model=network, target_layers=[network.get_submodule(layer)])
    return lambda batch, unit: method(input_tensor=batch, targets=[target(unit)])


def _zennit_network(network: nn.Module) -> nn.Module:
    """The network with zennit's rules registered once and not for each image."""
    composites = importlib.import_module("zennit.composites")
    for_torchvision = importlib.import_module("zennit.torchvision")
    general = importlib.import_module("zennit.canonizers")
    known = {"ResNet": for_torchvision.ResNetCanonizer, "VGG": for_torchvision.VGGCanonizer}
    canonizer = known.get(type(network).__name__, general.SequentialMergeBatchNorm)()
    composites.ExcitationBackprop(canonizers=[canonizer]).register(network)
    return network


def _zennit(network: nn.Module, _layer: str, _batch: Tensor) -> MapOf:
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


def _zennit_contrastive(network: nn.Module, layer: str, batch: Tensor) -> MapOf:
    """The contrast takes a second pass, of a network whose classifier has negated weights."""
    dual = private_copy(network)
    classifier = dual.get_submodule(_last_weights(network, batch))
    for name, weight in list(classifier.named_parameters(recurse=False)):
        setattr(classifier, name, nn.Parameter(-weight.detach()))
    both = [_zennit_at_layer(each, layer, batch) for each in (network, dual)]

    def ask(batch: Tensor, unit: int) -> object:
        (up,), (down,) = (each(batch, unit) for each in both)
        return up - down

    return ask


def _torchray(network: nn.Module, layer: str, _batch: Tensor) -> MapOf:
    package = importlib.import_module("torchray.attribution.excitation_backprop")
    network = _torchray_network(package, network)
    return lambda batch, unit: package.excitation_backprop(network, batch, unit, saliency_layer=layer)


def _torchray_contrastive(network: nn.Module, layer: str, batch: Tensor) -> MapOf:
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
    """The last module with weights that runs: the classifier."""
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


@dataclass(frozen=True)
class SpeedTask:
    """A group of measurements, with one record.

    Attributes:
        kind: "pictures": the headline methods on a batch; "compiled": maps by onnxruntime; "concepts": many on one
            image; "layers": the paper's figure; "peers": other packages, and ours beside them; "memory": of one
            method; "endurance": memory over many images.
        model: for `excite.load`.
        batch: number of images at once.
        concepts: the numbers of concepts.
        skipped: those that are too many for this batch.
        method: whose memory is measured.
        pictures: number of images for endurance.
        compiled: whether compiled maps are timed beside the peers.
    """

    kind: Kind
    model: str
    batch: int = 1
    concepts: tuple[int, ...] = (1,)
    skipped: tuple[int, ...] = ()
    method: str = ""
    pictures: int = 0
    compiled: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """The attributes as plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Plan:
    """The measurements of a run; see ``excite bench speed --help``.

    Example:
        >>> [task.kind for task in Plan(models=("vgg16",), **QUICK).tasks()]
        ['pictures']
    """

    models: tuple[str, ...] = NETWORKS
    batches: tuple[int, ...] = (1, 8, 32)
    concepts: tuple[int, ...] = (1, 5, 20, 80)
    all_layers: bool = True
    peers: bool = True
    memory: bool = True
    endurance: int = 0
    compiled: bool = False

    def tasks(self) -> Iterator[SpeedTask]:
        """The tasks, network by network, so that each is loaded once."""
        for model in self.models:
            for batch in self.batches:
                few = tuple(number for number in self.concepts if number <= FEW and number * batch <= MOST_MAPS)
                skipped = tuple(number for number in self.concepts if number * batch > MOST_MAPS)
                yield SpeedTask("pictures", model, batch, few, skipped)
                many = tuple(number for number in self.concepts if number > FEW and number * batch <= MOST_MAPS)
                if many:
                    yield SpeedTask("concepts", model, batch, many)
            if self.compiled:
                yield SpeedTask("compiled", model, concepts=tuple(number for number in self.concepts if number <= FEW))
            if self.all_layers:
                yield SpeedTask("layers", model)
            if self.peers:
                few = (1, *(number for number in self.concepts if 1 < number <= FEW))
                yield SpeedTask("peers", model, concepts=few, compiled=self.compiled)
            if self.memory:
                yield from self._memory(model)
            if self.endurance:
                yield SpeedTask("endurance", model, pictures=self.endurance)

    def _memory(self, model: str) -> Iterator[SpeedTask]:
        for batch in self.batches:
            if batch <= MOST_PICTURES:
                for method in (FORWARD, GRADIENT, MWP) if batch == 1 else (GRADIENT,):
                    yield SpeedTask("memory", model, batch, method=method)
                for number in self.concepts if batch == 1 else self.concepts[:1]:
                    yield SpeedTask("memory", model, batch, (number,), method=C_MWP)
        if self.peers:
            for peer in PEERS:
                yield SpeedTask("memory", model, method=peer.name)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """The numbers of a comma-separated list, each once and in order.

    Example:
        >>> numbers("8,1", "--batches")
        (1, 8)
    """
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise DataError(f"{option} {text}: give numbers from 1 up with commas between, such as 1,8")
    return tuple(sorted({int(word) for word in words}))


def checked_device(device: str) -> str:
    """The device, if this torch can compute there."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DataError(f"--device {device} cannot be used ({str(error).splitlines()[0]}): use cpu") from None
    return device
