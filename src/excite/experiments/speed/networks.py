"""The networks of the speed benchmark, their input, and the arithmetic limit of a map's cost.

A map at a layer takes the forward pass and, above the layer, the two steps of the paper's Algorithm 1: a forward step
with positive weights for the normaliser, and a backward step. If only multiply-adds took time, that is 1 + 2 x the
share of the forward pass above the layer.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from excite.models import Preprocess, find_card, load
from excite.models.layers import candidate_layers, default_layer, passes_everything, spatial_layers
from excite.models.loading import RANDOM, files_of
from excite.propagation.taps import find_layer, main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from excite.experiments.speed.timing import Stopwatch

NETWORKS = ("googlenet", "vgg16", "resnet50-caffe", "efficientnet-lite0")
WITH_WEIGHTS = ("efficientnet-lite0", "everyday")  # inside packages; other weights are not downloaded for a benchmark
PAPERS_SIZE = {"googlenet": (224, 335)}  # height and width of the paper's speed figure
USUAL_SIDE = 224
MOST_LAYERS = 12  # of the figure
ALL = 10_000
RUNS = 5


@dataclass(frozen=True)
class TimedNetwork:
    """A network of the benchmark."""

    name: str
    module: nn.Module  # in evaluation mode
    layer: str  # the default layer of maps
    picture: Tensor  # a preprocessed photograph, [1, 3, height, width]
    weights: str  # their origin

    @property
    def size(self) -> str:
        """Height and width of the image, in pixels."""
        return "x".join(map(str, self.picture.shape[-2:]))

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.picture.device

    def batch(self, pictures: int) -> Tensor:
        """A batch of that many images, each shifted a little."""
        return torch.cat([self.picture.roll(9 * k, dims=-1) for k in range(pictures)])

    def output(self, batch: Tensor) -> Tensor:
        """The output of the network."""
        with torch.no_grad():
            return main_output(self.module(batch))


def open_network(model: str, device: str = "cpu") -> TimedNetwork:
    """A network by any name or file that `excite.load` takes."""
    card = find_card(model)
    files = files_of(model)
    at_hand = card.pretrained is not None and (bool(files) or model in WITH_WEIGHTS)
    side = card.preprocess.shorter_side if isinstance(card.preprocess, Preprocess) else USUAL_SIDE
    size = PAPERS_SIZE.get(card.name, (side, side))
    sliding = None if size != (side, side) else False  # at the trained size there is one window
    classifier = load(model, weights=None if at_hand else RANDOM, fully_convolutional=sliding)
    module = classifier.module.to(device).eval()
    picture = classifier.preprocess(photograph(size))[None].to(device)
    layer = classifier.layer or default_layer(module, picture)
    weights = (files[0].name if files else "published") if at_hand else RANDOM
    return TimedNetwork(classifier.name, module, layer, picture, weights)


def photograph(size: tuple[int, int]) -> Image.Image:
    """A photograph of this height and width: scikit-image's cat, or noise without that package."""
    height, width = size
    if find_spec("skimage") is None:
        return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    chelsea = importlib.import_module("skimage.data").chelsea
    return Image.fromarray(chelsea()).resize((width, height), Image.Resampling.BICUBIC)


def figure_layers(network: TimedNetwork, most: int = MOST_LAYERS) -> list[str]:
    """The layers of the paper's figure: ends of blocks from top to bottom, evenly spread, and the default layer."""
    module, picture = network.module, network.picture
    seen = [layer.name for layer in spatial_layers(module, picture)]
    blocks = {layer.name for layer in candidate_layers(module, picture, most=ALL)}
    trunk = {name for name in blocks if passes_everything(module, picture, name)} | {network.layer}
    return spread(sorted(trunk, key=seen.index), most, network.layer)[::-1]


def spread(names: Sequence[str], most: int, always: str) -> list[str]:
    """At most that many of the names, evenly spread, with the first, the last and ``always``."""
    if len(names) <= most:
        return list(names)
    places = [round(k * (len(names) - 1) / (most - 1)) for k in range(most)]
    wanted = names.index(always)
    if wanted not in places:
        inner = places[1:-1] or places
        places[places.index(min(inner, key=lambda place: abs(place - wanted)))] = wanted
    return [names[place] for place in sorted(places)]


def above_layers(
    module: nn.Module, batch: Tensor, layers: Sequence[str], stopwatch: Stopwatch
) -> dict[str, tuple[float, float]]:
    """For each layer the share of the forward pass after it, in multiply-adds and in time."""

    def now() -> float:
        stopwatch.wait()
        return stopwatch.clock()

    counter = FlopCounterMode(display=False)
    with counter:
        done, whole = _marks(module, batch, layers, lambda: float(counter.get_total_flops()))
    runs = []
    for _ in range(RUNS):
        marks, end = _marks(module, batch, layers, now)
        runs.append({layer: (end - marks[layer]) / (end - marks[""]) for layer in layers})
    return {layer: (1 - done[layer] / whole, median(run[layer] for run in runs)) for layer in layers}


def _marks(
    module: nn.Module, batch: Tensor, layers: Sequence[str], read: Callable[[], float]
) -> tuple[dict[str, float], float]:
    """The readings when each layer is done (for the last time) and at the start (under ""), and that at the end."""
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
