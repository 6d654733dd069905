"""The network in training: its output layer alone, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from excite.training.output_layer import Output
    from excite.training.tags.distributed import Together


# Multi-label cross-entropy over many thousand tags, in pieces: the logits of a batch are never there all at once.
#
# For an image it is the sum, over all tags, of ``log(1 + exp(logit))``, less the logits of its own tags. A batch of
# 1024 with 18,157 tags has 74 MB of logits, and the usual way needs them five or six times over. Here a piece of the
# outputs is computed, its loss and gradients are added up, and it is forgotten.

PIECE = 1 << 20  # logits at a time: 4 MB, which stay in the cache of a processor core

EXACT = 40  # from here on log(1 + exp(x)) is x, also in double precision


def linear_loss(features: Tensor, weight: Tensor, bias: Tensor | None, units: Tensor) -> Tensor:
    """The loss of a linear output layer, summed over a batch, with gradients for its features, weights and biases.

    Args:
        features: [images, inputs] what the layer reads.
        weight: [tags, inputs] of the layer.
        bias: [tags], or None.
        units: [images, n] the tags of each image; -1 means nothing, and a tag counts once.

    Example:
        >>> loss = linear_loss(torch.zeros(1, 4), torch.zeros(2, 4), None, torch.tensor([[1, -1]]))
        >>> round(float(loss), 4)  # twice log 2
        1.3863
    """
    if not torch.is_grad_enabled():  # or gradients would be computed for nobody
        features, weight, bias = features.detach(), weight.detach(), None if bias is None else bias.detach()
    with torch.autocast(features.device.type, enabled=False):  # sums of thousands of terms need all digits
        loss: Tensor = _LinearLoss.apply(features.to(weight.dtype), weight, bias, units)  # type: ignore[no-untyped-call]  # torch has no type for it
    return loss


def logits_loss(logits: Tensor, units: Tensor) -> Tensor:
    """The same for logits [images, tags] that a network has computed in a way of its own.

    Example:
        >>> round(float(logits_loss(torch.zeros(1, 2), torch.tensor([[1, -1]]))), 4)
        1.3863
    """
    loss: Tensor = _LogitsLoss.apply(logits, units)  # type: ignore[no-untyped-call]  # torch has no type for it
    return loss


class _LinearLoss(torch.autograd.Function):
    """Gradients are computed along with the loss, which is a sum: behind it comes nothing but a factor."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, units: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        gradients = [
            torch.zeros_like(tensor) if want and tensor is not None else None
            for tensor, want in zip((features, weight, bias), wanted, strict=True)
        ]
        below, of_weight, of_bias = gradients
        rows, columns = _positives(units)
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        for start, end in _pieces(len(features), len(weight)):
            piece = weight[start:end]
            logits = features @ piece.T if bias is None else torch.addmm(bias[start:end], features, piece.T)
            total += _loss_of_piece(logits, rows, columns, start, end)
            if not any(wanted):
                continue
            slope = _slope_of_piece(logits, rows, columns, start, end)
            if below is not None:
                below.addmm_(slope, piece)
            if of_weight is not None:
                torch.mm(slope.T, features, out=of_weight[start:end])
            if of_bias is not None:
                of_bias[start:end] = slope.sum(0)
        ctx.gradients = gradients
        return total.to(features.dtype)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = factors
        below, weight, bias = (None if each is None else each.mul_(factor) for each in ctx.gradients)
        ctx.gradients = None  # they were changed in place: a second time they would be wrong
        return below, weight, bias, None


class _LogitsLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, units: Tensor) -> Tensor:
        ctx.save_for_backward(logits, units)
        rows, columns = _positives(units)
        total = torch.zeros((), dtype=torch.float64, device=logits.device)
        for start, end in _pieces(*logits.shape):
            total += _loss_of_piece(logits[:, start:end], rows, columns, start, end)
        return total.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor, None]:
        (factor,) = factors
        logits, units = ctx.saved_tensors
        slope = logits.sigmoid()
        slope[_positives(units)] -= 1
        return slope.mul_(factor), None


def _pieces(pictures: int, tags: int) -> Iterator[tuple[int, int]]:
    size = max(1, PIECE // max(1, pictures))
    return ((start, min(start + size, tags)) for start in range(0, tags, size))


def _positives(units: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and columns of the tags that are there, each once."""
    ordered = units.long().sort(1).values
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    rows, places = torch.nonzero((ordered >= 0) & ~again, as_tuple=True)
    return rows, ordered[rows, places]


def _loss_of_piece(logits: Tensor, rows: Tensor, columns: Tensor, start: int, end: int) -> Tensor:
    here = (columns >= start) & (columns < end)
    positive = logits[rows[here], columns[here] - start]
    return functional.softplus(logits, threshold=EXACT).sum(dtype=torch.float64) - positive.sum(dtype=torch.float64)


def _slope_of_piece(logits: Tensor, rows: Tensor, columns: Tensor, start: int, end: int) -> Tensor:
    """The gradient at the logits, in their place."""
    here = (columns >= start) & (columns < end)
    slope = logits.sigmoid_()
    slope[rows[here], columns[here] - start] -= 1
    return slope


# The network in training: its output layer alone, or all of it.


def begin_at_frequencies(layer: nn.Module, counts: NDArray[np.int64], pictures: int) -> None:
    """Let the biases of a new output layer say how frequent each tag is.

    With all biases at 0 every tag is half probable: 18,157 of them cost 12,585 nats an image, and most steps would go
    into learning that nearly all tags are nearly always absent. A tag that was never seen counts as seen half a time.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> begin_at_frequencies(layer, np.array([49, 0]), 99)
        >>> [round(bias, 3) for bias in layer.bias.sigmoid().tolist()]
        [0.495, 0.005]
    """
    if not isinstance(layer.bias, Tensor):
        raise ModelError("the output layer has no biases: it cannot say how frequent tags are; take another network.")
    share = (torch.from_numpy(counts).double() + 0.5) / (pictures + 1)
    with torch.no_grad():
        layer.bias.copy_(share.logit())


@dataclass(frozen=True)
class StepReport:
    """What a step was: of all processes together.

    Attributes:
        loss: the sum over the images.
        pictures: how many could be read.
        wished: how many processes wished something, see `Trainee.step`.
    """

    loss: float
    pictures: int
    wished: int


class Momentum:
    """Stochastic gradient descent as `torch.optim.SGD` does it, whose import takes longer than many a training.

    Args:
        weights: what is trained.
        momentum: how much of the last step is made again.
    """

    def __init__(self, weights: list[nn.Parameter], momentum: float) -> None:
        self.param_groups = [{"params": weights}]  # for a GradScaler
        self.speeds = [torch.zeros_like(weight) for weight in weights]
        self._weights, self._momentum = weights, momentum

    def step(self, *, rate: float) -> None:
        """Make a step against the gradients of the weights."""
        with torch.no_grad():
            for weight, speed in zip(self._weights, self.speeds, strict=True):
                if weight.grad is not None:
                    speed.mul_(self._momentum).add_(weight.grad)
                    weight.sub_(speed, alpha=rate)


class Trainee:
    """A network, what of it is trained, and how a step is made.

    Its norms keep their statistics and nothing is dropped at random, also when all layers are trained: so a batch gives
    the same gradients whether one process sees it or several share it, and the same network is seen as later used.

    Args:
        network: the classifier, with its new output layer.
        layer: the name of that layer.
        output: that layer and what comes behind it.
        everything: train all layers, not only the last one.
        momentum: how much of the last step is made again.
        processes: who trains together.
    """

    def __init__(
        self, network: nn.Module, layer: str, output: Output, *, everything: bool, momentum: float, processes: Together
    ) -> None:
        self.network = network.to(processes.device).eval()
        self.layer, self.output, self.everything, self.processes = layer, output, everything, processes
        self.network.requires_grad_(everything)
        output.layer.requires_grad_()
        self.trained = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
        self.descent = Momentum(list(self.trained.values()), momentum)
        self.half = processes.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=self.half and everything)

    def features(self, pictures: Tensor) -> Tensor:
        """What the output layer reads of images, with gradients only where they will be needed."""
        wanted = self.everything and torch.is_grad_enabled()
        device = self.processes.device.type
        with torch.set_grad_enabled(wanted), torch.autocast(device, enabled=self.half):
            return _reached(self.network, self.layer, pictures.to(self.processes.device, non_blocking=True))

    def loss(self, features: Tensor, units: Tensor) -> Tensor:
        """The sum over the images of what their tags cost."""
        features, units = features.to(self.processes.device), units.to(self.processes.device)
        layer = self.output.layer
        if isinstance(layer, nn.Linear) and not self.output.tail and features.dim() == 2:
            return linear_loss(features, layer.weight, layer.bias, units)
        return logits_loss(self.output(features.to(next(layer.parameters()).dtype)), units)

    def step(self, features: Tensor | None, units: Tensor, rate: float, *, wish: bool = False) -> StepReport:
        """Learn from a batch, of which this process has its share; the same step is made in all processes.

        The gradient is that of the mean over all images that could be read, wherever.

        Args:
            features: of this process's images; None where it could read none.
            units: their tags.
            rate: the learning rate.
            wish: something that this process would like all to do behind the step.
        """
        for weight in self.trained.values():
            weight.grad = None
        total = torch.zeros(3, dtype=torch.float64, device=self.processes.device)
        if features is not None:
            loss = self.loss(features, units)
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            total[0], total[1] = loss.detach().double(), len(features)
        total[2] = float(wish)
        self.processes.add_up([total])
        summed, pictures, wished = total.tolist()
        if not np.isfinite(summed):
            raise ModelError(f"the loss grows without end at a rate of {rate:g}: give a lower --rate.")
        if pictures:
            self._move(pictures, rate)
        return StepReport(summed, int(pictures), int(wished))

    def _move(self, pictures: float, rate: float) -> None:
        for weight in self.trained.values():
            if weight.grad is None:  # this process had nothing to learn from
                weight.grad = torch.zeros_like(weight)
        gradients = [weight.grad for weight in self.trained.values() if weight.grad is not None]
        self.processes.add_up(gradients)
        for gradient in gradients:
            gradient.div_(pictures)
        self.scaler.step(self.descent, rate=rate)  # type: ignore[arg-type]  # it has what is asked of an optimizer
        self.scaler.update()

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors that the next step depends on, by name."""
        for name, weight in self.trained.items():
            yield f"weight.{name}", weight.detach()
        for name, speed in zip(self.trained, self.descent.speeds, strict=True):
            yield f"speed.{name}", speed

    def restore(self, tensors: dict[str, Tensor], scaler: dict[str, Any]) -> None:
        """Be as when `state` was read."""
        with torch.no_grad():
            for (name, weight), speed in zip(self.trained.items(), self.descent.speeds, strict=True):
                weight.copy_(tensors[f"weight.{name}"])
                speed.copy_(tensors[f"speed.{name}"])
        if scaler:
            self.scaler.load_state_dict(scaler)


class _Reached(Exception):  # noqa: N818 - it is none, it only ends a run where all is known
    def __init__(self, given: tuple[Any, ...]) -> None:
        super().__init__()
        self.given = given


def _reached(network: nn.Module, layer: str, pictures: Tensor) -> Tensor:
    """What a layer reads; what comes behind is not computed, `Output.of` has seen that it is called once."""

    def stop(_module: nn.Module, given: tuple[Any, ...]) -> None:
        raise _Reached(given)

    handle = network.get_submodule(layer).register_forward_pre_hook(stop)
    try:
        network(pictures)
    except _Reached as reached:
        features: Tensor = reached.given[0]
        return features
    finally:
        handle.remove()
    raise ModelError(f"the output layer {layer!r} is never called: the network cannot be trained.")
