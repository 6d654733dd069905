"""Checkpoints of stochastic gradient descent, and the training of an output layer on known features."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch.nn import functional

from excite.errors import ModelError
from excite.io.files import save_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from excite.training.output_layer import Output

PATIENCE = 5  # epochs
LEAST_GAIN = 0.05  # of the gain since the first epoch, which learns little more than frequencies
BATCH, BATCHES = 64, {"vgg16": 32}  # the paper's

Restored = TypeVar("Restored")


def usual_batch(base: str) -> int:
    """The paper's batch size for a network.

    Example:
        >>> usual_batch("vgg16"), usual_batch("googlenet")
        (32, 64)
    """
    return BATCHES.get(base, BATCH)


def plateaued(losses: Sequence[float]) -> bool:
    """Whether the last five epochs brought less than a twentieth of the total gain since the first epoch.

    The loss of a few thousand images falls for hundreds of epochs more, but by overfitting: average precision on other
    images stays or falls, and maps get worse (docs/finetune.md).

    Example:
        >>> plateaued([8, 4, 2, 1, 1, 1, 1, 1]), plateaued([8, 4, 2, 1.3, 1, 1, 1, 1, 0.97])
        (False, True)
    """
    if len(losses) <= PATIENCE + 1:
        return False
    before, now = min(losses[:-PATIENCE]), min(losses)
    return before - now <= LEAST_GAIN * (losses[0] - now)


def training_tensors(weights: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors that the next step of `torch.optim.SGD` depends on, by name: the weights and their momentum."""
    speeds = {
        f"speed.{name}": optimizer.state[weight].get("momentum_buffer", torch.zeros_like(weight))
        for name, weight in weights.items()
    }
    return {f"weight.{name}": weight.detach() for name, weight in weights.items()} | speeds


def restore_training(
    weights: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Set all weights and their momentum to those of `training_tensors`.

    Raises:
        KeyError: one is missing.
        ValueError: one has another shape.
    """
    speeds = {name: torch.empty_like(weight) for name, weight in weights.items()}
    own = [(f"weight.{name}", weight.detach()) for name, weight in weights.items()]
    own += [(f"speed.{name}", speed) for name, speed in speeds.items()]
    if any(tensors[name].shape != tensor.shape for name, tensor in own):
        raise ValueError("it is of another training")
    for name, tensor in own:
        tensor.copy_(tensors[name])
    for name, weight in weights.items():
        optimizer.state[weight]["momentum_buffer"] = speeds[name]


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a checkpoint (safetensors) atomically."""
    from safetensors.torch import save

    save_bytes(save(tensors, metadata=metadata), path)


def restore_tensors(
    path: Path, key: str, restore: Callable[[dict[str, Tensor], dict[str, Any]], Restored]
) -> Restored | None:
    """Apply ``restore`` to the tensors and metadata of a checkpoint; None if it is missing or has another key.

    Raises:
        ModelError: the file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata: dict[str, Any] = file.metadata() or {}
            if metadata.get("key") != key:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        return restore(tensors, metadata)
    except (SafetensorError, OSError, RecursionError, RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{path} is damaged ({reason}): remove it to begin again.") from None


@dataclass(frozen=True)
class SGDOptions:
    """Hyperparameters: the paper's constant learning rate and Caffe's usual momentum.

    Attributes:
        batch: images per step.
        rate: the learning rate.
        momentum: the weight of the previous step.
        decay: weight decay per step.
        seed: of the order of the images.
    """

    batch: int = BATCH
    rate: float = 0.01
    momentum: float = 0.9
    decay: float = 0.0
    seed: int = 0


class OutputTrainer:
    """Trains an output layer, epoch by epoch.

    Attributes:
        losses: for each epoch the multi-label cross-entropy, summed over categories, averaged over images.
    """

    def __init__(self, output: Output, options: SGDOptions) -> None:
        self.output, self.options = output, options
        self.losses: list[float] = []
        self._weights = dict(output.layer.named_parameters())
        self._sgd = torch.optim.SGD(
            self._weights.values(), options.rate, momentum=options.momentum, weight_decay=options.decay
        )

    def order(self, pictures: int) -> Tensor:
        """The order of the images in the next epoch, determined by the seed and the epoch's number."""
        return torch.from_numpy(np.random.default_rng([self.options.seed, len(self.losses)]).permutation(pictures))

    def epoch(self, features: Tensor, present: Tensor, sure: Tensor) -> None:
        """Train on each image once.

        Args:
            features: the output layer's input for each image.
            present: [images, categories], 1 where a category is present and 0 where it is absent.
            sure: [images, categories], 0 where that is unknown: excluded from the loss.
        """
        total = 0.0
        for batch in self.order(len(features)).split(self.options.batch):  # type: ignore[no-untyped-call]  # torch has no type for it
            logits = self.output(features[batch].float())
            loss = functional.binary_cross_entropy_with_logits(logits, present[batch], sure[batch], reduction="sum")
            self._sgd.zero_grad()
            (loss / len(batch)).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            self._sgd.step()
            total += float(loss.detach())
        if not torch.tensor(total).isfinite():
            raise ModelError(f"the loss grows without end at a rate of {self.options.rate}: give a lower --rate.")
        self.losses.append(total / len(features))

    def save(self, path: Path, key: str) -> None:
        """Write a checkpoint."""
        save_tensors(path, training_tensors(self._weights, self._sgd), {"key": key, "losses": json.dumps(self.losses)})

    def resume(self, path: Path, key: str) -> None:
        """Continue from a checkpoint with the same key, if there is one."""

        def restore(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
            losses = json.loads(metadata["losses"])
            if not isinstance(losses, list) or not all(isinstance(loss, float) for loss in losses):
                raise ValueError("its losses are no numbers")
            restore_training(self._weights, self._sgd, tensors)
            self.losses = losses

        restore_tensors(path, key, restore)
