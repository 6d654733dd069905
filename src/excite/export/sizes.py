"""Which sizes of batches and pictures a graph is written down for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from torch import Tensor, empty
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["STEPS", "Sizes", "Unknowns"]

STEPS = (1, 32)  # any size, or what the strides of most networks divide
BATCH = 3  # an example of a batch that is not one picture, nor any other number in a network
BATCHES = (2, 3, 5, 12)  # that a graph must serve
LARGER = ((0, 0), (0, 1), (1, 0), (2, 3), (3, 2), (5, 4), (11, 26), (64, 7), (301, 250))  # in steps


@dataclass(frozen=True)
class Sizes:
    """Sizes of pictures.

    Attributes:
        height: of the example that the graph is written down from,
        width: and its width.
        step: both sides may be any multiple of this; None: only the example's own.
        least: and no smaller than this.
        batch: whether there may be any number of pictures in a batch; else there is one.

    Example:
        >>> str(Sizes(224, 224, step=32, least=64))
        'any height and width from 64 in steps of 32'
    """

    height: int
    width: int
    step: int | None = None
    least: int = 1
    batch: bool = True

    def __str__(self) -> str:
        if self.step is None:
            return f"{self.height} x {self.width} only"
        return f"any height and width from {self.least}" + (f" in steps of {self.step}" if self.step > 1 else "")

    def fit(self, height: int, width: int) -> bool:
        """Whether the graph serves pictures of this size."""
        if self.step is None:
            return (height, width) == (self.height, self.width)
        return min(height, width) >= self.least and height % self.step == width % self.step == 0


class Unknowns:
    """A batch and a size that are not known, and what a network decided by them nevertheless.

    Args:
        sizes: which of them are unknown; a step says of what they are multiples.
        mode: makes tensors that have a shape and no values.
    """

    def __init__(self, sizes: Sizes, mode: FakeTensorMode) -> None:
        self.sizes = sizes
        self.mode = mode
        step = sizes.step or 1
        self._example = (BATCH if sizes.batch else 1, sizes.height // step, sizes.width // step)
        kinds = [sizes.batch, sizes.step is not None, sizes.step is not None]
        context: Any = StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.DYNAMIC if kind else DimDynamic.STATIC for kind in kinds]
        )
        marked = mode.from_tensor(empty(self._example), symbolic_context=context)
        self.batch, height, width = marked.shape
        self.height, self.width = height * step, width * step
        sides: list[Any] = [self.batch, height, width]
        self._symbols = [None if isinstance(side, int) else side.node.expr for side in sides]

    def picture(self, channels: int) -> Tensor:
        """A batch of pictures of these sizes."""
        with self.mode:
            return empty(self.batch, channels, self.height, self.width)

    def least(self) -> int | None:
        """From which size on all that was decided is right; None: only for the example, or not for every batch."""
        _, height, width = self._example
        if self.sizes.step is None:
            return 1 if self._hold([(height, width)]) else None
        if not self._hold([(height + more, width + other) for more, other in LARGER]):
            return None
        least = min(height, width)
        while least > 1 and self._hold([(least - 1, width), (height, least - 1)]):
            least -= 1
        return least * self.sizes.step

    def _hold(self, sides: Sequence[tuple[int, int]]) -> bool:
        """Whether all that was decided holds for pictures of these sides, in batches of any size."""
        env: Any = self.mode.shape_env
        batches = cycle(BATCHES if self.sizes.batch else (1,))
        cases = [(next(batches), *both) for both in sides for _ in range(2)]
        return all(bool(guard.expr.subs(self._named(case))) for guard in env.guards for case in cases)

    def _named(self, case: tuple[int, ...]) -> list[tuple[Any, int]]:
        return [(symbol, value) for symbol, value in zip(self._symbols, case, strict=True) if symbol is not None]
