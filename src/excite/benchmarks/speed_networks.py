"""The networks whose speed is measured, and the photograph they look at."""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import nn

from excite.models import Preprocess, find_card, load
from excite.models.folder import files_of
from excite.models.layers import default_layer
from excite.models.loading import DEFAULT, RANDOM
from excite.models.packages import torchvision_models
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

__all__ = ["NETWORKS", "Subject", "open_subject", "open_twin", "private_copy"]

NETWORKS = ("googlenet", "vgg16", "resnet50-caffe", DEFAULT)
WITH_WEIGHTS = (DEFAULT, "everyday")  # inside packages; nobody wants to fetch others for a stopwatch
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
        """Height and width of the picture, in pixels."""
        return "x".join(map(str, self.picture.shape[-2:]))

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.picture.device

    def batch(self, pictures: int) -> Tensor:
        """So many pictures, each moved a little to the side, so that they are not all the same."""
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
