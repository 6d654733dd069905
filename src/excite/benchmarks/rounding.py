"""How far a map in single precision is from the map of the same weights and the same picture in double precision."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from excite.propagation import ExcitationPass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

__all__ = ["gaps", "in_double"]

SENT = {"mwp": (1.0, 0.0), "c-mwp": (1.0, -1.0)}  # how much of the cued unit and of its dual goes down

Row = dict[str, Any]


def in_double(network: nn.Module, picture: Tensor) -> tuple[nn.Module, Tensor]:
    """The same network with the same weights in double precision, and what it is to look at.

    Example:
        >>> import torch
        >>> net, picture = in_double(torch.nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2))
        >>> net.weight.dtype, picture.dtype
        (torch.float64, torch.float64)
    """
    return copy.deepcopy(network).double(), picture.double()


def gaps(network: nn.Module, picture: Tensor, layers: Sequence[str], signals: Sequence[Tensor]) -> dict[str, Row]:
    """For each layer how far MWP and c-MWP are from themselves in double precision, of all signals the worst.

    Returns:
        for each layer ``mwp`` and ``c-mwp``, the L1 distance over the L1 norm of the exact map; ``contrast``, that norm
        for c-MWP, so how much of the signal is left when common winners have cancelled; and ``moved``, how much less
        than its maximum the exact map has at the place to which rounding moved the point: 0 where it stayed.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.Flatten(), torch.nn.Linear(8, 2)).eval()
        >>> gap = gaps(net, torch.rand(1, 1, 2, 2), ["0"], [torch.tensor([[1.0, 0.0]])])["0"]
        >>> gap["mwp"] < 1e-4
        True
    """
    rough, exact = ExcitationPass(network, picture, layers), ExcitationPass(*in_double(network, picture), layers)
    found: dict[str, Row] = {layer: {"layer": layer, "moved": 0.0} for layer in layers}
    for name, (unit, dual) in SENT.items():
        for signal in signals:
            here = rough.down(signal, unit=unit, dual=dual)
            there = exact.down(signal.double(), unit=unit, dual=dual)
            for layer, row in found.items():
                row[name] = max(row.get(name, 0.0), _distance(here[layer], there[layer]))
                row["moved"] = max(row["moved"], _moved(here[layer], there[layer]))
                if dual:
                    size = float(there[layer].abs().sum())
                    row["contrast"] = min(row.get("contrast", size), size)
    return found


def _distance(rough: Tensor, exact: Tensor) -> float:
    """The L1 distance over the exact map's own L1 norm; what a map has that should be empty."""
    norm = float(exact.abs().sum())
    return float((rough.double() - exact).abs().sum()) / (norm or 1.0)


def _moved(rough: Tensor, exact: Tensor) -> float:
    """How much less than its maximum the exact map has at the rough map's point, of that maximum."""
    planes = [values.double().sum(dim=1).flatten() for values in (rough, exact)]
    most = float(planes[1].max())
    return 1 - float(planes[1][planes[0].argmax()]) / most if most > 0 else 0.0
