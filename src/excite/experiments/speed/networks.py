"""The networks whose speed is measured, and the photograph they look at."""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from excite.experiments.conservation.run import passes_everything
from excite.models import Preprocess, find_card, load
from excite.models.folder import files_of
from excite.models.layers import candidate_layers, default_layer, spatial_layers
from excite.models.loading import RANDOM
from excite.models.sources import torchvision_models
from excite.propagation.networks import find_layer, main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from excite.experiments.speed.timing import Stopwatch


NETWORKS = ("googlenet", "vgg16", "resnet50-caffe", "efficientnet-lite0")
WITH_WEIGHTS = ("efficientnet-lite0", "everyday")  # inside packages; nobody wants to fetch others for a stopwatch
PAPERS_SIZE = {"googlenet": (224, 335)}  # height and width of the paper's speed figure
USUAL_SIDE = 224

# The same architectures as written by torchvision, for peers that cannot run ours: the name, and the same layer there
TWINS = {
    "googlenet": ("googlenet", "maxpool2", {"aux_logits": False, "init_weights": False}),
    "vgg16": ("vgg16", "features.23", {}),
    "resnet50-caffe": ("resnet50", "layer3", {}),
}


@dataclass(frozen=True)
class Subject:
    """A network to be timed.

    Attributes:
        name: for people to read.
        module: the network, ready to run.
        layer: where maps are read unasked.
        picture: one photograph as the network takes it, [1, 3, height, width].
        weights: where its weights are from.
    """

    name: str
    module: nn.Module
    layer: str
    picture: Tensor
    weights: str

    @property
    def size(self) -> str:
        """Height and width of the image, in pixels."""
        return "x".join(map(str, self.picture.shape[-2:]))

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.picture.device

    def batch(self, pictures: int) -> Tensor:
        """So many images, each moved a little to the side, so that they are not all the same."""
        return torch.cat([self.picture.roll(9 * k, dims=-1) for k in range(pictures)])

    def output(self, batch: Tensor) -> Tensor:
        """What the network answers."""
        with torch.no_grad():
            return main_output(self.module(batch))


def open_subject(model: str, device: str = "cpu") -> Subject:
    """A network by any name or file that `excite.load` takes.

    Weights are read where they are at hand: those in packages, and those in a file or folder that is named. All others
    are random: what is computed, and so the time, is the same.

    Raises:
        ModelError: there is no such classifier.

    Example:
        >>> subject = open_subject("efficientnet-lite0")
        >>> subject.layer, subject.size, subject.weights
        ('blocks.14', '224x224', 'published')
    """
    card = find_card(model)
    files = files_of(model)
    at_hand = card.pretrained is not None and (bool(files) or model in WITH_WEIGHTS)
    side = card.preprocess.shorter_side if isinstance(card.preprocess, Preprocess) else USUAL_SIDE
    size = PAPERS_SIZE.get(card.name, (side, side))
    sliding = None if size != (side, side) else False  # at the trained size there is one window
    classifier = load(model, weights=None if at_hand else RANDOM, fully_convolutional=sliding)
    module = classifier.module.to(device).eval()
    picture = classifier.preprocess(photograph(size))[None].to(device)
    return Subject(
        classifier.name,
        module,
        classifier.layer or default_layer(module, picture),
        picture,
        _source(files) if at_hand else RANDOM,
    )


def open_twin(subject: Subject) -> Subject:
    """The network that peers can run: torchvision's of the same architecture; of others, a copy of the network itself.

    Activations are modules of their own that work on no input in place, because most peers hang on to modules. The
    weights are random, but those of a copy.

    Example:
        >>> open_twin(open_subject("efficientnet-lite0")).name
        'copy of efficientnet-lite0'
    """
    if subject.name not in TWINS:
        return replace(subject, name=f"copy of {subject.name}", module=private_copy(subject.module))
    name, layer, options = TWINS[subject.name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: nn.Module = torchvision_models().get_model(name, weights=None, **options)
    module = _in_modules(module).to(subject.device).eval()
    picture = (subject.picture - subject.picture.mean()) / subject.picture.std()
    return Subject(f"torchvision:{name}", private_copy(module), layer, picture, RANDOM)


def private_copy(module: nn.Module) -> nn.Module:
    """A network of the same weights for somebody who will hang hooks on it; nothing works in place there.

    Example:
        >>> network = nn.Sequential(nn.ReLU(inplace=True))
        >>> private_copy(network)[0].inplace, network[0].inplace
        (False, True)
    """
    shared = {id(weight): nn.Parameter(weight.detach(), weight.requires_grad) for weight in module.parameters()}
    private = copy.deepcopy(module, shared)
    for child in private.modules():
        if getattr(child, "inplace", False):
            child.inplace = False  # type: ignore[assignment]  # modules type all their attributes as tensors
    return private


def photograph(size: tuple[int, int]) -> Image.Image:
    """A photograph of this height and width: scikit-image's cat, or noise where that package is not installed."""
    height, width = size
    if find_spec("skimage") is None:
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        return Image.fromarray(noise)
    chelsea = importlib.import_module("skimage.data").chelsea

    return Image.fromarray(chelsea()).resize((width, height), Image.Resampling.BICUBIC)


def _source(files: list[Path]) -> str:
    return files[0].name if files else "published"


def _in_modules(module: nn.Module) -> nn.Module:
    """Replace torchvision's GoogLeNet units, which call their ReLU as a function, by the same in modules."""
    for name, child in module.named_children():
        if type(child).__name__ == "BasicConv2d":
            setattr(module, name, nn.Sequential(child.get_submodule("conv"), child.get_submodule("bn"), nn.ReLU()))
        else:
            _in_modules(child)
    return module


# The layers of the paper's speed figure.

MOST = 12
ALL = 10_000


def figure_layers(subject: Subject, most: int = MOST) -> list[str]:
    """Ends of the network's blocks from top to bottom, spread over its depth, and the layer that is read unasked.

    What lies beside other branches is left out: there is no share of the forward pass above it.
    """
    module, picture = subject.module, subject.picture
    seen = [layer.name for layer in spatial_layers(module, picture)]
    blocks = {layer.name for layer in candidate_layers(module, picture, most=ALL)}
    trunk = {name for name in blocks if passes_everything(module, picture, name)} | {subject.layer}
    return spread(sorted(trunk, key=seen.index), most, subject.layer)[::-1]


def spread(names: Sequence[str], most: int, always: str) -> list[str]:
    """At most so many of the names, evenly over all, the first, the last and one more always among them.

    Example:
        >>> spread("abcdefg", 3, "f")
        ['a', 'f', 'g']
    """
    if len(names) <= most:
        return list(names)
    places = [round(k * (len(names) - 1) / (most - 1)) for k in range(most)]
    wanted = names.index(always)
    if wanted not in places:
        inner = places[1:-1] or places
        places[places.index(min(inner, key=lambda place: abs(place - wanted)))] = wanted
    return [names[place] for place in sorted(places)]


# How fast a map could be: the arithmetic that cannot be avoided.
#
# A map at a layer takes the forward pass, and, above the layer, the two steps of the paper's Algorithm 1: once more
# forward with positive weights for the normaliser, and once back. That is 1 + 2 x the share of the forward pass that
# lies above the layer, if nothing but multiply-adds took time.

RUNS = 5


@dataclass(frozen=True)
class Above:
    """How much of a forward pass lies above a layer.

    Attributes:
        arithmetic: the share of its multiply-adds,
        time: and the share of its time.
    """

    arithmetic: float
    time: float

    @property
    def limit(self) -> float:
        """The least that a map can cost, in forward passes.

        Example:
            >>> Above(arithmetic=0.25, time=0.5).limit
            1.5
        """
        return 1 + 2 * self.arithmetic


def above_layers(module: nn.Module, batch: Tensor, layers: Sequence[str], stopwatch: Stopwatch) -> dict[str, Above]:
    """For each layer how much of the forward pass is done after it.

    Example:
        >>> from torch import nn
        >>> from excite.experiments.speed.timing import Stopwatch
        >>> net = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 1))
        >>> above_layers(net, torch.ones(1, 1, 4, 4), ["1"], Stopwatch())["1"].arithmetic
        0.5
    """
    counter = FlopCounterMode(display=False)
    with counter:
        done, whole = _marks(module, batch, layers, lambda: float(counter.get_total_flops()))
    runs = []
    for _ in range(RUNS):
        marks, end = _marks(module, batch, layers, lambda: _now(stopwatch))
        runs.append({layer: (end - marks[layer]) / (end - marks[""]) for layer in layers})
    return {layer: Above(1 - done[layer] / whole, median(run[layer] for run in runs)) for layer in layers}


def _marks(
    module: nn.Module, batch: Tensor, layers: Sequence[str], read: Callable[[], float]
) -> tuple[dict[str, float], float]:
    """What is read when each layer has been computed (for the last time), at the start (under no name) and the end."""
    marks: dict[str, float] = {}

    def mark(layer: str) -> Callable[..., None]:
        return lambda *_: marks.update({layer: read()})

    handles = [find_layer(module, layer)[0].register_forward_hook(mark(layer)) for layer in layers]
    try:
        with torch.no_grad():
            mark("")()
            module(batch)
    finally:
        for handle in handles:
            handle.remove()
    return marks, read()


def _now(stopwatch: Stopwatch) -> float:
    stopwatch.wait()
    return stopwatch.clock()
