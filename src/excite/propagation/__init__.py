"""The mechanism: Excitation Backprop for any network in plain PyTorch. `docs/mechanism.md` leads through it."""

from excite.errors import renamed
from excite.propagation.edges import attention_layers
from excite.propagation.excitation_pass import ExcitationPass, held_bytes, prior
from excite.propagation.fast import plain_kernels
from excite.propagation.gradients import Gradients
from excite.propagation.markov import (
    AbsorbingChain,
    Walks,
    absorbing_chain,
    sample_winners,
    transition_matrix,
    winner_take_all,
)
from excite.propagation.mwp import mwp
from excite.propagation.operations import OPERATIONS
from excite.propagation.token_pass import TokenPass
from excite.propagation.verify import Verification, verify

__all__ = [
    "OPERATIONS", "AbsorbingChain", "ExcitationPass", "Gradients", "TokenPass", "Verification", "Walks",
    "absorbing_chain", "attention_layers", "held_bytes", "mwp", "plain_kernels", "prior", "sample_winners",
    "transition_matrix", "verify", "winner_take_all",
]  # fmt: skip

__getattr__ = renamed(__name__, {"Sweep": "ExcitationPass"})  # deprecated since 0.2
