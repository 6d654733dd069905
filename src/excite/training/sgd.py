"""Stochastic gradient descent on the output layer, until the training loss plateaus."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from torch.nn import functional

from excite.errors import ModelError
from excite.io.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from excite.training.output_layer import Output

__all__ = ["Descent", "Fit", "plateaued", "usual_batch"]

PATIENCE = 5  # epochs
LEAST_GAIN = 0.05  # of what was gained since the first epoch, in which hardly more than frequencies are learnt
BATCH, BATCHES = 64, {"vgg16": 32}  # the paper's
PARTS = ("weight", "speed")  # of a checkpoint


def usual_batch(base: str) -> int:
    """How many images the paper trains a network on at a time.

    Example:
        >>> usual_batch("vgg16"), usual_batch("googlenet")
        (32, 64)
    """
    return BATCHES.get(base, BATCH)


def plateaued(losses: Sequence[float]) -> bool:
    """Whether the last five epochs together brought less than a twentieth of what all since the first have brought.

    That is where somebody who looks at the curve says that it has gone flat. The loss of a few thousand images falls
    for hundreds of epochs more, but what is learnt then is those images: average precision on others stays or falls,
    and maps get worse (docs/finetune.md).

    Example:
        >>> plateaued([8, 4, 2, 1, 1, 1, 1, 1]), plateaued([8, 4, 2, 1.3, 1, 1, 1, 1, 0.97])
        (False, True)
    """
    if len(losses) <= PATIENCE + 1:
        return False
    before, now = min(losses[:-PATIENCE]), min(losses)
    return before - now <= LEAST_GAIN * (losses[0] - now)


@dataclass(frozen=True)
class Descent:
    """How steps are made: the paper's learning rate, never lowered, and the momentum that goes with it in Caffe.

    Attributes:
        batch: images a step.
        rate: the learning rate.
        momentum: how much of the last step is made again.
        decay: of the weights, a step: the gradient of ``decay / 2`` times the sum of their squares is added.
        seed: in which order the images come.
    """

    batch: int = BATCH
    rate: float = 0.01
    momentum: float = 0.9
    decay: float = 0.0
    seed: int = 0


class Fit:
    """An output layer in training.

    Attributes:
        losses: of the epochs so far: the multi-label cross-entropy, summed over the categories, an image.
    """

    def __init__(self, output: Output, descent: Descent) -> None:
        self.output = output
        self.descent = descent
        self.losses: list[float] = []
        self._weights = dict(output.layer.named_parameters())
        self._speeds = {name: torch.zeros_like(weight) for name, weight in self._weights.items()}

    def order(self, pictures: int) -> Tensor:
        """The order of the images in the next epoch, told by the seed and the epoch's number alone."""
        return torch.from_numpy(np.random.default_rng([self.descent.seed, len(self.losses)]).permutation(pictures))

    def epoch(self, features: Tensor, present: Tensor, sure: Tensor) -> None:
        """Learn from every image once.

        Args:
            features: what the output layer reads of each image.
            present: [images, categories], 1 where a category is there and 0 where it is not.
            sure: of the same shape, 0 where nobody knows: such a place is left out of the loss.
        """
        total = 0.0
        for batch in self.order(len(features)).split(self.descent.batch):  # type: ignore[no-untyped-call]  # torch has no type for it
            logits = self.output(features[batch].float())
            each = functional.binary_cross_entropy_with_logits(logits, present[batch], sure[batch], reduction="sum")
            self._step(torch.autograd.grad(each / len(batch), list(self._weights.values())))
            total += float(each.detach())
        if not torch.tensor(total).isfinite():
            raise ModelError(f"the loss grows without end at a rate of {self.descent.rate}: give a lower --rate.")
        self.losses.append(total / len(features))

    def _step(self, gradients: Sequence[Tensor]) -> None:
        """As `torch.optim.SGD` does it, whose import takes longer than many a training here."""
        with torch.no_grad():
            for weight, speed, gradient in zip(self._weights.values(), self._speeds.values(), gradients, strict=True):
                speed.mul_(self.descent.momentum).add_(gradient).add_(weight, alpha=self.descent.decay)
                weight.sub_(speed, alpha=self.descent.rate)

    def save(self, path: Path, key: str) -> None:
        """Write down all that the next epoch depends on."""
        from safetensors.torch import save

        tensors = {f"weight.{name}": weight.detach() for name, weight in self._weights.items()}
        tensors |= {f"speed.{name}": speed for name, speed in self._speeds.items()}
        content = save(tensors, metadata={"key": key, "losses": json.dumps(self.losses)})
        atomic_write(path, lambda file: _write(file, content))

    def resume(self, path: Path, key: str) -> None:
        """Go on from where a training with the same key was saved; without one, from the start."""
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            return
        try:
            with safe_open(path, "pt") as file:
                facts: dict[str, Any] = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        except (SafetensorError, OSError) as error:
            raise _damaged(path, error) from None
        if facts.get("key") != key:
            return
        try:
            losses = json.loads(facts["losses"])
            wanted = {f"{part}.{name}": weight.shape for name, weight in self._weights.items() for part in PARTS}
            fits = all(tensors[name].shape == shape for name, shape in wanted.items())
        except (KeyError, RecursionError, ValueError) as error:
            raise _damaged(path, error) from None
        if not fits or not isinstance(losses, list) or not all(isinstance(loss, float) for loss in losses):
            raise _damaged(path, "it is of another training")
        self.losses = losses
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(tensors[f"weight.{name}"])
                self._speeds[name].copy_(tensors[f"speed.{name}"])


def _damaged(path: Path, reason: object) -> ModelError:
    return ModelError(f"{path} is damaged ({str(reason)[:200]}): remove it to begin again.")


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)
