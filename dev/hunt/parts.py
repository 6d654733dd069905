"""What both networks of a pair are made of: the same weights, workspaces and constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHANNELS", "REACH", "SHAPE", "SIDE", "UNITS", "Parts", "Spelling", "in_range"]

CHANNELS, SIDE = 2, 3
SHAPE = (1, CHANNELS, SIDE, SIDE)
UNITS = CHANNELS * SIDE * SIDE
REACH = 512  # the table of whole numbers goes from -REACH to REACH


class Parts(nn.Module):
    """The modules, parameters, buffers and plain attributes that a step of a network may use.

    Args:
        seed: of all numbers.
        whole: small whole numbers only, so that all responses up to the first tanh are whole numbers too.
        dtype: of all numbers.
    """

    def __init__(self, seed: int, *, whole: bool, dtype: torch.dtype) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)

        def some(*shape: int) -> Tensor:
            numbers = torch.randn(shape, generator=random, dtype=torch.float64)
            return (numbers.round() if whole else numbers).to(dtype)

        self.convs = nn.ModuleList(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(8))
        self.mixes = nn.ModuleList(nn.Conv2d(2 * CHANNELS, CHANNELS, 1) for _ in range(8))
        self.norms = nn.ModuleList(nn.BatchNorm2d(CHANNELS, eps=0.0) for _ in range(8))
        self.scale = nn.Parameter(torch.empty(1, CHANNELS, 1, 1))
        self.worked_on = nn.Parameter(torch.empty(SHAPE))
        self.matrix = nn.Parameter(torch.empty(UNITS, UNITS))
        self.head = nn.Linear(UNITS, 3)
        self.pooled_head = nn.Linear(CHANNELS, 3)
        self.to(dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(some(*parameter.shape))
            for norm in self.norms:  # one scale is negative
                norm.weight.copy_(torch.tensor([2.0, -1.0] if whole else [1.3, -0.7]))
                norm.bias.copy_(torch.tensor([3.0, 3.0] if whole else [2.2, 1.7]))
            self.matrix.copy_((self.matrix * (torch.rand(UNITS, UNITS, generator=random) < 0.2)).to(dtype))
        self.register_buffer("workspace", torch.zeros(SHAPE, dtype=dtype))
        self.register_buffer("running", torch.zeros(CHANNELS, dtype=dtype))
        self.register_buffer("table", torch.arange(-REACH, REACH + 1).to(dtype))
        self.constant = some(*SHAPE)  # an attribute that is no buffer
        self.kept: list[object] = []
        self.eval()


def in_range(h: Tensor) -> Tensor:
    """The places of whole numbers in the table."""
    return h.long() + REACH


def same(_parts: Parts, h: Tensor) -> Tensor:
    """The plain twin of a round trip: nothing at all."""
    return h


@dataclass(frozen=True)
class Spelling:
    """Two ways to write the same step.

    Attributes:
        odd: one that may confuse.
        plain: one with verified rules only, and the same values.
        right: excite says that it can explain the odd one: it must not be refused.
        whole: only whole numbers come back as they were.
        rectified: only numbers from 0 on do.
        inexact: the values differ in the last bits, or are fractions.
        level: its twin is one only where units rest at 0, and no two are equal: not behind tanh or other odd steps.
        anywhere: excite says that it refuses this wherever it stands, also below the layer that is read.
        dtype: the only one that it works with.
    """

    odd: Callable[[Parts, Tensor], Tensor]
    plain: Callable[[Parts, Tensor], Tensor] = same
    right: bool = False
    whole: bool = False
    rectified: bool = False
    inexact: bool = False
    level: bool = False
    anywhere: bool = False
    dtype: torch.dtype | None = None
