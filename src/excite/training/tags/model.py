"""The network in training: its output layer alone, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from excite.errors import ModelError
from excite.training.tags.loss import linear_loss, logits_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from excite.training.output_layer import Output
    from excite.training.tags.distributed import Together

__all__ = ["Momentum", "StepReport", "Trainee", "begin_at_frequencies"]


def begin_at_frequencies(layer: nn.Module, counts: NDArray[np.int64], pictures: int) -> None:
    """Let the biases of a new output layer say how frequent each tag is.

    With all biases at 0 every tag is half probable: 18,157 of them cost 12,585 nats a picture, and most steps would go
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
        loss: the sum over the pictures.
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
        """What the output layer reads of pictures, with gradients only where they will be needed."""
        wanted = self.everything and torch.is_grad_enabled()
        device = self.processes.device.type
        with torch.set_grad_enabled(wanted), torch.autocast(device, enabled=self.half):
            return _reached(self.network, self.layer, pictures.to(self.processes.device, non_blocking=True))

    def loss(self, features: Tensor, units: Tensor) -> Tensor:
        """The sum over the pictures of what their tags cost."""
        features, units = features.to(self.processes.device), units.to(self.processes.device)
        layer = self.output.layer
        if isinstance(layer, nn.Linear) and not self.output.tail and features.dim() == 2:
            return linear_loss(features, layer.weight, layer.bias, units)
        return logits_loss(self.output(features.to(next(layer.parameters()).dtype)), units)

    def step(self, features: Tensor | None, units: Tensor, rate: float, *, wish: bool = False) -> StepReport:
        """Learn from a batch, of which this process has its share; the same step is made in all processes.

        The gradient is that of the mean over all pictures that could be read, wherever.

        Args:
            features: of this process's pictures; None where it could read none.
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
