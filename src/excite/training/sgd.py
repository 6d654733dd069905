"""Stochastic gradient descent with checkpoints, and the training of an output layer on known features."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ModelError
from excite.io.files import save_bytes
from excite.propagation.rules import widest
from excite.training.output_layer import Output

PATIENCE = 5  # epochs
LEAST_GAIN = 0.05  # of the gain since the first epoch, which learns little more than frequencies
BATCH, BATCHES = 64, {"vgg16": 32}  # the paper's


@dataclass(frozen=True)
class SGDOptions:
    """Hyperparameters: the paper's constant learning rate and Caffe's usual momentum."""

    batch: int = BATCH  # images per step
    rate: float = 0.01  # the learning rate
    momentum: float = 0.9  # the weight of the previous step
    decay: float = 0.0  # weight decay per step
    seed: int = 0  # of the order of the images


class Descent:
    """`torch.optim.SGD` on named weights; a checkpoint has all tensors that its next step depends on."""

    def __init__(self, weights: Iterable[tuple[str, nn.Parameter]], options: SGDOptions) -> None:
        self.weights = dict(weights)
        self.sgd = torch.optim.SGD(
            self.weights.values(), options.rate, momentum=options.momentum, weight_decay=options.decay
        )

    def save(self, path: Path, key: str, facts: Mapping[str, Any], **more: Tensor) -> None:
        """Write the weights, their momentum, facts as JSON and further tensors (safetensors), atomically."""
        from safetensors.torch import save

        for name, weight in self.weights.items():
            more[f"weight.{name}"] = weight.detach()
            more[f"speed.{name}"] = self.sgd.state[weight].get("momentum_buffer", torch.zeros_like(weight))
        tensors = {name: tensor.cpu().contiguous() for name, tensor in more.items()}
        metadata = {"key": key, **{name: json.dumps(fact) for name, fact in facts.items()}}
        save_bytes(save(tensors, metadata=metadata), path)

    def resume(self, path: Path, key: str, restore: Callable[[dict[str, Any], dict[str, Tensor]], None]) -> bool:
        """Continue from a checkpoint with this key, whose facts and tensors ``restore`` gets; whether there is one."""
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            return False
        try:
            with safe_open(path, "pt") as file:
                metadata: dict[str, Any] = file.metadata() or {}
                if metadata.get("key") != key:
                    return False
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            own = {f"{kind}.{name}": weight for kind in ("weight", "speed") for name, weight in self.weights.items()}
            if any(tensors[name].shape != weight.shape for name, weight in own.items()):
                raise ValueError("it is of another training")  # noqa: TRY301 - damaged, to the user
            for name, weight in self.weights.items():
                weight.detach().copy_(tensors[f"weight.{name}"])
                speed = torch.empty_like(weight).copy_(tensors[f"speed.{name}"])
                self.sgd.state[weight]["momentum_buffer"] = speed.detach()
            restore({name: json.loads(fact) for name, fact in metadata.items() if name != "key"}, tensors)
        except (SafetensorError, OSError, RecursionError, RuntimeError, ValueError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{path} is damaged ({reason}): remove it to begin again.") from None
        return True


class OutputTrainer:
    """Trains an output layer by multi-label cross-entropy, summed over categories, averaged over images."""

    def __init__(self, output: Output, options: SGDOptions) -> None:
        self.output, self.options = output, options
        self.descent = Descent(output.layer.named_parameters(), options)
        self.losses: list[float] = []  # of each epoch

    def epoch(self, features: Tensor, present: Tensor, sure: Tensor) -> None:
        """Train on each image once; [images, categories]: ``sure`` is 0 where it is unknown what is ``present``."""
        sgd, device = self.descent.sgd, next(iter(self.descent.weights.values())).device
        total = torch.zeros((), device=device)
        total = total.to(widest(total))
        order = np.random.default_rng([self.options.seed, len(self.losses)]).permutation(len(features))
        for batch in torch.from_numpy(order).split(self.options.batch):  # type: ignore[no-untyped-call]  # torch has no type for it
            logits = self.output(features[batch].to(device).float())
            truth, weight = present[batch].to(device), sure[batch].to(device)
            loss = functional.binary_cross_entropy_with_logits(logits, truth, weight, reduction="sum")
            sgd.zero_grad()
            (loss / len(batch)).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            sgd.step()
            total += loss.detach()  # read at the end: reading waits for the device
        if not bool(total.isfinite()):
            raise too_high(self.options.rate)
        self.losses.append(float(total) / len(features))

    def save(self, path: Path, key: str) -> None:
        """Write a checkpoint."""
        self.descent.save(path, key, {"losses": self.losses})

    def resume(self, path: Path, key: str) -> None:
        """Continue from a checkpoint with the same key, if there is one."""

        def restore(facts: dict[str, Any], _tensors: dict[str, Tensor]) -> None:
            if not all(isinstance(loss, float) for loss in facts["losses"]):
                raise ValueError("its losses are no numbers")
            self.losses = list(facts["losses"])

        self.descent.resume(path, key, restore)


def too_high(rate: float) -> ModelError:
    """The error about a loss that is infinite."""
    return ModelError(f"the loss grows without end at a rate of {rate:g}: give a lower --rate.")


def plateaued(losses: Sequence[float]) -> bool:
    """Whether the last five epochs brought less than a twentieth of the total gain since the first epoch.

    The loss of a few thousand images falls for hundreds of epochs more, but by overfitting: average precision on other
    images stays or falls, and maps get worse (docs/finetune.md).
    """
    if len(losses) <= PATIENCE + 1:
        return False
    before, now = min(losses[:-PATIENCE]), min(losses)
    return before - now <= LEAST_GAIN * (losses[0] - now)
