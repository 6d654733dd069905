"""The whole course of a map, from picture and signal to probabilities, written down as one graph.

The forward pass and the way down are plain torch code. They run once on tensors that have shapes and no values, and
every operation is noted. Nothing may then depend on values: `excite.propagation.fast` sees to that.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from excite.errors import ExciteError, MethodError, ModelError
from excite.exporting.factors import factored
from excite.exporting.lowering import Lowered
from excite.exporting.simplify import simplify
from excite.exporting.sizes import STEPS, Sizes, Unknowns
from excite.methods.view import check_spatial
from excite.propagation.excitation_pass import ExcitationPass
from excite.propagation.fast import tracing
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.fx import GraphModule

__all__ = ["DUALS", "Looking", "Written", "explained", "write_down"]

DUALS = {"mwp": 0.0, "c-mwp": -1.0}  # how much of the dual units is sent


class Looking(nn.Module):
    """A picture and a signal in, the map and the network's output out.

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
        check_spatial({self.layer: sweep.readings[self.layer].probe})
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
        sizes: which pictures it serves.
        signal: the shape of a signal for one picture of the example's size.
    """

    graph: GraphModule
    sizes: Sizes
    signal: tuple[int, ...]


def write_down(looking: Looking, sizes: Sizes, channels: int = 3) -> Written:
    """Write the graph down for as many sizes as the network allows.

    Args:
        looking: what to write down.
        sizes: an example, and with a step whether other sizes shall do too.
        channels: of the pictures.

    Raises:
        ModelError: the network decides by values or by the number of pictures which operations to run.

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
        raise ModelError("the network takes another course for another number of pictures: export it with --no-dynamic")
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
