"""Where the positions of the image lie in an activation: rows and columns of a map, tokens of a sequence, windows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, gcd

from torch import Tensor

from excite.propagation.tokens import TokenGrid

NOWHERE = -(2**50)  # in a line: not a position of the image, as a class token; less than any sum of others
Line = tuple[int, ...]


@dataclass(frozen=True)
class Side:
    """One side of a map: where its positions lie in a tensor, their stride and the field of position 0, in pixels.

    The position of an element is the sum of the lines at its indices: one line from 0 up in a map [N, C, h, w], the
    same one with repetitions in tokens [N, h * w, C], two in windows [N * windows, tokens, C].
    """

    lines: tuple[tuple[int, Line], ...]  # dimensions of the tensor, in order, and what each of their indices adds
    stride: Fraction = Fraction(1)
    first: Fraction = Fraction(0)
    last: Fraction = Fraction(0)
    whole: bool = False  # all positions were mixed, as in attention beside a residual: the field is the whole image

    @classmethod
    def along(cls, dim: int, size: int) -> "Side":
        """The pixels along one dimension."""
        return cls(((dim, tuple(range(size))),))

    @property
    def dims(self) -> set[int]:
        """The dimensions in which the positions lie."""
        return {dim for dim, _ in self.lines}

    @property
    def outer(self) -> int:
        """The dimension in which they are furthest apart."""
        return max(self.lines, key=lambda item: max(item[1]))[0]

    @property
    def alone(self) -> int | None:
        """The one dimension in which they lie in order; None if there is no such dimension."""
        ((dim, line), *others) = self.lines
        return dim if not others and line == tuple(range(len(line))) else None

    @property
    def field(self) -> int | None:
        """The size of the receptive field; None: the whole image."""
        return None if self.whole else ceil(self.last - self.first) + 1

    def at(self, dim: int, size: int) -> "Side":
        """With this many positions, along a dimension of their own."""
        return replace(self, lines=Side.along(dim, size).lines)

    def moved(self, to: Callable[[int], int]) -> "Side":
        """In the dimensions of another tensor."""
        return replace(self, lines=tuple((to(dim), line) for dim, line in self.lines))

    def resized(self, dim: int, inside: int, outside: int) -> "Side":
        """With another number of positions, each of which depends on the whole image."""
        return replace(self.at(dim, outside), stride=self.stride * Fraction(inside, outside), whole=True)

    def slid(self, window: Fraction | int, step: Fraction | int = 1, before: Fraction | int = 0) -> "Side":
        """Behind windows that are ``step`` positions apart, the first one beginning ``before`` the map."""
        first = self.first - before * self.stride
        last = self.last + (window - 1 - before) * self.stride
        return replace(self, stride=self.stride * step, first=first, last=last)

    def mixed(self, dims: Iterable[int]) -> "Side | None":
        """Behind what mixes all indices of some dimensions; None where no position is left."""
        gone = set(dims)
        reach = sum(max(line) for dim, line in self.lines if dim in gone)
        left = {dim: line for dim, line in self.lines if dim not in gone}
        return replace(self, last=self.last + reach * self.stride).counted(left) if reach or gone & self.dims else self

    def counted(self, lines: Mapping[int, Line], start: int = 0) -> "Side | None":
        """With other lines, counted from 0 in steps of 1; ``start`` is the position of their sum 0. None: no lines."""
        least = {dim: min(_here(line)) for dim, line in lines.items()}
        start += sum(least.values())
        lines = {dim: _counted(line, least[dim], 1) for dim, line in lines.items()}
        lines = {dim: line for dim, line in lines.items() if any(line)}
        step = gcd(*(number for line in lines.values() for number in _here(line)))
        if not step:
            return None
        lines = {dim: _counted(line, 0, step) for dim, line in lines.items()}
        first, last = self.first + start * self.stride, self.last + start * self.stride
        return Side(tuple(sorted(lines.items())), self.stride * step, first, last, self.whole)

    def beside(self, dim: int, before: int, after: int) -> "Side":
        """With other tokens than the image's along a dimension; negative: without as many of those that are there."""

        def longer(line: Line) -> Line:
            line = (NOWHERE,) * before + line[max(-before, 0) : len(line) + min(after, 0)]
            return line + (NOWHERE,) * after

        return replace(self, lines=tuple((each, longer(line) if each == dim else line) for each, line in self.lines))

    def joined(self, other: "Side") -> "Side | None":
        """The union of two fields; where the strides differ, the larger field. None: no dimension in common."""
        one, two = self.mixed(self.dims - other.dims), other.mixed(other.dims - self.dims)
        if one is None or two is None:
            return None
        whole = one.whole or two.whole
        if one.lines != two.lines:  # of several positions each
            return replace(min(one, two, key=lambda side: side.stride), whole=True)
        if one.stride != two.stride:
            return replace(max(one, two, key=lambda side: side.last - side.first), whole=whole)
        return replace(one, first=min(one.first, two.first), last=max(one.last, two.last), whole=whole)


def _here(line: Line) -> list[int]:
    return [number for number in line if number != NOWHERE]


def _counted(line: Line, first: int, step: int) -> Line:
    return tuple(number if number == NOWHERE else (number - first) // step for number in line)


class View(tuple[Side, ...]):
    """Height and width; empty: the whole image, and which position is where is unknown."""

    __slots__ = ()

    def each(self, change: Callable[[Side, int], Side | None]) -> "View":
        """Both sides changed; of unknown positions where that cannot be."""
        sides = [change(side, k) for k, side in enumerate(self)]
        return type(self)(side for side in sides if side is not None) if None not in sides else type(self)()

    def mixed(self, dims: Iterable[int]) -> "View":
        """Behind what mixes all indices of some dimensions."""
        return self.each(lambda side, _: side.mixed(dims))

    def everywhere(self) -> "View":
        """Where they were, but each depending on the whole image."""
        return self.each(lambda side, _: replace(side, whole=True))

    @property
    def dims(self) -> set[int]:
        """The dimensions in which the positions lie."""
        return {dim for side in self for dim in side.dims}


class Pairs(View):
    """A number for each pair of positions: where the first ones of the pairs (the queries of an attention) lie."""

    __slots__ = ()


WHOLE = View()


def is_map(view: View | None, tensor: Tensor) -> bool:
    """Whether the last two dimensions are height and width."""
    found = [side.alone for side in view or ()]
    return type(view) is View and found == [tensor.dim() - 2, tensor.dim() - 1]


def grid_of(view: View | None, tensor: Tensor, images: int) -> TokenGrid | None:
    """Where the positions lie in a tensor [N, C, h, w], [N, h, w, C] or of tokens [N, T, C]; None: nowhere known."""
    rank = tensor.dim()
    if not view or isinstance(view, Pairs):
        return None
    places = tuple(dict.fromkeys(side.outer for side in view))
    rest = [dim for dim in range(rank) if dim not in places]
    if len(rest) != 2 or rest[0] in view.dims or tensor.shape[rest[0]] != images:
        return None
    view = view.mixed({rest[1]})
    grid = TokenGrid(0, 0, tuple(dim - rank for dim in places), images=rest[0] - rank, channels=rest[1] - rank)
    if len(places) == 2:
        height, width = (tensor.shape[dim] for dim in places)
        alone = [side.alone for side in view] == list(places)
        return replace(grid, height=height, width=width) if alone else None
    if len(view.dims) != 1:
        return None
    rows, columns = (side.lines[0][1] for side in view)
    height, width = max(rows) + 1, max(columns) + 1
    tokens = {place: token for token, place in enumerate(zip(rows, columns, strict=True)) if NOWHERE not in place}
    ordered = tuple(tokens.get((y, x), NOWHERE) for y in range(height) for x in range(width))
    here = len(_here(rows))
    complete = NOWHERE not in ordered and here == len(tokens) == height * width
    return replace(grid, height=height, width=width, tokens=ordered, count=len(rows)) if complete else None
