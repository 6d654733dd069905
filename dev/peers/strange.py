"""What small networks are given to stumble over: sums in modules, and operations that nobody has a rule for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from peers.networks import Small
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["STRANGE", "Stacked", "Strange"]


class Stacked(nn.Module):
    """How zennit's Sum takes two terms."""

    def __init__(self, add: nn.Module) -> None:
        super().__init__()
        self.add = add

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """The sum."""
        return self.add(torch.stack([one, other], dim=-1))


class Strange(Small):
    """Something that Excitation Backprop has no rule for, between the features and the rest."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def features(self, x: Tensor) -> Tensor:
        """What the function makes of them."""
        return self.function(super().features(x))


class Cube(torch.autograd.Function):
    """Somebody's own operation, whose backward is a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Third powers."""
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Their derivative."""
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


STRANGE = (
    lambda x: x @ x.transpose(-1, -2),
    lambda x: torch.fft.fft(x).abs(),
    Cube.apply,
)
