"""What is done in fewer steps: signs of norms, calls below all taps, max pooling and local response normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation import provenance
from excite.propagation.provenance import Neuron, Provenance, is_activation, provenance_of, set_provenance

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.propagation.taps import Start


@dataclass(frozen=True)
class FlippedRows:
    """Two more inputs of a neuron, for the weights with the rows negated that a norm gives a negative scale."""

    rule: Any  # the neuron's `FastAffine`
    positive: Tensor
    negative: Tensor

    def flip(self, polarity: Tensor, starts: tuple[Start, ...]) -> Neuron | None:
        """The neuron with those rows negated, if there is a sign for each row and no other norm negated other rows."""
        shape = [1] * self.positive.dim()
        shape[self.rule.hints.row_dim] = self.positive.shape[self.rule.hints.row_dim]
        orientation = torch.where(polarity < 0, -1.0, 1.0).to(polarity).flatten()
        if list(polarity.shape) in (shape, shape[1:]) and self.rule.orientation is None:
            self.rule.orientation = orientation
        if list(polarity.shape) not in (shape, shape[1:]) or not torch.equal(self.rule.orientation, orientation):
            return None
        silent = polarity.abs() if bool((polarity == 0).any()) else None
        return Neuron(self.positive, self.negative, silent, starts)


# --- below all taps the network just runs: only the provenance of the results must be known --------------------------


def run_below(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The result of a call below all taps, with its provenance; None where the general way must decide that."""
    if name not in _BELOW or not args or not is_activation(args[0]):
        return None
    known = known_below(name, args, kwargs)
    if known is None:
        return None
    with torch.set_grad_enabled(False):  # half the time of no_grad
        return set_provenance(function(*args, **kwargs), known)


def known_below(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Provenance | None:
    """What is known of an output, from the arguments of the call; None: that is for the general way to say."""
    known, found = provenance_of(args[0]), None
    plain = known.baseline is None and known.gate <= 0
    if name in _WEIGHTS or name in _NORMS:  # with constant weights; a norm of a preactivation is still one
        found = provenance.PREACTIVATION if name in _WEIGHTS else known if known.preactivation and plain else None
        found = None if known.gate == provenance.ATTENTION else found
        for argument in (*args[1:], *kwargs.values()):
            found = None if is_activation(argument) else found
        found = found if len(args) > 1 else None
    elif name == "add":  # so is a sum of activations with baseline 0
        if plain and len(args) == 2 and not kwargs and is_activation(args[1]):
            other = provenance_of(args[1])
            gate = min(known.gate, other.gate)
            found = Provenance(gate=gate, preactivation=True) if other.baseline is None and other.gate <= 0 else None
    elif name == "relu":
        found = provenance.UNKNOWN if plain else None
    elif name == "pad":
        kept = {0: provenance.UNKNOWN, provenance.LIMITED: provenance.BOUNDED}
        found = kept.get(known.gate) if known.baseline is None else None
    elif name == "relu6" or (args[1] if len(args) > 1 else kwargs.get("min_val", -1.0)) == 0:  # a hardtanh from 0
        found = provenance.BOUNDED
    return found


_WEIGHTS = frozenset("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear".split())
_NORMS = frozenset(["batch_norm", "group_norm", "layer_norm"])
_BELOW = _WEIGHTS | _NORMS | {"add", "relu", "relu6", "hardtanh", "pad"}

# --- pooling and local response normalisation, equal to torch's to the bit and faster on a CPU ------------------------


def max_pool2d(input: Tensor, *options: Any, **named: Any) -> Any:  # noqa: A002 - torch's own name
    """As torch's, which takes one number after the other unless the tensor is in channels_last."""
    if not _is_plain(input):
        return functional.max_pool2d(input, *options, **named)
    pooled = functional.max_pool2d(input.contiguous(memory_format=torch.channels_last), *options, **named)
    return pooled.contiguous() if isinstance(pooled, Tensor) else tuple(map(Tensor.contiguous, pooled))


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:  # noqa: A002 - torch's own name
    """As `torch.nn.functional.local_response_norm`, whose sum over channels is a pooling in three dimensions."""
    if not _is_plain(input):
        return functional.local_response_norm(input, size, alpha, beta, k)
    channels = input.shape[1]
    squares = functional.pad(input * input, (0, 0, 0, 0, size // 2, (size - 1) // 2))
    total = squares[:, :channels].clone()
    for shift in range(1, size):  # in torch's order: the last digits are the same
        total += squares[:, shift : shift + channels]
    return input / total.div_(size).mul_(alpha).add_(k).pow_(beta)


def _is_plain(values: Tensor) -> bool:
    return (
        values.dim() == 4
        and values.numel() > 0
        and values.device.type == "cpu"
        and values.dtype in {torch.float32, torch.float64}
        and values.is_contiguous()
    )
