"""Which sizes of batches and pictures a graph is written down for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from torch import Tensor, empty
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["STEPS", "Sizes", "Unknowns"]

STEPS = (1, 32)  # any size, or what the strides of most networks divide
BATCH = 3  # an example of a batch that is not one picture, nor any other number in a network
BATCHES = (2, 3, 5, 12)  # that a graph must serve


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
        step, (_, height, width) = self.sizes.step or 1, self._example
        batches = BATCHES if self.sizes.batch else (1,)
        if self.sizes.step is None:
            return 1 if self._holds(batches, [height], [width]) else None
        larger = {offset + longer for offset in (0, 1, 2, 3, 5) for longer in (0, height, 2 * width)}
        if not self._holds(batches, [height + more for more in larger], [width + more for more in larger]):
            return None
        least = min(height, width)
        while least > 1 and self._holds(batches, [least - 1, height], [least - 1, width]):
            least -= 1
        return least * step

    def _holds(self, batches: Any, heights: Any, widths: Any) -> bool:
        env: ShapeEnv = self.mode.shape_env  # type: ignore[assignment]  # it was made with one
        return all(
            bool(guard.expr.subs([(s, v) for s, v in zip(self._symbols, values, strict=True) if s is not None]))
            for guard in env.guards
            for values in product(batches, heights, widths)
        )
