"""The positive and the negative parts of a network's weights, and their packed forms, kept for the next image.

They depend on the weights alone, and for layers with many weights and few places splitting them and bringing them in
order costs as much as using them. What is kept is checked each time: torch counts in-place changes of a parameter, and
for changes that it does not count (through ``.data`` or NumPy) about one number of each row is compared, each from
another column.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from excite.propagation.extreme import scaled_by
from excite.propagation.keeping import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["KEPT", "Part", "SignedWeights", "signed_part"]

MOST_BYTES = 256 * 2**20


@dataclass
class _Entry:
    weight: weakref.ref[Tensor]
    mark: tuple[int, int, torch.dtype]
    sample: Tensor
    orientation: Tensor | None
    parts: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # by sign and form

    @property
    def size(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.parts.values())


class SignedWeights:
    """Parts of weights by parameter, the least recently used forgotten first (the latest is kept in any case).

    Args:
        most_bytes: how much memory they may take.

    Example:
        >>> kept, weight = SignedWeights(), torch.nn.Parameter(torch.tensor([[1.0, -2.0]]))
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
        self,
        weight: Tensor,
        sign: int,
        orientation: Tensor | None,
        form: str,
        make: Callable[[], Tensor],
    ) -> Tensor:
        """What is positive (``sign`` 1) or negative (-1) of a parameter whose rows were turned by ``orientation``.

        ``make`` makes it, in the form that is kept under that name.
        """
        mark, sample = (version_of(weight), weight.data_ptr(), weight.dtype), _sample(weight)
        with self._lock:
            entry = self._entries.get(id(weight))
            if entry is None or not _is_same(entry, weight, mark, sample, orientation):
                entry = _Entry(weakref.ref(weight), mark, sample.clone(), orientation)
                self._entries[id(weight)] = entry
            self._entries.move_to_end(id(weight))
            if (sign, form) not in entry.parts:
                entry.parts[sign, form] = make()
                self._make_room()
            return entry.parts[sign, form]

    def parts(self) -> list[Tensor]:
        """All that is kept."""
        with self._lock:
            return [part for entry in self._entries.values() for part in entry.parts.values()]

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return sum(entry.size for entry in self._entries.values())

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._entries.clear()

    def _make_room(self) -> None:
        for key in [key for key, entry in self._entries.items() if entry.weight() is None]:
            del self._entries[key]
        while self.size > self.most_bytes and len(self._entries) > 1:
            self._entries.popitem(last=False)


class Part:
    """The positive or the negative weights of a competition, in whichever form a kernel wants them.

    Args:
        weight: all of them.
        sign: 1 or -1.
        orientation: of each row: -1 where it is turned round first.
        dtype: that is computed in.
        kept: whether the forms are kept for the next image.
        scale: that they are multiplied with: see `excite.propagation.extreme`.
    """

    def __init__(
        self,
        weight: Tensor,
        sign: int,
        orientation: Tensor | None,
        dtype: torch.dtype,
        *,
        kept: bool,
        scale: float = 1.0,
    ) -> None:
        self.weight, self.sign, self.orientation, self.dtype, self.kept = weight, sign, orientation, dtype, kept
        self.scale = scale

    @property
    def tensor(self) -> Tensor:
        """As they are; made anew each time, because they take as much memory as the network itself."""
        part = scaled_by(signed_part(self.weight, self.sign, self.orientation), self.scale)
        return part if part.dtype == self.dtype else part.to(self.dtype)

    def places(self) -> Iterator[Tensor]:
        """Those of each place of a kernel, [outputs, inputs], one after the other: that needs no copy of them all."""
        for place in self.weight.detach().flatten(2).unbind(2):
            yield signed_part(place, self.sign, self.orientation)

    def form(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Another form of them, made once for all images."""
        return KEPT.part(self.weight, self.sign, self.orientation, name, make)


def signed_part(weight: Tensor, sign: int, orientation: Tensor | None = None) -> Tensor:
    """The positive or the negative part of weights, with each row turned first.

    Example:
        >>> signed_part(torch.tensor([[1.0, -2.0], [1.0, -2.0]]), 1, torch.tensor([1.0, -1.0]))
        tensor([[1., 0.],
                [0., 2.]])
    """
    turned = weight.detach()
    if orientation is not None:
        turned = turned * orientation.to(turned.dtype).view(-1, *[1] * (turned.dim() - 1))
    return turned.clamp(min=0) if sign > 0 else turned.clamp(max=0)


def _sample(weight: Tensor) -> Tensor:
    """About one number of each row, each from another column: a view, so that looking costs next to nothing."""
    values = weight.detach().reshape(-1)
    return values[:: values.numel() // weight.shape[0] + 7]


def _is_same(
    entry: _Entry, weight: Tensor, mark: tuple[int, int, torch.dtype], sample: Tensor, orientation: Tensor | None
) -> bool:
    turned = entry.orientation is orientation or (
        entry.orientation is not None and orientation is not None and torch.equal(entry.orientation, orientation)
    )
    return entry.weight() is weight and entry.mark == mark and turned and torch.equal(entry.sample, sample)


KEPT = SignedWeights()  # of all networks of this process
