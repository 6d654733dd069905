"""What excite itself enters for the race: the plain forward pass, the input gradient, and maps at any layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.benchmarks.speed import C_MWP, COMPILED, GRADIENT, MWP, Case
from excite.benchmarks.speed_rounds import Contender
from excite.compiling import Compiled
from excite.models import wrap
from excite.propagation import mwp, prior
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from excite.benchmarks.speed_networks import Subject

__all__ = ["METHODS", "contender", "plain_forward", "top_classes"]

METHODS = (GRADIENT, MWP, C_MWP, COMPILED)


def plain_forward(subject: Subject, pictures: int) -> Callable[[], object]:
    """The measure of all: the network as its owner runs it to classify, without gradients."""
    batch = subject.batch(pictures)
    return lambda: subject.output(batch)


def contender(subject: Subject, method: str, *, layer: str = "", concepts: int = 1, pictures: int = 1) -> Contender:
    """One of `METHODS` on a network.

    Args:
        subject: the network.
        method: its name.
        layer: where a map ends; the network's own choice if empty. The input gradient ends at the picture.
        concepts: how many on each picture; the input gradient is asked for one after the other.
        pictures: how many at once.

    Example:
        >>> from excite.benchmarks.speed_networks import open_subject
        >>> contender(open_subject("efficientnet-lite0"), "c-mwp").case.layer
        'blocks.14'
    """
    layer = "input" if method == GRADIENT else layer or subject.layer
    case = Case(subject.name, layer, method, concepts, pictures)

    def prepare() -> Callable[[], object]:
        batch = subject.batch(pictures)
        signals = _signals(subject.output(batch), concepts)
        if method == GRADIENT:
            return lambda: [_gradient(subject, batch, signal) for signal in signals]
        if method == COMPILED:
            return _compiled(subject, layer, batch, signals)
        asked = signals[0] if concepts == 1 else signals
        return lambda: mwp(subject.module, batch, asked, layer=layer, contrastive=method == C_MWP)

    return Contender(case, prepare)


def top_classes(output: Tensor, concepts: int) -> list[int]:
    """The classes that the network sees most of, over all pictures and places.

    Example:
        >>> top_classes(torch.tensor([[0.0, 2.0, 1.0]]), 2)
        [1, 2]
    """
    seen = output.transpose(0, 1).flatten(1).mean(dim=1)
    chosen: list[int] = seen.topk(min(concepts, len(seen))).indices.tolist()
    return [chosen[k % len(chosen)] for k in range(concepts)]  # a small network is asked for the same ones again


def _signals(output: Tensor, concepts: int) -> Tensor:
    return torch.stack([prior(output, {unit: 1.0}) for unit in top_classes(output, concepts)])


def _compiled(subject: Subject, layer: str, batch: Tensor, signals: Tensor) -> Callable[[], object]:
    """The graph is written before the clock runs, or was: it is kept, and many pictures use it."""
    height, width = batch.shape[2:]
    classifier = wrap(subject.module, name=subject.name)
    compiled = Compiled(classifier, layer=layer, size=(height, width), threads=torch.get_num_threads())
    return lambda: compiled.maps(batch, signals)


def _gradient(subject: Subject, batch: Tensor, signal: Tensor) -> Tensor:
    """The gradient as anybody computes it, with nothing of excite in between."""
    pictures = batch.detach().requires_grad_()
    (arrived,) = torch.autograd.grad(main_output(subject.module(pictures)), pictures, signal)
    return arrived
