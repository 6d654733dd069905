"""Weights of convolutions in the order in which a CPU's kernels read them.

oneDNN reorders the weights each time a convolution runs. For layers with many weights and few places that takes longer
than the convolution itself, and the weights of a competition stay the same from image to image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

__all__ = ["can_pack", "convolve", "pack"]

LEAST = 2**12  # weights: with fewer there is nothing to gain
_REORDER = getattr(torch._C._nn, "mkldnn_reorder_conv2d_weight", None)  # noqa: SLF001 - torch has no public name for it
_CONVOLVE = getattr(torch.ops.mkldnn, "_convolution_pointwise", None) if torch._C._has_mkldnn else None  # noqa: SLF001 - as above


def can_pack(child: Tensor, weight: Tensor) -> bool:
    """Whether a convolution of ``child`` gains from packed weights, and this build of torch knows how."""
    return (
        _REORDER is not None
        and _CONVOLVE is not None
        and child.device.type == "cpu"
        and child.dtype == weight.dtype == torch.float32
        and weight.dim() == 4
        and weight.numel() >= LEAST
        and weight.shape[2] * weight.shape[3] > 1
        and bool(torch.backends.mkldnn.enabled)
    )


def pack(
    weight: Callable[[], Tensor],
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    shape: torch.Size,
) -> Tensor:
    """The weights as the kernel for inputs of that shape reads them; other shapes work too, if not as fast.

    ``weight`` makes them, so that they are gone as soon as they were read.
    """
    packed: Tensor = _REORDER(weight().to_mkldnn(), padding, stride, dilation, groups, shape)  # type: ignore[misc]  # `can_pack` has looked
    return packed


def convolve(
    child: Tensor,
    packed: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution with packed weights, without bias; the channels of a place come out side by side.

    Example:
        >>> weight, child = torch.randn(64, 64, 3, 3), torch.randn(1, 64, 5, 5)
        >>> options = [1, 1], [1, 1], [1, 1], 1
        >>> if can_pack(child, weight):
        ...     found = convolve(child, pack(lambda: weight, *options, child.shape), *options)
        ...     torch.testing.assert_close(found, torch.conv2d(child, weight, None, 1, 1), atol=1e-3, rtol=1e-3)
    """
    answer: Tensor = _CONVOLVE(child, packed, None, padding, stride, dilation, groups, "none", [], "")  # type: ignore[misc]  # as above
    return answer
