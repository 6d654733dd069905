"""Traces the forward and the top-down pass, from image and signal to the map, into one graph.

Both are plain torch code. They run once on fake tensors, which have shapes and no values, and every operation is
recorded. Nothing may depend on values meanwhile: `excite.propagation.fast` ensures that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, empty, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from excite.errors import ExciteError, MethodError, ModelError
from excite.export.lowering import LoweredInterpreter
from excite.export.simplify import factor_products, simplify
from excite.propagation.excitation_pass import ExcitationPass
from excite.propagation.fast import tracing
from excite.propagation.taps import main_output
from excite.propagation.tokens import TokenGrid
from excite.session import check_spatial

SYMBOLIC: dict[str, Any] = {"tracing_mode": "symbolic", "_allow_non_fake_inputs": True}  # for make_fx
DUALS = {"mwp": 0.0, "c-mwp": -1.0}  # the weight of the dual units in the signal
STEPS = (1, 32)  # any size, or multiples of the stride of most networks
BATCH = 3  # an example of a batch, unlike other numbers in a network
BATCHES = (2, 3, 5, 12)  # that a graph must serve
LARGER = ((0, 0), (0, 1), (1, 0), (2, 3), (3, 2), (5, 4), (11, 26), (64, 7), (301, 250))  # in steps


@dataclass(frozen=True)
class Sizes:
    """The image sizes that a graph serves."""

    height: int  # of the example that is traced
    width: int
    step: int | None = None  # both sides may be any multiple of this; None: only the example's own
    least: int = 1  # the smallest side
    batch: bool = True  # any number of images in a batch; else one

    def __str__(self) -> str:
        if self.step is None:
            return f"{self.height} x {self.width} only"
        return f"any height and width from {self.least}" + (f" in steps of {self.step}" if self.step > 1 else "")

    def fit(self, height: int, width: int) -> bool:
        """Whether the graph serves images of this size."""
        if self.step is None:
            return (height, width) == (self.height, self.width)
        return min(height, width) >= self.least and height % self.step == width % self.step == 0


class MapModule(nn.Module):
    """(image, signal) -> (map, output) of a network, a layer and a method, as an ``nn.Module``.

    ``grids`` are those of `excite.models.layers.layer_grids`, where the layer has tokens or its channels last.
    """

    def __init__(
        self, network: nn.Module, layer: str, method: str, grids: Mapping[str, TokenGrid] | None = None
    ) -> None:
        super().__init__()
        if method not in DUALS:
            raise MethodError(f"the method {method!r} cannot be exported: choose {' or '.join(DUALS)}")
        self.network, self.layer, self.method, self.grids = network, layer, method, grids or {}

    def forward(self, picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        """The map [N, h, w], summed over channels and signed where it is contrastive, and the output."""
        sweep = ExcitationPass(self.network, picture, [self.layer])
        sweep.grids = self.grids
        check_spatial(self.layer, sweep.activations[self.layer])
        arrived = sweep.down(signal, dual=DUALS[self.method])[self.layer]
        return arrived.sum(1), sweep.output

    def output(self, picture: Tensor) -> Tensor:
        """The output of the network alone."""
        with torch.no_grad():
            return main_output(self.network(picture))


@dataclass(frozen=True)
class TracedGraph:
    """A graph with the inputs ``picture`` and ``signal`` and the outputs ``map`` and ``output``."""

    graph: GraphModule  # functional operations on tensors, and the network's own weights
    sizes: Sizes  # of the images that it serves
    signal: tuple[int, ...]  # the shape of a signal for one image of the example's size


def trace_map(module: MapModule, sizes: Sizes) -> TracedGraph:
    """Trace a module for as many sizes as the network allows; ``sizes`` is an example, a step asks for others too."""
    steps = [] if sizes.step is None else [step for step in STEPS if not (sizes.height % step or sizes.width % step)]
    for step in steps:
        wanted = replace(sizes, step=step)
        if _serves(module, wanted) and (traced := _trace(module, wanted)) is not None:
            return traced
    traced = _trace(module, replace(sizes, step=None))
    if traced is None:
        raise ModelError("the network takes another course for another number of images: export it with --no-dynamic")
    return traced


def _serves(module: MapModule, sizes: Sizes) -> bool:
    """Whether the forward pass alone is the same for other sizes: a quick check before tracing."""
    symbolic = SymbolicSizes(sizes)
    try:
        _fake_output(module.network, symbolic)
    except ExciteError:
        raise
    except Exception:  # noqa: BLE001 - of any kind about symbolic sizes: a fixed size works, or fails again
        return False
    return symbolic.least() is not None


def _trace(module: MapModule, sizes: Sizes) -> TracedGraph | None:
    """The graph; None where it would not be valid for all those sizes."""
    symbolic = SymbolicSizes(sizes)
    with model_errors(), torch.backends.nnpack.flags(enabled=False):  # it depends on the size of the batch
        picture, output = _fake_output(module.network, symbolic)
        with symbolic.mode:
            signal = torch.empty(output.shape)
        with tracing():
            graph = make_fx(module, **SYMBOLIC)(picture, signal)
        if symbolic.least() is None:
            return None
        lowered = make_fx(torch.func.functionalize(LoweredInterpreter(graph).run), **SYMBOLIC)(picture, signal)
        graph = simplify(factor_products(simplify(lowered)))
        if (least := symbolic.least()) is None:
            return None
    example = module.output(torch.zeros(1, 3, sizes.height, sizes.width))
    return TracedGraph(graph, replace(sizes, least=least), tuple(example.shape[1:]))


def _fake_output(network: nn.Module, symbolic: SymbolicSizes) -> tuple[Tensor, Tensor]:
    """Fake images of symbolic sizes, and the fake output of the network."""
    with symbolic.mode, enable_python_dispatcher(), torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        picture = empty(symbolic.shape[0], 3, *symbolic.shape[1:])
        return picture, main_output(network(picture))


@contextmanager
def model_errors() -> Iterator[None]:
    """Convert torch's errors about a network that depends on values, or on sizes in an unsupported way."""
    try:
        yield
    except (ExciteError, OSError):
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        message = f"the network cannot be written down as one graph: {said} (--no-dynamic asks less of it)"
        raise ModelError(message) from error


class SymbolicSizes:
    """A batch and a size as symbols, and the guards on them that tracing added; a step makes the sides symbolic."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.mode = mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        step = sizes.step or 1
        self._example = (BATCH if sizes.batch else 1, sizes.height // step, sizes.width // step)
        sided = DimDynamic.STATIC if sizes.step is None else DimDynamic.DYNAMIC
        counted = DimDynamic.DYNAMIC if sizes.batch else DimDynamic.STATIC
        context: Any = StatelessSymbolicContext(dynamic_sizes=[counted, sided, sided])
        marked = mode.from_tensor(empty(self._example), symbolic_context=context)
        sides: list[Any] = [*marked.shape]
        self.shape = sides[0], sides[1] * step, sides[2] * step
        self._symbols = [None if isinstance(side, int) else side.node.expr for side in sides]

    def least(self) -> int | None:
        """The least side from which on all guards hold; None: only for the example, or not for every batch."""
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
        """Whether all guards hold for images of these sides, in batches of several sizes."""
        env: Any = self.mode.shape_env
        batches = cycle(BATCHES if self.sizes.batch else (1,))
        cases = [zip(self._symbols, (next(batches), *both), strict=True) for both in sides for _ in range(2)]
        known = [[(symbol, value) for symbol, value in case if symbol is not None] for case in cases]
        return all(bool(guard.expr.subs(case)) for guard in env.guards for case in known)
