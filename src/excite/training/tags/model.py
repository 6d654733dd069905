"""The network in training, its multi-label cross-entropy over many thousand tags, and the processes that train it.

The loss of an image is the sum over all tags of ``log(1 + exp(logit))``, less the logits of its own tags. A batch of
1024 with 18,157 tags has 74 MB of logits, of which automatic differentiation holds five or six copies. Here a chunk of
the outputs is computed, its loss and gradients are accumulated, and it is freed.
"""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from excite.errors import ExciteError, ModelError
from excite.models.loading import find_device
from excite.propagation.rules import widest
from excite.training.output_layer import Output, features_of
from excite.training.sgd import Descent, SGDOptions, too_high

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray


CHUNK = 1 << 20  # logits at a time: 4 MB, which fit into the cache of a processor core
EXACT = 40  # from here on log(1 + exp(x)) is x, also in double precision
PATIENCE = timedelta(days=2)  # the others wait while the first process extracts features or measures
Value = TypeVar("Value")


@dataclass(frozen=True)
class Distributed:
    """This process within those of a torchrun that train one classifier; a single one is the trivial case."""

    rank: int = 0  # its number; only the first, 0, writes and prints
    size: int = 1  # the number of processes
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # of this process

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """The sum of each value over all processes."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return total.tolist()

    def all_gather(self, value: Value) -> list[Value]:
        """The values of all processes, by rank."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            torch.distributed.barrier()


@contextmanager
def distributed(device_name: str = "auto") -> Iterator[Distributed]:
    """Join the process group of torchrun, if started by it; of several GPUs each process takes its own."""
    device = find_device(device_name)
    gpu = device.type == "cuda"
    if gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", device.index or 0)))
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield Distributed(device=device)
        return
    try:
        torch.distributed.init_process_group("nccl" if gpu else "gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ExciteError(f"the other processes of this torchrun cannot be reached: {reason}") from None
    try:
        yield Distributed(torch.distributed.get_rank(), torch.distributed.get_world_size(), device)
    finally:
        torch.distributed.destroy_process_group()


def mixed_precision(device: torch.device, *, enabled: bool) -> AbstractContextManager[Any]:
    """Torch's autocast, where the device has it."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=enabled) if known else nullcontext()


def linear_loss(features: Tensor, weight: Tensor, bias: Tensor, units: Tensor) -> Tensor:
    """The loss, summed over a batch, of a linear output layer; ``units`` [images, n] are tags, or -1, of each image."""
    if not torch.is_grad_enabled():  # so that forward computes no gradients
        features, weight, bias = features.detach(), weight.detach(), bias.detach()
    with mixed_precision(features.device, enabled=False):  # sums of thousands of terms need full precision
        loss: Tensor = _LinearLoss.apply(features.to(weight.dtype), weight, bias, units)  # type: ignore[no-untyped-call]  # torch has no type for it
    return loss


def logits_loss(logits: Tensor, units: Tensor) -> Tensor:
    """The same for the logits [images, tags] of any other output."""
    return _loss(logits, _positives(units)).to(logits.dtype)


class _LinearLoss(torch.autograd.Function):
    """Gradients are computed along with the loss; ``backward`` only scales them."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, units: Tensor) -> Tensor:
        of_features, of_weight, of_bias = gradients = [
            torch.zeros_like(tensor) if wanted else None
            for tensor, wanted in zip((features, weight, bias), ctx.needs_input_grad[:3], strict=True)
        ]
        rows, columns = _positives(units)
        total = torch.zeros((), dtype=widest(features), device=features.device)
        size = max(1, CHUNK // max(1, len(features)))
        for start in range(0, len(weight), size):
            chunk = slice(start, min(start + size, len(weight)))
            logits = torch.addmm(bias[chunk], features, weight[chunk].T)
            here = (columns >= start) & (columns < chunk.stop)
            positives = rows[here], columns[here] - start
            total += _loss(logits, positives)
            if not any(ctx.needs_input_grad[:3]):
                continue
            slope = logits.sigmoid_()
            slope[positives] -= 1
            if of_features is not None:
                of_features.addmm_(slope, weight[chunk])
            if of_weight is not None:
                torch.mm(slope.T, features, out=of_weight[chunk])
            if of_bias is not None:
                of_bias[chunk] = slope.sum(0)
        ctx.gradients = gradients
        return total.to(features.dtype)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = factors
        features, weight, bias = (None if each is None else each.mul_(factor) for each in ctx.gradients)
        ctx.gradients = None  # scaled in place: a second time they would be wrong
        return features, weight, bias, None


def _positives(units: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and columns of the tags that are present, each once."""
    ordered = units.long().sort(1).values
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    rows, positions = torch.nonzero((ordered >= 0) & ~again, as_tuple=True)
    return rows, ordered[rows, positions]


def _loss(logits: Tensor, positives: tuple[Tensor, Tensor]) -> Tensor:
    absent = functional.softplus(logits, threshold=EXACT).sum(dtype=widest(logits))
    return absent - logits[positives].sum(dtype=widest(logits))


def set_frequency_biases(layer: nn.Module, counts: NDArray[np.int64], pictures: int) -> None:
    """Set the biases of a new output layer to the logits of the tags' frequencies (docs/train-tags.md)."""
    if not isinstance(layer.bias, Tensor):
        raise ModelError("the output layer has no biases for the frequencies of tags; take another network.")
    share = (torch.from_numpy(counts).double() + 0.5) / (pictures + 1)  # no image counts as half of one
    with torch.no_grad():
        layer.bias.copy_(share.logit())


class _Objective(nn.Module):
    """The loss as a module, whose parameters are the trained weights, for `DistributedDataParallel`."""

    def __init__(self, weights: Iterable[nn.Parameter], loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weights, self.loss = nn.ParameterList(weights), loss

    def forward(self, features: Tensor | None, units: Tensor) -> Tensor:
        # every weight gets a gradient, if only of 0: a process may have no image that can be read
        nothing = sum((weight.flatten()[:0].sum() for weight in self.weights), torch.zeros(()))
        return nothing if features is None else self.loss(features, units) + nothing


class Model:
    """A network, its trained weights and the training step.

    Batch norms keep their statistics and nothing is dropped out, also when all layers are trained: so a batch gives the
    same gradients in one process or several, and the trained network is the one used later.
    """

    def __init__(
        self, network: nn.Module, layer: str, output: Output, sgd: SGDOptions, processes: Distributed, layers: str
    ) -> None:
        self.layer, self.output, self.processes = layer, output, processes
        self.everything = layers == "all"
        self.network = network.to(processes.device).eval().requires_grad_(self.everything)
        output.layer.requires_grad_()
        trained = ((name, weight) for name, weight in network.named_parameters() if weight.requires_grad)
        self.descent = Descent(trained, sgd)
        self.mixed = processes.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=self.mixed and self.everything)
        several = processes.size > 1
        objective = _Objective(self.descent.weights.values() if several else (), self.loss)
        self._objective = DistributedDataParallel(objective) if several else objective

    def features(self, pictures: Tensor) -> Tensor:
        """The input of the output layer, with gradients only where they are needed."""
        wanted = self.everything and torch.is_grad_enabled()
        device = self.processes.device
        with torch.set_grad_enabled(wanted), mixed_precision(device, enabled=self.mixed):
            return features_of(self.network, self.layer, pictures.to(device, non_blocking=True))

    def loss(self, features: Tensor, units: Tensor) -> Tensor:
        """The cross-entropy, summed over the images."""
        features, units = features.to(self.processes.device), units.to(self.processes.device)
        layer = self.output.layer
        if isinstance(layer, nn.Linear) and not self.output.tail and features.dim() == 2:
            return linear_loss(features, layer.weight, layer.bias, units)
        return logits_loss(self.output(features.to(next(layer.parameters()).dtype)), units)

    def step(self, features: Tensor | None, units: Tensor, *, save: bool = False) -> tuple[float, int, bool]:
        """Make one SGD step on the mean loss of the batch; its summed loss, its images, and whether any asks to save.

        ``features`` are None where no image of this process can be read; step and result are the same in all processes.
        """
        sgd = self.descent.sgd
        sgd.zero_grad()
        loss = self._objective(features, units)
        if loss.requires_grad:
            self.scaler.scale(loss).backward()
        own = 0 if features is None else len(features)
        summed, pictures, requests = self.processes.sum(float(loss.detach()), own, float(save))
        if not math.isfinite(summed):
            raise too_high(sgd.param_groups[0]["lr"])
        if pictures:
            for weight in self.descent.weights.values():
                if weight.grad is not None:
                    weight.grad.div_(pictures / self.processes.size)  # it is the mean over processes
            self.scaler.step(sgd)
            self.scaler.update()
        return summed, int(pictures), requests > 0
