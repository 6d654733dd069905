"""The network in training, and its multi-label cross-entropy over many thousand tags.

The loss of an image is the sum over all tags of ``log(1 + exp(logit))``, less the logits of its own tags. A batch of
1024 with 18,157 tags has 74 MB of logits, of which automatic differentiation holds five or six copies. Here a chunk of
the outputs is computed, its loss and gradients are accumulated, and it is freed.
"""

from __future__ import annotations

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
    from excite.training.tags.distributed import Distributed

CHUNK = 1 << 20  # logits at a time: 4 MB, which fit into the cache of a processor core
EXACT = 40  # from here on log(1 + exp(x)) is x, also in double precision


def linear_loss(features: Tensor, weight: Tensor, bias: Tensor | None, units: Tensor) -> Tensor:
    """The loss of a linear output layer, summed over a batch, with gradients for features, weight and bias.

    Args:
        features: [images, inputs].
        weight: [tags, inputs].
        bias: [tags], or None.
        units: [images, n] the tags of each image; -1 is padding, and a repeated tag counts once.

    Example:
        >>> loss = linear_loss(torch.zeros(1, 4), torch.zeros(2, 4), None, torch.tensor([[1, -1]]))
        >>> round(float(loss), 4)  # twice log 2
        1.3863
    """
    if not torch.is_grad_enabled():  # so that forward computes no gradients
        features, weight, bias = features.detach(), weight.detach(), None if bias is None else bias.detach()
    with torch.autocast(features.device.type, enabled=False):  # sums of thousands of terms need full precision
        loss: Tensor = _LinearLoss.apply(features.to(weight.dtype), weight, bias, units)  # type: ignore[no-untyped-call]  # torch has no type for it
    return loss


def logits_loss(logits: Tensor, units: Tensor) -> Tensor:
    """The same for the logits [images, tags] of any other output."""
    loss: Tensor = _LogitsLoss.apply(logits, units)  # type: ignore[no-untyped-call]  # torch has no type for it
    return loss


class _LinearLoss(torch.autograd.Function):
    """Gradients are computed along with the loss; ``backward`` only scales them."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, units: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        gradients = [
            torch.zeros_like(tensor) if want and tensor is not None else None
            for tensor, want in zip((features, weight, bias), wanted, strict=True)
        ]
        of_features, of_weight, of_bias = gradients
        rows, columns = _positives(units)
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        for start, end in _chunks(len(features), len(weight)):
            chunk = weight[start:end]
            logits = features @ chunk.T if bias is None else torch.addmm(bias[start:end], features, chunk.T)
            here = (columns >= start) & (columns < end)
            positives = rows[here], columns[here] - start
            total += _loss(logits, positives)
            if not any(wanted):
                continue
            slope = logits.sigmoid_()
            slope[positives] -= 1
            if of_features is not None:
                of_features.addmm_(slope, chunk)
            if of_weight is not None:
                torch.mm(slope.T, features, out=of_weight[start:end])
            if of_bias is not None:
                of_bias[start:end] = slope.sum(0)
        ctx.gradients = gradients
        return total.to(features.dtype)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = factors
        features, weight, bias = (None if each is None else each.mul_(factor) for each in ctx.gradients)
        ctx.gradients = None  # scaled in place: a second time they would be wrong
        return features, weight, bias, None


class _LogitsLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, units: Tensor) -> Tensor:
        ctx.save_for_backward(logits, units)
        rows, columns = _positives(units)
        total = torch.zeros((), dtype=torch.float64, device=logits.device)
        for start, end in _chunks(*logits.shape):
            here = (columns >= start) & (columns < end)
            total += _loss(logits[:, start:end], (rows[here], columns[here] - start))
        return total.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor, None]:
        (factor,) = factors
        logits, units = ctx.saved_tensors
        slope = logits.sigmoid()
        slope[_positives(units)] -= 1
        return slope.mul_(factor), None


def _chunks(pictures: int, tags: int) -> Iterator[tuple[int, int]]:
    size = max(1, CHUNK // max(1, pictures))
    return ((start, min(start + size, tags)) for start in range(0, tags, size))


def _positives(units: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and columns of the tags that are present, each once."""
    ordered = units.long().sort(1).values
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    rows, positions = torch.nonzero((ordered >= 0) & ~again, as_tuple=True)
    return rows, ordered[rows, positions]


def _loss(logits: Tensor, positives: tuple[Tensor, Tensor]) -> Tensor:
    absent = functional.softplus(logits, threshold=EXACT).sum(dtype=torch.float64)
    return absent - logits[positives].sum(dtype=torch.float64)


def set_frequency_biases(layer: nn.Module, counts: NDArray[np.int64], pictures: int) -> None:
    """Set the biases of a new output layer to the logits of the tags' frequencies.

    With biases of 0, 18,157 tags cost 12,585 nats per image, and most steps would go into learning that nearly all
    tags are nearly always absent. A tag without images counts as half an image.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> set_frequency_biases(layer, np.array([49, 0]), 99)
        >>> [round(bias, 3) for bias in layer.bias.sigmoid().tolist()]
        [0.495, 0.005]
    """
    if not isinstance(layer.bias, Tensor):
        raise ModelError("the output layer has no biases for the frequencies of tags; take another network.")
    share = (torch.from_numpy(counts).double() + 0.5) / (pictures + 1)
    with torch.no_grad():
        layer.bias.copy_(share.logit())


class Model:
    """A network, its trained weights and the training step.

    Batch norms keep their statistics and nothing is dropped out, also when all layers are trained: so a batch gives the
    same gradients in one process or several, and the trained network is the one used later.

    Args:
        network: the classifier, with its new output layer.
        layer: the name of that layer.
        output: that layer and the operations behind it.
        everything: train all layers, not only the last one.
        momentum: the weight of the previous step.
        processes: the process group.
    """

    def __init__(
        self,
        network: nn.Module,
        layer: str,
        output: Output,
        *,
        everything: bool,
        momentum: float,
        processes: Distributed,
    ) -> None:
        self.network = network.to(processes.device).eval()
        self.layer, self.output, self.everything, self.processes = layer, output, everything, processes
        self.network.requires_grad_(everything)
        output.layer.requires_grad_()
        self.trained = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
        self.sgd = torch.optim.SGD(self.trained.values(), momentum=momentum)
        self.half = processes.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=self.half and everything)

    def features(self, pictures: Tensor) -> Tensor:
        """The input of the output layer, with gradients only where they are needed."""
        wanted = self.everything and torch.is_grad_enabled()
        device = self.processes.device
        with torch.set_grad_enabled(wanted), torch.autocast(device.type, enabled=self.half):
            return _input_of(self.network, self.layer, pictures.to(device, non_blocking=True))

    def loss(self, features: Tensor, units: Tensor) -> Tensor:
        """The cross-entropy, summed over the images."""
        features, units = features.to(self.processes.device), units.to(self.processes.device)
        layer = self.output.layer
        if isinstance(layer, nn.Linear) and not self.output.tail and features.dim() == 2:
            return linear_loss(features, layer.weight, layer.bias, units)
        return logits_loss(self.output(features.to(next(layer.parameters()).dtype)), units)

    def step(
        self, features: Tensor | None, units: Tensor, rate: float, *, save: bool = False
    ) -> tuple[float, int, bool]:
        """Make one SGD step, the same in all processes, on the mean loss of all readable images of the batch.

        Args:
            features: of this process's images; None where none can be read.
            units: their tags.
            rate: the learning rate.
            save: whether this process asks for a checkpoint after the step.

        Returns:
            The summed loss, the number of readable images, and whether to save, of all processes together.
        """
        self.sgd.zero_grad()
        total = torch.zeros(3, dtype=torch.float64, device=self.processes.device)
        if features is not None:
            loss = self.loss(features, units)
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            total[0], total[1] = loss.detach().double(), len(features)
        total[2] = float(save)
        self.processes.all_reduce([total])
        summed, pictures, requests = total.tolist()
        if not np.isfinite(summed):
            raise ModelError(f"the loss grows without end at a rate of {rate:g}: give a lower --rate.")
        if pictures:
            self._update(pictures, rate)
        return summed, int(pictures), requests > 0

    def _update(self, pictures: float, rate: float) -> None:
        for weight in self.trained.values():
            if weight.grad is None:  # this process had no images
                weight.grad = torch.zeros_like(weight)
        gradients = [weight.grad for weight in self.trained.values() if weight.grad is not None]
        self.processes.all_reduce(gradients)
        for gradient in gradients:
            gradient.div_(pictures)
        self.sgd.param_groups[0]["lr"] = rate
        self.scaler.step(self.sgd)
        self.scaler.update()


class _Reached(Exception):  # noqa: N818 - no error: it ends a forward pass early
    def __init__(self, given: tuple[Any, ...]) -> None:
        super().__init__()
        self.given = given


def _input_of(network: nn.Module, layer: str, pictures: Tensor) -> Tensor:
    """The input of a layer; the rest of the network is not run. `Output.of` checks that it is called once."""

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
