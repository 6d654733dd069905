"""What tells one network from another, so that answers are kept only for the one that gave them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn

    from excite.models.classifier import Classifier

__all__ = ["identity", "network_identity"]


def network_identity(network: nn.Module, without: str = "") -> str:
    """Changes when the network would give other answers: its modules, its weights.

    Args:
        network: any.
        without: the name of a layer that does not matter.

    Example:
        >>> from torch import nn
        >>> len(network_identity(nn.Linear(2, 2)))
        32
    """
    content = hashlib.blake2b(digest_size=16)
    for name, module in network.named_modules():  # strides and the like are in no tensor
        if not (without and name == without):
            content.update(f"{name} {type(module).__name__} {module.extra_repr()}\n".encode())
    for name, values in network.state_dict().items():
        if isinstance(values, torch.Tensor) and not (without and name.startswith(f"{without}.")):
            content.update(f"{name} {tuple(values.shape)}".encode())
            content.update(values.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return content.hexdigest()


def identity(classifier: Classifier) -> list[str]:
    """Changes when the classifier would give other maps: its network, its outputs or how it takes pictures.

    Example:
        >>> from torch import nn
        >>> identity(excite.wrap(nn.Linear(2, 2), name="mine"))[0]
        'mine'
    """
    preprocess = getattr(classifier.preprocess, "__qualname__", repr(classifier.preprocess))
    return [classifier.name, preprocess, f"multilabel {classifier.multilabel}", network_identity(classifier.module)]
