"""Time other packages beside excite, on a network that they can run: captum, zennit, TorchRay, grad-cam.

    python dev/speed_peers.py --model vgg16 [--concepts 1,5] [--seconds 20] [--threads 1] [--compiled] [--memory]

All take turns in the same rounds, as in ``excite bench speed``, and run as their own documentation shows. One that is
not installed, or that fails on a network, is a row with its reason. Tables are written to ``--out``.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from excite.cli.console import print_columns, say
from excite.errors import DataError
from excite.experiments.speed.report import about, columns, merged, row, write_tables
from excite.experiments.speed.run import SECONDS, SpeedBench, candidate, numbers, plain_forward, timed_rows, top_classes
from excite.experiments.speed.timing import (
    C_MWP,
    COMPILED,
    GRADIENT,
    MWP,
    NETWORKS,
    Candidate,
    Case,
    TimedNetwork,
    in_own_process,
    open_network,
    peak_of,
)
from excite.models.layers import top_layer
from excite.models.loading import RANDOM
from excite.models.sources import torchvision_models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from torch import Tensor

    from excite.experiments.speed.report import TableRow

    MapOf: TypeAlias = Callable[[Tensor, int], object]  # of images and a class

# The same architectures of torchvision, for peers that cannot run ours: the name, and the same layer there
TWINS = {
    "googlenet": ("googlenet", "maxpool2", {"aux_logits": False, "init_weights": False}),
    "vgg16": ("vgg16", "features.23", {}),
    "resnet50-caffe": ("resnet50", "layer3", {}),
}


def open_twin(network: TimedNetwork) -> TimedNetwork:
    """The network for peers: torchvision's of the same architecture with random weights, or else a copy.

    Activations are modules and not in place, because most peers hook modules.
    """
    if network.name not in TWINS:
        return replace(network, name=f"copy of {network.name}", module=private_copy(network.module))
    name, layer, options = TWINS[network.name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: nn.Module = torchvision_models().get_model(name, weights=None, **options)
    module = _in_modules(module).to(network.device).eval()
    picture = (network.picture - network.picture.mean()) / network.picture.std()
    return TimedNetwork(f"torchvision:{name}", private_copy(module), layer, picture, RANDOM)


def private_copy(module: nn.Module) -> nn.Module:
    """A copy of a network that shares its weights, for hooks; without in-place activations."""
    shared = {id(weight): nn.Parameter(weight.detach(), weight.requires_grad) for weight in module.parameters()}
    private = copy.deepcopy(module, shared)
    for child in private.modules():
        if getattr(child, "inplace", False):
            child.inplace = False  # type: ignore[assignment]  # modules type all their attributes as tensors
    return private


def _in_modules(module: nn.Module) -> nn.Module:
    """Replace the units of torchvision's GoogLeNet, whose ReLU is a function, by sequences of modules."""
    for name, child in module.named_children():
        if type(child).__name__ == "BasicConv2d":
            setattr(module, name, nn.Sequential(child.get_submodule("conv"), child.get_submodule("bn"), nn.ReLU()))
        else:
            _in_modules(child)
    return module


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


def timed(network: TimedNetwork, concepts: Sequence[int], seconds: float, *, compiled: bool) -> list[TableRow]:
    """Peers and ours on the same network in the same rounds.

    Several concepts are timed for the nearest peer only: the others take a call for each. ``times_compiled`` is the
    time beside the compiled c-MWP for as many concepts.
    """
    ways = (C_MWP, COMPILED) if compiled else (C_MWP,)
    candidates = [candidate(network, method) for method in (GRADIENT, MWP)]
    candidates += [candidate(network, way, concepts=number) for number in concepts for way in ways]
    candidates += [peer_candidate(peer, network) for peer in PEERS]
    candidates += [peer_candidate(TORCHRAY, network, number) for number in concepts if number > 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers warn of changing a network; it is their own copy
        rows = timed_rows(network, candidates, "peers", seconds)
    beside = {each["concepts"]: each["times_c_mwp"] for each in rows if each["method"] == COMPILED}
    for each in rows:
        if each["times_c_mwp"] is not None and beside.get(each["concepts"]):
            each["times_compiled"] = round(each["times_c_mwp"] / beside[each["concepts"]], 3)
    return rows


def peak(model: str, name: str, threads: int) -> dict[str, Any]:
    """The peak memory of one peer, in a process of its own."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    network = open_twin(open_network(model))
    run = peer_candidate(PEER_NAMES[name], network).prepare()
    return {"peak_mb": round(peak_of(plain_forward(network, 1), run, network.device), 1)}


def main() -> None:
    """Time every network, and print and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="append", help="may be given several times")
    parser.add_argument("--concepts", default="1,5")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--compiled", action="store_true", help="maps by onnxruntime, too")
    parser.add_argument("--memory", action="store_true", help="peak memory of the peers, too")
    parser.add_argument("--out", type=Path, default=Path("excite-out/speed-peers"))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    rows: list[TableRow] = []
    for model in asked.model or NETWORKS:
        network = open_twin(open_network(model))
        rows += timed(network, numbers(asked.concepts, "--concepts"), asked.seconds, compiled=asked.compiled)
        for peer in PEERS if asked.memory else ():
            answer = in_own_process(peak, model, peer.name, asked.threads)
            rows.append(row(peer_candidate(peer, network).case, network, "memory", **answer))
    rows = merged(rows)
    facts = SpeedBench(asked.seconds, asked.threads).facts
    shown = [{**columns(each), "x compiled": str(each.pop("times_compiled", ""))} for each in rows]
    print_columns(shown)
    for sentence in about(rows, facts):
        say(sentence)
    say(f"written: {', '.join(map(str, write_tables(rows, facts, asked.out)))}")


if __name__ == "__main__":
    main()
