"""The whole course of a map, from image and signal to probabilities, written down as one graph.

The forward pass and the way down are plain torch code. They run once on tensors that have shapes and no values, and
every operation is noted. Nothing may then depend on values: `excite.propagation.fast` sees to that.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, empty, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from excite.errors import ExciteError, MethodError, ModelError
from excite.export.factors import factored
from excite.export.lowering import Lowered
from excite.export.simplify import simplify
from excite.propagation.excitation_pass import ExcitationPass
from excite.propagation.fast import tracing
from excite.propagation.taps import main_output
from excite.session import check_spatial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.fx import GraphModule


# Which sizes of batches and images a graph is written down for.

STEPS = (1, 32)  # any size, or what the strides of most networks divide
BATCH = 3  # an example of a batch that is not one image, nor any other number in a network
BATCHES = (2, 3, 5, 12)  # that a graph must serve
LARGER = ((0, 0), (0, 1), (1, 0), (2, 3), (3, 2), (5, 4), (11, 26), (64, 7), (301, 250))  # in steps


@dataclass(frozen=True)
class Sizes:
    """Sizes of images.

    Attributes:
        height: of the example that the graph is written down from,
        width: and its width.
        step: both sides may be any multiple of this; None: only the example's own.
        least: and no smaller than this.
        batch: whether there may be any number of images in a batch; else there is one.

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
        """Whether the graph serves images of this size."""
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
        """A batch of images of these sizes."""
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
        """Whether all that was decided holds for images of these sides, in batches of any size."""
        env: Any = self.mode.shape_env
        batches = cycle(BATCHES if self.sizes.batch else (1,))
        cases = [(next(batches), *both) for both in sides for _ in range(2)]
        return all(bool(guard.expr.subs(self._named(case))) for guard in env.guards for case in cases)

    def _named(self, case: tuple[int, ...]) -> list[tuple[Any, int]]:
        return [(symbol, value) for symbol, value in zip(self._symbols, case, strict=True) if symbol is not None]


# The whole course of a map, from image and signal to probabilities, written down as one graph.
#
# The forward pass and the way down are plain torch code. They run once on tensors that have shapes and no values, and
# every operation is noted. Nothing may then depend on values: `excite.propagation.fast` sees to that.

DUALS = {"mwp": 0.0, "c-mwp": -1.0}  # how much of the dual units is sent


class Looking(nn.Module):
    """An image and a signal in, the map and the network's output out.

    Args:
        network: any that can be explained.
        layer: where the map is read.
        method: ``mwp`` or ``c-mwp``.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> [each.shape for each in Looking(net, "1", "mwp")(torch.ones(1, 3, 4, 4), torch.eye(3)[:1])]
        [torch.Size([1, 2, 2]), torch.Size([1, 3])]
    """

    def __init__(self, network: nn.Module, layer: str, method: str) -> None:
        super().__init__()
        if method not in DUALS:
            raise MethodError(f"the method {method!r} cannot be exported: choose {' or '.join(DUALS)}")
        self.network, self.layer, self.method = network, layer, method

    def forward(self, picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        """The map [N, h, w], summed over channels and signed where it is contrastive, and the output."""
        sweep = ExcitationPass(self.network, picture, [self.layer])
        check_spatial(self.layer, sweep.readings[self.layer].probe)
        arrived = sweep.down(signal, dual=DUALS[self.method])[self.layer]
        return arrived.sum(1), sweep.output

    def answer(self, picture: Tensor) -> Tensor:
        """The output alone."""
        with torch.no_grad():
            return main_output(self.network(picture))


@dataclass(frozen=True)
class Written:
    """A graph with the inputs ``picture`` and ``signal`` and the outputs ``map`` and ``output``.

    Attributes:
        graph: plain operations on tensors, none of them in place, and the network's own weights.
        sizes: which images it serves.
        signal: the shape of a signal for one image of the example's size.
    """

    graph: GraphModule
    sizes: Sizes
    signal: tuple[int, ...]


def write_down(looking: Looking, sizes: Sizes, channels: int = 3) -> Written:
    """Write the graph down for as many sizes as the network allows.

    Args:
        looking: what to write down.
        sizes: an example, and with a step whether other sizes shall do too.
        channels: of the images.

    Raises:
        ModelError: the network decides by values or by the number of images which operations to run.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> str(write_down(Looking(net, "1", "mwp"), Sizes(4, 4)).sizes)
        '4 x 4 only'
    """
    steps = [] if sizes.step is None else [step for step in STEPS if not (sizes.height % step or sizes.width % step)]
    for step in steps:
        wanted = replace(sizes, step=step)
        if _serves(looking, wanted, channels):
            written = _written(looking, wanted, channels)
            if written is not None:
                return written
    written = _written(looking, replace(sizes, step=None), channels)
    if written is None:
        raise ModelError("the network takes another course for another number of images: export it with --no-dynamic")
    return written


def _serves(looking: Looking, sizes: Sizes, channels: int) -> bool:
    """Whether the network itself takes the same course for other sizes: asked first, because it is quick."""
    unknowns = _unknowns(sizes)
    try:
        _answer(looking.network, unknowns, channels)
    except ExciteError:
        raise
    except Exception:  # noqa: BLE001 - whatever torch says of unknown sizes: a known size will do or say it again
        return False
    return unknowns.least() is not None


def _written(looking: Looking, sizes: Sizes, channels: int) -> Written | None:
    """The graph; None where it would not be right for all those sizes."""
    unknowns = _unknowns(sizes)
    with explained(), torch.backends.nnpack.flags(enabled=False):  # it would ask how large the batch is
        picture, output = _answer(looking.network, unknowns, channels)
        with unknowns.mode:
            signal = torch.empty(output.shape)
        with tracing():
            graph = _traced(looking, picture, signal)
        if unknowns.least() is None:
            return None
        graph = simplify(_traced(torch.func.functionalize(Lowered(graph).run), picture, signal))
        graph = simplify(factored(graph))
        least = unknowns.least()
        if least is None:
            return None
    example = looking.answer(torch.zeros(1, channels, sizes.height, sizes.width))
    return Written(graph, replace(sizes, least=least), tuple(example.shape[1:]))


def _answer(network: nn.Module, unknowns: Unknowns, channels: int) -> tuple[Tensor, Tensor]:
    """Pictures of unknown sizes, and what the network answers: shapes, without values."""
    picture = unknowns.picture(channels)
    with unknowns.mode, enable_python_dispatcher(), torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        return picture, main_output(network(picture))


def _unknowns(sizes: Sizes) -> Unknowns:
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    return Unknowns(sizes, mode)


def _traced(function: Callable[..., Any], picture: Tensor, signal: Tensor) -> GraphModule:
    return make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(picture, signal)


@contextmanager
def explained() -> Iterator[None]:
    """Errors of torch about a network whose course depends on values, or on sizes in a way it cannot follow."""
    try:
        yield
    except (ExciteError, OSError):  # those have words of their own
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise ModelError(
            f"the network cannot be written down as one graph: {said} (--no-dynamic asks less of it)"
        ) from error
