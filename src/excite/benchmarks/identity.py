"""What tells one classifier from another, so that answers are kept only for the one that gave them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from excite.models import Classifier

__all__ = ["identity"]


def identity(classifier: Classifier) -> list[str]:
    """Changes when the classifier would give other maps: its network, its weights or how it takes pictures.

    Example:
        >>> from torch import nn
        >>> name, *_, weights = identity(excite.wrap(nn.Linear(2, 2), name="mine"))
        >>> name, len(weights)
        ('mine', 32)
    """
    content = hashlib.blake2b(repr(classifier.module).encode(), digest_size=16)
    for name, values in classifier.module.state_dict().items():
        content.update(name.encode())
        if isinstance(values, torch.Tensor):
            content.update(values.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    preprocess = getattr(classifier.preprocess, "__qualname__", repr(classifier.preprocess))
    outputs = "multilabel" if classifier.multilabel else "one label"
    return [classifier.name, preprocess, outputs, content.hexdigest()]
