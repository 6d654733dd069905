"""The mechanism: Excitation Backprop for any network in plain PyTorch."""

from excite.propagation.chain import AbsorbingChain, absorbing_chain, transition_matrix
from excite.propagation.gradients import Gradients
from excite.propagation.holding import held_bytes
from excite.propagation.mwp import mwp
from excite.propagation.operations import OPERATIONS
from excite.propagation.signals import prior
from excite.propagation.sweep import Sweep
from excite.propagation.walks import Walks, sample_winners, winner_take_all

__all__ = [
    "OPERATIONS",
    "AbsorbingChain",
    "Gradients",
    "Sweep",
    "Walks",
    "absorbing_chain",
    "held_bytes",
    "mwp",
    "prior",
    "sample_winners",
    "transition_matrix",
    "winner_take_all",
]
