"""A graph as a program of torch.export: with names for its inputs, and the sizes that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from excite.export.trace import Written

__all__ = ["INPUTS", "OUTPUTS", "program"]

INPUTS, OUTPUTS = ("picture", "signal"), ("map", "output")
BATCH = 3


class Graph(nn.Module):
    """The graph under the names that users see."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__()
        self.course = graph  # not "graph": torch gives that name another meaning

    def forward(self, picture: Tensor, signal: Tensor) -> dict[str, Tensor]:
        """The map and the output."""
        return dict(zip(OUTPUTS, self.course(picture, signal), strict=True))


def program(written: Written) -> ExportedProgram:
    """The graph as torch.export writes and runs it."""
    sizes = written.sizes
    batch = BATCH if sizes.batch else 1
    picture = torch.zeros(batch, 3, sizes.height, sizes.width)
    signal = torch.zeros(batch, *written.signal)
    shapes: dict[str, dict[int, Any]] = {"picture": {}, "signal": {}}
    if sizes.batch:
        shapes["picture"][0] = shapes["signal"][0] = Dim.DYNAMIC
    if sizes.step is not None:
        for dim, name in ((2, "height"), (3, "width")):
            least = max(1, sizes.least // sizes.step)
            # With a name of its own, torch would want each comparison of sizes proven, and some it cannot prove.
            shapes["picture"][dim] = sizes.step * Dim(name, min=least) if sizes.step > 1 else Dim.DYNAMIC(min=least)
        for dim in range(2, signal.dim()):
            shapes["signal"][dim] = Dim.AUTO
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        return torch.export.export(Graph(written.graph), (picture, signal), dynamic_shapes=shapes, strict=False)
