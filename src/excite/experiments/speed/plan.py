"""The plan of a speed benchmark: its tasks, and the calls (candidates) that each of them times."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from excite.errors import DataError
from excite.experiments.speed.networks import NETWORKS
from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, GRADIENT, MWP, Candidate, Case
from excite.export.compiled import Compiled
from excite.models import wrap
from excite.propagation import mwp, prior
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from excite.experiments.speed.networks import TimedNetwork

Kind = Literal["pictures", "compiled", "concepts", "layers", "memory"]

FEW = 5  # concepts timed together with the headline
MOST_MAPS = 80  # concepts x images at once: more take minutes and gigabytes
MOST_PICTURES = 8  # at once, for memory, which is proportional to the batch
SECONDS, QUICK_SECONDS = 20.0, 2.0  # for the rounds of one group
QUICK: dict[str, Any] = {"batches": (1,), "concepts": (1, 5), "all_layers": False, "memory": False}


@dataclass(frozen=True)
class SpeedTask:
    """A group of measurements, with one record.

    Attributes:
        kind: "pictures": the headline methods on a batch; "compiled": maps by onnxruntime; "concepts": many on one
            image; "layers": the paper's figure; "memory": of one method.
        model: for `excite.load`.
        batch: number of images at once.
        concepts: the numbers of concepts.
        skipped: those that are too many for this batch.
        method: whose memory is measured.
    """

    kind: Kind
    model: str
    batch: int = 1
    concepts: tuple[int, ...] = (1,)
    skipped: tuple[int, ...] = ()
    method: str = ""

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
    memory: bool = True
    compiled: bool = False

    def tasks(self) -> Iterator[SpeedTask]:
        """The tasks, network by network, so that each is loaded once."""
        for model in self.models:
            for batch in self.batches:
                fit = [number for number in self.concepts if number * batch <= MOST_MAPS]
                few, many = (tuple(n for n in fit if (n <= FEW) is small) for small in (True, False))
                yield SpeedTask("pictures", model, batch, few, tuple(n for n in self.concepts if n not in fit))
                if many:
                    yield SpeedTask("concepts", model, batch, many)
            if self.compiled:
                yield SpeedTask("compiled", model, concepts=tuple(number for number in self.concepts if number <= FEW))
            if self.all_layers:
                yield SpeedTask("layers", model)
            if self.memory:
                yield from self._memory(model)

    def _memory(self, model: str) -> Iterator[SpeedTask]:
        for batch in self.batches:
            if batch <= MOST_PICTURES:
                for method in (FORWARD, GRADIENT, MWP) if batch == 1 else (GRADIENT,):
                    yield SpeedTask("memory", model, batch, method=method)
                for number in self.concepts if batch == 1 else self.concepts[:1]:
                    yield SpeedTask("memory", model, batch, (number,), method=C_MWP)


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


def plain_forward(network: TimedNetwork, pictures: int) -> Callable[[], object]:
    """The forward pass for classification, without gradients."""
    batch = network.batch(pictures)
    return lambda: network.output(batch)


def candidate(
    network: TimedNetwork, method: str, *, layer: str = "", concepts: int = 1, pictures: int = 1
) -> Candidate:
    """The input gradient, MWP, c-MWP or the compiled c-MWP on a network.

    Args:
        network: the network.
        method: its name, as in `excite.experiments.speed.timing`.
        layer: at which a map ends; the default layer if empty. The input gradient ends at the image.
        concepts: number on each image; the input gradient is computed for one after the other.
        pictures: number of images at once.
    """
    layer = "input" if method == GRADIENT else layer or network.layer
    case = Case(network.name, layer, method, concepts, pictures)

    def prepare() -> Callable[[], object]:
        batch = network.batch(pictures)
        output = network.output(batch)
        signals = torch.stack([prior(output, {unit: 1.0}) for unit in top_classes(output, concepts)])
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
