"""The mechanism: Excitation Backprop for any network in plain PyTorch."""

from excite.propagation.operations import OPERATIONS
from excite.propagation.sweep import Sweep

__all__ = ["OPERATIONS", "Sweep"]
