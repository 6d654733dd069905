"""Excitation Backprop: marginal winning probabilities, plain and contrastive (paper, sections 3.2 and 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.methods.method import Method

if TYPE_CHECKING:
    from torch import Tensor

    from excite.methods.method import Cue
    from excite.propagation import Sweep

__all__ = ["C_MWP", "MWP"]


def _over_channels(probabilities: dict[str, Tensor]) -> dict[str, Tensor]:
    """A place wins when any of its neurons does."""
    return {layer: values.sum(dim=1) for layer, values in probabilities.items()}


def _down(sweep: Sweep, cue: Cue, dual: float = 0.0) -> dict[str, Tensor]:
    return sweep.down(cue(sweep.output), dual=dual)


MWP = Method(
    "mwp",
    "marginal winning probability: everything that excites the concept",
    lambda view, cue: _over_channels(_down(view.winners(), cue)),
)
C_MWP = Method(
    "c-mwp",
    "contrastive MWP: what excites the concept more than its opposite (the default)",
    lambda view, cue: _over_channels(_down(view.winners(), cue, dual=-1.0)),
    plain=MWP,
)
