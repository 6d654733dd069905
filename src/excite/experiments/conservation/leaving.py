"""Is a network left as it was found? Its state before and after."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["state_of"]


def state_of(network: nn.Module) -> list[Any]:
    """All that we could have left on a network: other weights, flags, hooks, attributes.

    Example:
        >>> from torch import nn
        >>> network = nn.Linear(2, 2)
        >>> before = state_of(network)
        >>> network.seen = True
        >>> state_of(network) == before
        False
    """
    tensors = [
        (name, _digest(tensor), tensor.requires_grad) for name, tensor in network.state_dict(keep_vars=True).items()
    ]
    modules = [
        (child.training, len(child._forward_hooks), len(child._forward_pre_hooks), sorted(vars(child)))  # noqa: SLF001 - torch lists hooks nowhere else
        for child in network.modules()
    ]
    return [*tensors, *modules]


def _digest(tensor: Tensor) -> int:
    return zlib.crc32(tensor.detach().contiguous().numpy().data)
