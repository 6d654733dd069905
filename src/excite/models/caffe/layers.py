"""The modules of Caffe's layers that torch has no module for, or another one.

Their operations are ones that `excite.propagation` has rules for, so that every network built of them can be explained.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["BatchNorm", "Concat", "Eltwise", "InnerProduct", "LocalNorm", "Power", "Reshape", "Scale"]


class InnerProduct(nn.Linear):
    """A full connection to all that a picture has from ``axis`` on.

    Flattening and connecting are two plain calls, so that who wants to can run it as a convolution.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, axis: int = 1, transposed: bool = False) -> None:
        super().__init__(inputs, outputs, bias)
        self.axis = axis
        self.transposed = transposed  # in the file, not here

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- the name is torch's
        """Flatten, then connect."""
        return functional.linear(torch.flatten(input, self.axis), self.weight, self.bias)


class BatchNorm(nn.Module):
    """Caffe's norm: stored statistics, no scale of its own, and always as at test time.

    The file has sums of statistics and the ``factor`` they were summed with, so that is what is kept here.
    """

    mean: Tensor
    variance: Tensor
    factor: Tensor

    def __init__(self, channels: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.register_buffer("factor", torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """Normalise; a factor of 0 makes the statistics 0, as in Caffe."""
        share = torch.where(self.factor == 0, self.factor, 1 / self.factor)
        return functional.batch_norm(features, self.mean * share, self.variance * share, eps=self.epsilon)


class Scale(nn.Module):
    """A factor for each channel and a shift for each channel, or one of the two."""

    def __init__(self, channels: int, *, factor: bool = True, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels)) if factor else None
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """Multiply, then shift."""
        ones = [1] * (features.dim() - 2)
        scaled = features if self.weight is None else features * self.weight.reshape(-1, *ones)
        return scaled if self.bias is None else scaled + self.bias.reshape(-1, *ones)


class Power(nn.Module):
    """``(shift + scale * x) ** power``."""

    def __init__(self, power: float = 1.0, scale: float = 1.0, shift: float = 0.0) -> None:
        super().__init__()
        self.power, self.scale, self.shift = power, scale, shift

    def forward(self, features: Tensor) -> Tensor:
        """Scale, shift, raise; each only where it does something."""
        features = features if self.scale == 1 else features * self.scale
        features = features if self.shift == 0 else features + self.shift
        return features if self.power == 1 else features**self.power


class LocalNorm(nn.Module):
    """LRN within each channel: by the mean square of the places around. Caffe takes no notice of ``k`` here."""

    def __init__(self, size: int, alpha: float, beta: float) -> None:
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta

    def forward(self, features: Tensor) -> Tensor:
        """Divide by a power of 1 plus the mean square."""
        around = functional.avg_pool2d(features.square(), self.size, stride=1, padding=self.size // 2)
        return features / (1 + self.alpha * around) ** self.beta


class Concat(nn.Module):
    """All inputs, one after the other."""

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *parts: Tensor) -> Tensor:
        """Concatenate."""
        return torch.cat(parts, self.axis)


class Eltwise(nn.Module):
    """The sum, the product or the maximum of all inputs, each times its coefficient."""

    def __init__(self, combine: Callable[[Tensor, Tensor], Tensor], coefficients: Sequence[float]) -> None:
        super().__init__()
        self.combine = combine
        self.coefficients = tuple(coefficients)

    def forward(self, *terms: Tensor) -> Tensor:
        """Combine them one after the other."""
        weighted = (x if c == 1 else x * c for x, c in zip(terms, self.coefficients, strict=True))
        return reduce(self.combine, weighted)


class Reshape(nn.Module):
    """Other dimensions for the values of each picture: 0 keeps the one in this place, one may be -1: what is left."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = tuple(dims)

    def forward(self, features: Tensor) -> Tensor:
        """Reshape all but the first dimension."""
        dims = [dim or features.shape[place] for place, dim in enumerate(self.dims)]
        return torch.unflatten(features.flatten(1), 1, dims[1:])
