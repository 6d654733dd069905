"""The networks of the benchmark, time relative to their plain forward pass, and memory beside the loaded network.

Seconds depend on the machine and its load. So the time of each method is divided by that of the plain forward pass of
the same network on the same images in the same round, and the median over rounds is reported. All candidates take
turns, so that other load hits all of them alike.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from excite.models import Preprocess, find_card, load
from excite.models.layers import candidate_layers, default_layer, passes_everything, spatial_layers, token_stream
from excite.models.loading import RANDOM, files_of
from excite.propagation.taps import find_layer, main_output
from excite.propagation.token_pass import Stream

NETWORKS = ("googlenet", "vgg16", "resnet50-caffe", "efficientnet-lite0")
WITH_WEIGHTS = ("efficientnet-lite0", "everyday")  # inside packages; other weights are not downloaded for a benchmark
PAPERS_SIZE = {"googlenet": (224, 335)}  # height and width of the paper's speed figure
MOST_LAYERS = 12  # of the figure
RUNS = 5  # of a network, for the share of time above a layer
FORWARD, GRADIENT, MWP, C_MWP = "forward", "input gradient", "mwp", "c-mwp"
COMPILED = "c-mwp compiled"  # the same maps from `excite.compile`
LEAST, MOST = 3, 200  # rounds
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
CALLS = 2  # of a call whose memory is measured: the second one shows what the first one keeps
MIB = 2**20
TRIM, MAP, THRESHOLD = -1, -3, 2**17  # glibc's numbers of two settings, and their default


@dataclass(frozen=True)
class TimedNetwork:
    """A network of the benchmark."""

    name: str
    module: nn.Module  # in evaluation mode
    layer: str  # the default layer of maps
    picture: Tensor  # a preprocessed photograph, [1, 3, height, width]
    weights: str  # their origin
    stream: Stream = field(default_factory=dict)  # of tokens, in a plain transformer

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
    side = card.preprocess.shorter_side if isinstance(card.preprocess, Preprocess) else 224
    size = PAPERS_SIZE.get(card.name, (side, side))
    sliding = None if size != (side, side) else False  # at the trained size there is one window
    classifier = load(model, weights=None if at_hand else RANDOM, fully_convolutional=sliding, device=device)
    module = classifier.module.eval()
    picture = classifier.prepared(photograph(size))[None]
    layer = classifier.layer or default_layer(module, picture)
    weights = (files[0].name if files else "published") if at_hand else RANDOM
    return TimedNetwork(classifier.name, module, layer, picture, weights, token_stream(classifier, picture))


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
    blocks = {layer.name for layer in candidate_layers(module, picture, most=10_000)}
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
    """For each layer the share of the forward pass after it, in multiply-adds and in time.

    A map takes the forward pass and, above its layer, the two steps of the paper's Algorithm 1 (forward with positive
    weights, and backward): if only multiply-adds took time, 1 + 2 x that share.
    """

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


# Times of calls that take turns.


@dataclass(frozen=True)
class Case:
    """A method on a network, at a layer, for a number of concepts on each image of a batch."""

    network: str
    layer: str  # at which the map ends; empty for the forward pass
    method: str
    concepts: int = 1
    batch: int = 1


@dataclass(frozen=True)
class Timing:
    """The seconds of one case in each round, and those of the plain forward pass right before it."""

    seconds: tuple[float, ...]
    forwards: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """The ratio to the forward pass, in each round."""
        return [one / forward for one, forward in zip(self.seconds, self.forwards, strict=True)]


@dataclass(frozen=True)
class Candidate:
    """A call to be timed: its case, and ``prepare``, which makes it once and untimed (a copied network, hooks ...)."""

    case: Case
    prepare: Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class Stopwatch:
    """The seconds of a call, including asynchronous work of a GPU."""

    clock: Callable[[], float] = time.perf_counter
    wait: Callable[[], object] = lambda: None

    @classmethod
    def on(cls, device: torch.device) -> Stopwatch:
        """The stopwatch of a device."""
        return cls() if device.type == "cpu" else cls(wait=torch.accelerator.synchronize)

    def __call__(self, call: Callable[[], object]) -> float:
        """Seconds of one call; garbage is collected before it and not within."""
        gc.collect()
        gc.disable()
        try:
            self.wait()
            begin = self.clock()
            answer = call()
            self.wait()
            seconds = self.clock() - begin
        finally:
            gc.enable()
        del answer  # freeing it is not timed
        return seconds


@dataclass
class Rounds:
    """Rounds of one group: a forward pass, every candidate once in random order, and a forward pass.

    The time of each candidate is divided by that of a forward pass right before it, so that both find the same machine
    load and the same caches. ``failed`` has the reason for each case that did not run to the end.
    """

    forward: Callable[[], object]
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    seed: int = 0
    failed: dict[Case, str] = field(default_factory=dict)
    _done: list[tuple[float, dict[Case, tuple[float, float]], float]] = field(default_factory=list)

    def run(self, candidates: Sequence[Candidate], budget: float, least: int = LEAST) -> None:
        """As many rounds as fit in the budget of seconds, and at least ``least``."""
        ready = {}
        for candidate in candidates:
            try:
                ready[candidate.case] = candidate.prepare()
            except Exception as error:  # noqa: BLE001 - a candidate that cannot start is a row with its reason
                self.failed[candidate.case] = reason_of(error)
        generator = torch.Generator().manual_seed(self.seed)
        gc.collect()
        gc.freeze()  # existing objects are not searched before every call
        try:
            spent = self._round(ready, generator)
            if spent <= budget:
                self._done.clear()
                spent = 0.0
            while len(self._done) < least or (spent * (1 + 1 / len(self._done)) <= budget and len(self._done) < MOST):
                spent += self._round(ready, generator)
        finally:
            gc.unfreeze()

    @property
    def timings(self) -> dict[Case, Timing]:
        """The timing of each case, in the given order."""
        cases = [case for case in self._done[0][1] if case not in self.failed]
        return {case: _timing(taken[case] for _, taken, _ in self._done) for case in cases}

    @property
    def forwards(self) -> Timing:
        """The last forward pass of each round relative to the first: the noise of the machine."""
        return _timing((first, last) for first, _, last in self._done)

    def _round(self, ready: dict[Case, Callable[[], object]], generator: torch.Generator) -> float:
        """Run one round; its seconds."""
        begin = self.stopwatch.clock()
        first = self.stopwatch(self.forward)
        taken = dict.fromkeys(ready, (0.0, 0.0))
        cases = list(ready)
        for k in torch.randperm(len(cases), generator=generator).tolist():
            try:
                taken[cases[k]] = self.stopwatch(self.forward), self.stopwatch(ready[cases[k]])
            except Exception as error:  # noqa: BLE001 - as above: the others go on without it
                self.failed[cases[k]] = reason_of(error)
                del ready[cases[k]]
        self._done.append((first, taken, self.stopwatch(self.forward)))
        return self.stopwatch.clock() - begin


def _timing(pairs: Iterable[tuple[float, float]]) -> Timing:
    """From the seconds of a forward pass and of the call after it, in each round."""
    forwards, seconds = zip(*pairs, strict=True)
    return Timing(seconds, forwards)


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


# Memory, as the operating system reports it. Each method is measured in its own process: memory that an earlier one has
# freed would hide what the next one takes.


def in_own_process(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """The result of a call in a fresh process, or a ``note`` with the reason why there is none."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(work, *arguments).result()
        except BrokenProcessPool:
            return {"note": "its process was killed, most likely because memory ran out"}
        except Exception as error:  # noqa: BLE001 - a method that fails is a row with its reason
            return {"note": reason_of(error)}


def peak_of(warm_up: Callable[[], object], run: Callable[[], object], device: torch.device) -> float:
    """The peak MiB of a call, beyond those after a plain forward pass (``warm_up``).

    The call is made twice, so that what it keeps counts. On a GPU it is the memory of tensors there.
    """
    warm_up()
    gc.collect()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device) / MIB
    else:
        return_memory(THRESHOLD)  # else the peak would be that of the largest call so far, whatever it has freed
        before = memory_now()
        if STATUS.exists():
            RESET.write_text("5", encoding="ascii")  # resets the kernel's high-water mark
    for _ in range(CALLS):
        run()
    peak = torch.cuda.max_memory_allocated(device) / MIB if on_gpu else memory_now("VmHWM")
    return_memory(int(os.environ.get("MALLOC_TRIM_THRESHOLD_", THRESHOLD)))
    return peak - before


def return_memory(threshold: int) -> None:
    """Return free memory to the system, now and from now on where it is more than a threshold, in bytes.

    glibc can be told so; other C libraries return it at once.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for option in TRIM, MAP:
            library.mallopt(option, threshold)
        library.malloc_trim(0)


def memory_now(field: str = "VmRSS") -> float:
    """The resident MiB of this process, or its peak (``VmHWM``); without /proc always the peak."""
    if STATUS.exists():
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / MIB if sys.platform == "darwin" else most / 1024  # macOS counts bytes
