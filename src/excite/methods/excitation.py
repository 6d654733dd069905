"""Excitation Backprop: marginal winning probabilities, plain and contrastive (paper, sections 3.2 and 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.methods.method import Method

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["C_MWP", "MWP"]


def _over_channels(probabilities: dict[str, Tensor]) -> dict[str, Tensor]:
    """A place wins when any of its neurons does."""
    return {layer: values.sum(dim=1) for layer, values in probabilities.items()}


MWP = Method(
    "mwp",
    "marginal winning probability: everything that excites the concept",
    lambda sweep, signal: _over_channels(sweep.down(signal)),
)
C_MWP = Method(
    "c-mwp",
    "contrastive MWP: what excites the concept more than its opposite (the default)",
    lambda sweep, signal: _over_channels(sweep.down(signal, dual=-1.0)),
)
