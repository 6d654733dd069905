"""Where the image's positions lie in a layer's output: as tokens [N, T, C], as maps [N, h, w, C] or [N, C, h, w]."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class TokenGrid:
    """The layout of a layer's output, by which it is read as a map [N, C, h, w].

    All dimensions are negative, so that leading ones (of several signals) do not matter.

    Attributes:
        height: the number of rows of positions,
        width: and of columns.
        dims: the dimension of the tokens; or those of the rows and of the columns.
        tokens: which token lies at each position, row by row; empty where rows and columns have their own dimensions.
        count: the number of all tokens, also of those that are not the image's (class, distillation, registers).
        images: the dimension of the images,
        channels: and of the channels.

    Example:
        >>> import torch
        >>> grid = TokenGrid(2, 2, dims=(-2,), tokens=(1, 2, 3, 4), count=5)  # a class token, then 2 x 2 of the image
        >>> values = torch.arange(5.0)[None, :, None]
        >>> grid.as_map(values)
        tensor([[[[1., 2.],
                  [3., 4.]]]])
        >>> grid.others(values)
        tensor([[[0.]]])
    """

    height: int
    width: int
    dims: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    count: int = 0
    images: int = -3
    channels: int = -1

    def as_map(self, values: Tensor) -> Tensor:
        """Values [..., *shape of the layer's output] (activations, gradients, probabilities) as [..., N, C, h, w]."""
        values = self._ordered(values)
        return self.over_tokens(values) if self.tokens else values

    def over_tokens(self, values: Tensor) -> Tensor:
        """Values [..., T] of tokens, such as the weights of an attention, at the image's positions [..., h, w]."""
        first, places = self.tokens[0], len(self.tokens)
        if self.tokens == tuple(range(first, first + places)):  # nearly always
            picked = values.narrow(-1, first, places)
        else:
            picked = values[..., list(self.tokens)]
        return picked.reshape(*picked.shape[:-1], self.height, self.width)

    def others(self, values: Tensor) -> Tensor:
        """Values of the tokens that are not the image's, [..., N, C, tokens]."""
        return self._ordered(values)[..., self.other_tokens] if self.tokens else values.new_zeros(0)

    @property
    def other_tokens(self) -> list[int]:
        """The tokens that are not the image's."""
        return sorted(set(range(self.count)) - set(self.tokens))

    def _ordered(self, values: Tensor) -> Tensor:
        """As [..., N, C, tokens] or [..., N, C, h, w]."""
        order = (self.images, self.channels, *self.dims)
        before = values.dim() - len(order)
        return values.permute(*range(before), *(values.dim() + dim for dim in order))


class ReadAsMaps:
    """The reading of a forward pass.

    Attributes:
        readings: for each layer its tap and its activation, as the network gives it.
        compared: the activations of layers that are not read.
        grids: where the image's positions lie in the outputs of layers that are to be read as maps [N, C, h, w] by
            ``down`` and ``activations``. All others, at first every layer, are read as they are.
    """

    readings: Mapping[str, Any]
    compared: Mapping[str, Tensor] = MappingProxyType({})
    grids: Mapping[str, TokenGrid] = MappingProxyType({})

    @property
    def activations(self) -> dict[str, Tensor]:
        """For each layer its output."""
        return self.in_places({layer: each.activation for layer, each in self.readings.items()} | {**self.compared})

    def in_places(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Values of layers, each as a map where its grid is known; there may be a leading dimension of signals."""
        grids = self.grids
        return {layer: grids[layer].as_map(each) if layer in grids else each for layer, each in values.items()}
