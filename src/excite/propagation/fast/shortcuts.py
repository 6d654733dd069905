"""What need not be done again, or not at all: weights and signs kept between images, and calls below all taps.

What is kept is checked at each use. Torch counts in-place changes of a parameter; for changes that it does not count
(through ``.data`` or NumPy) about one number of each row is compared, each from another column.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

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
from excite.propagation.rules import scale_for, scaled_by, signed_part, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CACHE", "FlippedRows", "SignedWeight", "Signs", "WeightCache", "run_below", "scaled_neuron", "weight_scale"]

MOST_BYTES = 256 * 2**20  # of weights that are kept
MOST_NORMS, WIDEST_NORM = 1024, 2**14  # norms whose signs are kept, and channels of one: 200 MB at most, usually 5

# --- the positive and negative parts of weights ----------------------------------------------------------------------


@dataclass
class _Entry:
    weight: weakref.ref[Tensor]
    mark: tuple[int, int, torch.dtype]
    sample: Tensor
    orientation: Tensor | None
    parts: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # by sign and form


class WeightCache:
    """Parts of weights by parameter, the least recently used dropped first (the latest is kept in any case).

    Args:
        most_bytes: how much memory they may take.

    Example:
        >>> kept, weight = WeightCache(), torch.nn.Parameter(torch.tensor([[1.0, -2.0]]))
        >>> kept.part(weight, -1, None, "as it is", lambda: signed_part(weight, -1))
        tensor([[ 0., -2.]])
        >>> weight.data[:] = -3.0
        >>> kept.part(weight, -1, None, "as it is", lambda: signed_part(weight, -1))
        tensor([[-3., -3.]])
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def part(
        self, weight: Tensor, sign: int, orientation: Tensor | None, form: str, make: Callable[[], Tensor]
    ) -> Tensor:
        """The positive (``sign`` 1) or negative (-1) part of a parameter whose rows are multiplied by ``orientation``.

        ``make`` computes it, in the form that is kept under that name.
        """
        mark = version_of(weight), weight.data_ptr(), weight.dtype
        values = weight.detach().reshape(-1)
        sample = values[:: values.numel() // weight.shape[0] + 7]  # a view: comparing it costs next to nothing
        with self._lock:
            entry = self._entries.get(id(weight))
            if (
                entry is None
                or entry.weight() is not weight
                or entry.mark != mark
                or not _equal(entry.orientation, orientation)
                or not torch.equal(entry.sample, sample)
            ):
                entry = self._entries[id(weight)] = _Entry(weakref.ref(weight), mark, sample.clone(), orientation)
            self._entries.move_to_end(id(weight))
            if (sign, form) not in entry.parts:
                entry.parts[sign, form] = make()
                for key, other in list(self._entries.items()):
                    if other.weight() is None:
                        del self._entries[key]
                while self.size > self.most_bytes and len(self._entries) > 1:
                    self._entries.popitem(last=False)
            return entry.parts[sign, form]

    def parts(self) -> list[Tensor]:
        """All that is kept."""
        with self._lock:
            return [part for entry in self._entries.values() for part in entry.parts.values()]

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        size = 0
        for entry in self._entries.values():
            for part in entry.parts.values():
                size += part.numel() * part.element_size()
        return size

    def clear(self) -> None:
        """Drop all of them."""
        with self._lock:
            self._entries.clear()


CACHE = WeightCache()  # of all networks of this process


@dataclass(frozen=True)
class SignedWeight:
    """The positive or the negative weights of an `Affine`, in whichever form a kernel reads them.

    Attributes:
        weight: all of them.
        sign: 1 or -1.
        orientation: of each row: -1 where it is negated first.
        dtype: the type of the computation.
        kept: whether the forms are kept for the next image.
        scale: what they are multiplied with: see `scale_for`.
    """

    weight: Tensor
    sign: int
    orientation: Tensor | None
    dtype: torch.dtype
    kept: bool
    scale: float = 1.0

    def tensor(self) -> Tensor:
        """In the shape of the weights; computed anew each time, because it is as large as the network itself."""
        weight = self.weight.detach()
        if self.orientation is not None:
            weight = weight * self.orientation.to(weight.dtype).view(-1, *[1] * (weight.dim() - 1))
        return scaled_by(signed_part(weight, self.sign), self.scale).to(self.dtype)

    def rows(self) -> Tensor:
        """One row for each output."""
        return self.tensor().flatten(1)

    def positions(self) -> Iterator[Tensor]:
        """Those of each position of a kernel, [outputs, inputs], one after the other, without a copy of them all."""
        for position in self.weight.detach().flatten(2).unbind(2):
            oriented = position if self.orientation is None else position * self.orientation.to(position)[:, None]
            yield signed_part(oriented, self.sign)

    def form(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Another form of them, made once for all images."""
        return CACHE.part(self.weight, self.sign, self.orientation, name, make)


def _equal(mine: Tensor | None, other: Tensor | None) -> bool:
    return mine is other or (mine is not None and other is not None and torch.equal(mine, other))


_ORDINARY: Any = WeakTensorKeyDictionary()  # weights that were found to need no scale, with their version and address


def weight_scale(weight: Tensor) -> float:
    """As `scale_for`; that weights are ordinary is kept, extreme ones are measured each time.

    Example:
        >>> weight_scale(torch.tensor([1e-40])) > 1e38
        True
    """
    mark = version_of(weight), weight.data_ptr()
    if _ORDINARY.get(weight) == mark:
        return 1.0
    scale = scale_for(weight)
    if scale == 1:
        _ORDINARY[weight] = mark
    return scale


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


_SIGNS: dict[tuple[Any, ...], tuple[Tensor, Signs]] = {}  # by the address of the constants, with their values


def signs_of(scale: Tensor, *, parameter: bool = False) -> Signs:
    """The signs of some constants; those of a parameter are kept, and used again if its values are the same.

    Example:
        >>> signs_of(torch.tensor([2.0, -3.0, 0.0])).polarity
        tensor([ 1., -1.,  0.])
    """
    key = None
    if parameter and is_concrete() and scale.numel() <= WIDEST_NORM:
        key = (scale.data_ptr(), scale.shape, scale.dtype, scale.device)
        found = _SIGNS.get(key)
        if found is not None and torch.equal(found[0], scale):
            return found[1]
    polarity = scale.sign()
    silent = polarity.abs() if bool((polarity == 0).any()) else None
    orientation = torch.where(polarity < 0, -1.0, 1.0).to(polarity).flatten()
    signs = Signs(polarity, bool((polarity == 1).all()), silent, orientation)
    if key is not None:
        if len(_SIGNS) >= MOST_NORMS:
            _SIGNS.clear()
        _SIGNS[key] = scale.clone(), signs
    return signs


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
        return _equal(self.rule.orientation, signs.orientation)


def scaled_neuron(neuron: Neuron, scale: Tensor | float, like: Tensor, *, parameter: bool = False) -> Neuron:
    """As `Neuron.scaled`; negative scales of a norm negate the rows of the weights, where that is possible."""
    with constants((scale, neuron.polarity)):
        constant = torch.as_tensor(scale, dtype=like.dtype, device=like.device).detach()
        signs = signs_of(constant, parameter=parameter)
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
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)  # noqa: SLF001 - what no_grad does, without its ten lines of Python a call
    try:
        return set_provenance(function(*args, **kwargs), known)
    finally:
        torch._C._set_grad_enabled(before)  # noqa: SLF001 - as above


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
