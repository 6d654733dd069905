"""How tensors lie in memory on the way down: with the channels of a place side by side, where kernels are quicker so.

A CPU's kernels with packed weights read and write that order, a kernel of one place is one product of matrices in it,
and nothing has to be brought back into torch's usual order between two operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from excite.propagation.deciding import is_known

__all__ = ["empty_places", "is_side_by_side", "side_by_side"]


def side_by_side(values: Tensor) -> Tensor:
    """A batch of maps [N, C, H, W] with the channels of each place side by side; others, and on other devices, as is.

    Example:
        >>> side_by_side(torch.zeros(1, 8, 4, 4)).stride()
        (128, 1, 32, 8)
    """
    if values.dim() != 4 or values.dtype != torch.float32 or values.device.type != "cpu" or not is_known():
        return values
    return values.contiguous(memory_format=torch.channels_last)


def is_side_by_side(signals: Tensor) -> bool:
    """Whether signals [..., C, H, W] have the channels of a place side by side, and are not in the usual order as well.

    Example:
        >>> is_side_by_side(side_by_side(torch.zeros(1, 8, 4, 4))), is_side_by_side(torch.zeros(1, 8, 4, 4))
        (True, False)
    """
    return signals.dim() >= 4 and signals.stride(-3) == 1 and not signals.is_contiguous()


def empty_places(like: Tensor, *lead: int, channels: int, sides: tuple[int, ...]) -> Tensor:
    """Nothing at each place, [*lead, channels, *sides], the channels side by side.

    Example:
        >>> empty_places(torch.ones(1), 2, 1, channels=8, sides=(4, 4)).shape
        torch.Size([2, 1, 8, 4, 4])
    """
    return like.new_zeros(*lead, *sides, channels).movedim(-1, len(lead))
