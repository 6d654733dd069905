"""What a place of a map sees of the picture: see `excite.models.receptive`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

from excite.propagation.provenance import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["WHOLE", "Seeing", "Side", "View", "set_view", "view_of"]

_ATTRIBUTE = "_excite_view"


@dataclass(frozen=True)
class Side:
    """One side of a map, in pixels of the picture.

    Attributes:
        dim: the dimension of the tensor that it is.
        stride: from one place to the next.
        first: the first pixel that place 0 sees,
        last: and the last one.
    """

    dim: int
    stride: Fraction = Fraction(1)
    first: Fraction = Fraction(0)
    last: Fraction = Fraction(0)

    @property
    def field(self) -> int:
        """How many pixels one place sees."""
        return ceil(self.last - self.first) + 1

    def slid(self, window: Fraction | int, step: Fraction | int = 1, before: Fraction | int = 0) -> Side:
        """Seen through windows that are ``step`` places apart, the first one beginning ``before`` the map."""
        first = self.first - before * self.stride
        last = self.last + (window - 1 - before) * self.stride
        return replace(self, stride=self.stride * step, first=first, last=last)

    def joined(self, other: Side) -> Side:
        """What sees both: where strides differ, nothing says how the places lie together, so the larger counts."""
        if self.stride != other.stride:
            return max(self, other, key=lambda side: side.last - side.first)
        return replace(self, first=min(self.first, other.first), last=max(self.last, other.last))


View = tuple[Side, Side] | tuple[()]  # height and width
WHOLE: View = ()  # sees the whole picture


@dataclass(frozen=True)
class Seeing:
    """A call that reads at least one activation: its arguments, and one of its answers."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Tensor
    position: int = 0

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or by its name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    @property
    def subject(self) -> Tensor:
        """What the operation acts on."""
        subject: Tensor = self.argument(0, "input")
        return subject

    def sides(self) -> View:
        """The subject's own sides."""
        return view_of(self.subject) or WHOLE

    def joined(self) -> View:
        """All that the inputs see, for an operation that works place by place."""
        views = [(tensor, view_of(tensor)) for tensor in tensors_in((self.args, self.kwargs))]
        wholes = [tensor for tensor, view in views if view == WHOLE]
        joined = WHOLE
        for tensor, view in views:
            if view:
                aligned = _aligned(view, tensor, self.answer)
                if not aligned:
                    return WHOLE
                joined = _joined(joined, aligned) if joined else aligned
        return WHOLE if any(not _is_gate(tensor, joined, self.answer) for tensor in wholes) else joined


def view_of(tensor: Tensor) -> View | None:
    """What an activation sees; None where it depends on no picture."""
    return getattr(tensor, _ATTRIBUTE, None)


def set_view(tensor: Tensor, view: View) -> None:
    """Say what an activation sees."""
    setattr(tensor, _ATTRIBUTE, view)


def _joined(one: tuple[Side, Side], other: tuple[Side, Side]) -> tuple[Side, Side]:
    return one[0].joined(other[0]), one[1].joined(other[1])


def _aligned(view: View, tensor: Tensor, answer: Tensor) -> View:
    """The same sides in the answer of an element-wise operation, whose dimensions are counted from the last."""
    moved = tuple(replace(side, dim=side.dim + answer.dim() - tensor.dim()) for side in view)
    fits = all(
        0 < new.dim < answer.dim() and answer.shape[new.dim] == tensor.shape[old.dim]
        for new, old in zip(moved, view, strict=True)
    )
    return moved if fits else WHOLE  # type: ignore[return-value]


def _is_gate(tensor: Tensor, sides: View, answer: Tensor) -> bool:
    """Whether it is one number for all places of a map."""
    dims = [side.dim - answer.dim() + tensor.dim() for side in sides]
    return all(dim < 0 or tensor.shape[dim] == 1 or tensor.stride(dim) == 0 for dim in dims)  # 0: it was expanded
