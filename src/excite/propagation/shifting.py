"""Convolutions with many weights, as one product of matrices for each place of the kernel.

What a place of the kernel sees is the map, shifted. The weights lie so that they can be read for both directions, and
are kept once: packed ones (`excite.propagation.packing`) are a little quicker and need a copy for each direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["LARGE", "convolve_shifted"]

LARGE = 2**20  # weights: with fewer, a second packed copy costs little memory


def convolve_shifted(
    values: Tensor, places: Sequence[Tensor], sides: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """A convolution of stride 1, without bias.

    Args:
        values: [N, inputs, height, width].
        places: of each place of the kernel its weights, [inputs, outputs].
        sides: of the kernel.
        padding: at both ends of each dimension.
        dilation: of the kernel.

    Example:
        >>> import torch
        >>> weight, values = torch.randn(8, 4, 3, 3).double(), torch.randn(2, 4, 5, 6).double()
        >>> places = weight.flatten(2).unbind(2)
        >>> found = convolve_shifted(values, [place.t() for place in places], (3, 3), (1, 1), (1, 1))
        >>> torch.testing.assert_close(found, torch.conv2d(values, weight, None, 1, 1))
    """
    (top, left), (height, width) = padding, values.shape[2:]
    last = [(side - 1) * step for side, step in zip(sides, dilation, strict=True)]
    around = functional.pad(values.movedim(1, -1), (0, 0, left, left, top, top))
    tall, wide = height + 2 * top - last[0], width + 2 * left - last[1]
    found = values.new_zeros(len(values) * tall * wide, places[0].shape[1])
    for number, weight in enumerate(places):
        row, column = divmod(number, sides[1])
        down, across = row * dilation[0], column * dilation[1]
        seen = around[:, down : down + tall, across : across + wide]
        found.addmm_(seen.reshape(len(found), -1), weight)
    return found.view(len(values), tall, wide, -1).movedim(-1, 1)
