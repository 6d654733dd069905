"""What need not be done again, or not at all: signs of norms kept between images, and calls below all taps.

Nothing else is kept of a network's parameters. The signs are kept with all the numbers they were taken from, and are
used again only where every one of them is still the same, however it may have been changed in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from excite.propagation.fast import constants, is_concrete
from excite.propagation.provenance import (
    BOUNDED,
    PREACTIVATION,
    UNKNOWN,
    Neuron,
    Provenance,
    is_activation,
    provenance_of,
    set_provenance,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CACHE", "FlippedRows", "SignCache", "Signs", "run_below", "scaled_neuron"]

MOST_NORMS, WIDEST_NORM = 1024, 2**14  # norms whose signs are kept, and channels of one: 200 MB at most, usually 5

# --- the signs of norms ----------------------------------------------------------------------------------------------


class Signs(NamedTuple):
    """The signs of the constants that responses are multiplied with.

    Attributes:
        polarity: 1, -1 or 0, in the constants' own shape.
        all_positive: nothing changes its sign or vanishes.
        silent: the magnitude of the polarity where it is 0 somewhere; None where it is not.
        orientation: -1 where the polarity is, else 1; flat.
    """

    polarity: Tensor
    all_positive: bool
    silent: Tensor | None
    orientation: Tensor


def signs_of(scale: Tensor) -> Signs:
    """The signs of some constants.

    Example:
        >>> signs_of(torch.tensor([2.0, -3.0, 0.0])).polarity
        tensor([ 1., -1.,  0.])
    """
    polarity = scale.sign()
    silent = polarity.abs() if bool((polarity == 0).any()) else None
    orientation = torch.where(polarity < 0, -1.0, 1.0).to(polarity).flatten()
    return Signs(polarity, bool((polarity == 1).all()), silent, orientation)


class SignCache:
    """The signs of norms, kept between images.

    Example:
        >>> kept, scale = SignCache(), torch.nn.Parameter(torch.tensor([2.0, -3.0]))
        >>> kept.signs_of(scale.detach()) is kept.signs_of(scale.detach())
        True
        >>> scale.data[0] = -2.0
        >>> kept.signs_of(scale.detach()).polarity
        tensor([-1., -1.])
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[Tensor, Signs]] = {}  # by the address of a scale, with its values

    def signs_of(self, scale: Tensor) -> Signs:
        """As the function of that name; those of the same numbers at the same address are not computed again."""
        if not is_concrete() or scale.numel() > WIDEST_NORM:
            return signs_of(scale)
        key = (scale.data_ptr(), scale.shape, scale.dtype, scale.device)
        values, signs = self._kept.get(key, (None, None))
        if values is None or signs is None or not torch.equal(values, scale):
            if len(self._kept) >= MOST_NORMS:
                self._kept.clear()
            signs = signs_of(scale)
            self._kept[key] = scale.clone(), signs
        return signs

    def parts(self) -> list[Tensor]:
        """All that rules may refer to."""
        kept = [signs for _, signs in list(self._kept.values())]
        return [part for signs in kept for part in signs if isinstance(part, Tensor)]

    def clear(self) -> None:
        """Drop all of them."""
        self._kept.clear()


CACHE = SignCache()  # of all networks of this process


@dataclass(frozen=True)
class FlippedRows:
    """Two more inputs of a neuron, for the weights with the rows negated that a norm gives a negative scale.

    Attributes:
        rule: the neuron's `FastAffine`.
        positive: its positive input, with those rows,
        negative: and its negative input.
    """

    rule: Any
    positive: Tensor
    negative: Tensor

    def flip(self, signs: Signs) -> bool:
        """Negate the rows with these signs, if there is one for each row and no other norm negated other rows."""
        shape = [1] * self.positive.dim()
        shape[self.rule.hints.row_dim] = self.positive.shape[self.rule.hints.row_dim]
        if list(signs.polarity.shape) not in (shape, shape[1:]):
            return False
        if self.rule.orientation is None:
            self.rule.orientation = signs.orientation
        return self.rule.orientation is signs.orientation or torch.equal(self.rule.orientation, signs.orientation)


def scaled_neuron(neuron: Neuron, scale: Tensor | float, like: Tensor, *, parameter: bool = False) -> Neuron:
    """As `Neuron.scaled`; negative scales of a norm negate the rows of the weights, where that is possible."""
    with constants((scale, neuron.polarity)):
        constant = torch.as_tensor(scale, dtype=like.dtype, device=like.device).detach()
        signs = CACHE.signs_of(constant) if parameter else signs_of(constant)
        if neuron.polarity is not None:
            signs = signs_of(neuron.polarity * signs.polarity)
        if signs.all_positive:
            return replace(neuron, polarity=None)
        flipped = neuron.flipped_rows
        if flipped is not None and flipped.flip(signs):
            return Neuron(flipped.positive, flipped.negative, signs.silent, neuron.starts)
        return replace(neuron, polarity=signs.polarity, flipped_rows=None)


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
    plain = known.baseline is None and not known.gate
    if name in _WEIGHTS or name in _NORMS:  # with constant weights; a norm of a preactivation is still one
        found = PREACTIVATION if name in _WEIGHTS or (known.preactivation and not known.gate) else None
        for argument in (*args[1:], *kwargs.values()):
            found = None if is_activation(argument) else found
        found = found if len(args) > 1 else None
    elif name == "add":  # so is a sum of activations with baseline 0
        if plain and len(args) == 2 and not kwargs and is_activation(args[1]):
            other = provenance_of(args[1])
            found = PREACTIVATION if other.baseline is None and not other.gate else None
    elif name == "relu":
        found = UNKNOWN if plain else None
    elif name == "pad":
        found = (UNKNOWN, BOUNDED, None)[known.gate] if known.baseline is None else None
    elif name == "relu6" or (args[1] if len(args) > 1 else kwargs.get("min_val", -1.0)) == 0:  # a hardtanh from 0
        found = BOUNDED
    return found


_WEIGHTS = frozenset("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear".split())
_NORMS = frozenset(["batch_norm", "group_norm", "layer_norm"])
_BELOW = _WEIGHTS | _NORMS | {"add", "relu", "relu6", "hardtanh", "pad"}
