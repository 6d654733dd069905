"""Max pooling and local response normalisation, equal to torch's to the bit and faster on a CPU.

Torch pools one number after the other unless the tensor is in channels_last, and a third of GoogleNet's time goes
there. The maximum of a window does not depend on the order of comparisons, so it is taken over shifted copies of the
whole map; where the positions of the maxima are wanted, the map is brought into channels_last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["local_response_norm", "max_pool2d"]


def max_pool2d(
    input: Tensor,  # noqa: A002 - torch's own name
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - as in torch
    return_indices: bool = False,  # noqa: FBT001, FBT002 - as in torch
) -> Any:
    """As `torch.nn.functional.max_pool2d`.

    Example:
        >>> max_pool2d(torch.arange(16.0).view(1, 1, 4, 4), 2)
        tensor([[[[ 5.,  7.],
                  [13., 15.]]]])
    """
    usual: Any = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    if return_indices or not _is_plain(input) or _pair(dilation) != (1, 1):
        return functional.max_pool2d(input, *usual)
    if torch.is_grad_enabled() and input.requires_grad:
        return functional.max_pool2d(input.contiguous(memory_format=torch.channels_last), *usual).contiguous()
    kernel = _pair(kernel_size)
    steps = kernel if stride is None or stride == [] else _pair(stride)
    around = _pair(padding)
    counts = [
        _windows(size, *each, ceil_mode=ceil_mode)
        for size, *each in zip(input.shape[2:], kernel, steps, around, strict=True)
    ]
    if any(2 * pad > side for pad, side in zip(around, kernel, strict=True)) or min(counts) < 1:
        return functional.max_pool2d(input, *usual)  # which raises the error
    return _largest(input, kernel, steps, around, counts)


def _largest(
    values: Tensor, kernel: Sequence[int], steps: Sequence[int], around: Sequence[int], counts: Sequence[int]
) -> Tensor:
    """The maximum of each window: over its rows, which are contiguous, then over its columns."""
    ends = [
        (count - 1) * step + side - size - pad
        for count, step, side, size, pad in zip(counts, steps, kernel, values.shape[2:], around, strict=True)
    ]
    if any(around) or any(end > 0 for end in ends):
        edges = (around[1], max(0, ends[1]), around[0], max(0, ends[0]))
        values = functional.pad(values, edges, value=-torch.inf)
    for dim in (2, 3):
        side, step, length = kernel[dim - 2], steps[dim - 2], (counts[dim - 2] - 1) * steps[dim - 2] + 1
        shifted = [values[(slice(None),) * dim + (slice(k, k + length, step),)] for k in range(side)]
        values = shifted[0].clone() if side == 1 else torch.maximum(*shifted[:2])
        for more in shifted[2:]:
            torch.maximum(values, more, out=values)
    return values


def _windows(size: int, side: int, step: int, pad: int, *, ceil_mode: bool) -> int:
    """The number of windows; with ``ceil_mode`` the last one must still begin before the padding at the end."""
    count = (size + 2 * pad - side + (step - 1 if ceil_mode else 0)) // step + 1
    return count - 1 if ceil_mode and (count - 1) * step >= size + pad else count


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:  # noqa: A002 - torch's own name
    """As `torch.nn.functional.local_response_norm`, whose sum over channels is a pooling in three dimensions.

    Example:
        >>> local_response_norm(torch.ones(1, 2, 1, 1), 3, alpha=3.0, beta=1.0).flatten()
        tensor([0.3333, 0.3333])
    """
    if not _is_plain(input):
        return functional.local_response_norm(input, size, alpha, beta, k)
    channels = input.shape[1]
    squares = functional.pad(input * input, (0, 0, 0, 0, size // 2, (size - 1) // 2))
    total = squares[:, :channels].clone()
    for shift in range(1, size):  # in torch's order: the last digits are the same
        total += squares[:, shift : shift + channels]
    return input / total.div_(size).mul_(alpha).add_(k).pow_(beta)


def _is_plain(values: Tensor) -> bool:
    return (
        values.dim() == 4
        and values.numel() > 0
        and values.device.type == "cpu"
        and values.dtype in {torch.float32, torch.float64}
        and values.is_contiguous()
    )


def _pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])
