"""Products and sums of a graph in another order: fewer of them for each signal, and the same maps."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from excite.export.compiled import SplitGraph
from excite.export.export import quiet_torch
from excite.export.formats import write_onnx
from excite.export.simplify import factor_products
from excite.export.trace import MapModule, Sizes, trace_map

SIDE = 12
aten = torch.ops.aten


class Branches(nn.Module):
    """Kernels of several sizes and a pool side by side, twice, with a pool that takes steps between."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(6, 4, side, padding=side // 2) for side in (1, 3, 1, 1))
        self.second = nn.ModuleList(nn.Conv2d(16, 4, side, padding=side // 2) for side in (1, 3, 1, 1))
        self.head = nn.Linear(16, 20)

    def forward(self, pictures):
        there = functional.relu(self.stem(pictures))
        for step, branches in ((2, self.first), (1, self.second)):
            seen = [there, there, functional.max_pool2d(there, 3, 1, 1), there]
            there = torch.cat([functional.relu(each(x)) for each, x in zip(branches, seen, strict=True)], 1)
            there = functional.max_pool2d(there, 3, step, 1)
        return self.head(there.mean((2, 3)))


class Residual(nn.Module):
    """A block beside which its input goes on, and which a part of it multiplies."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.stem, self.inner = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.gate = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
        self.outer, self.head = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.Linear(8, 20)

    def forward(self, pictures):
        there = functional.relu(self.stem(pictures))
        gate = self.gate(there.mean((2, 3), keepdim=True)).sigmoid()
        there = functional.relu(there + self.norm(self.inner(there)) * gate)
        return self.head(functional.relu(self.outer(there)).mean((2, 3)))


class Connections(nn.Module):
    """Full connections to a map, which must be made flat: for as many images as there are."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.stem, self.hidden = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 9, 16)
        self.head = nn.Linear(16, 20)

    def forward(self, pictures):
        there = functional.adaptive_avg_pool2d(functional.max_pool2d(functional.relu(self.stem(pictures)), 2), 3)
        return self.head(functional.relu(self.hidden(torch.flatten(there, 1))))


def signals(pictures, count=11):
    return functional.one_hot(torch.arange(count)[:, None].expand(count, pictures), 20).float()


@pytest.fixture(scope="module", params=[Connections, Branches, Residual])
def traced(request, tmp_path_factory):
    """A network, its maps by the library, and its graph in a file."""
    module = MapModule(request.param().eval(), "stem", "c-mwp")
    with quiet_torch():
        graph = trace_map(module, Sizes(SIDE, SIDE, step=None, batch=True))
        path = tmp_path_factory.mktemp("graph") / "map.onnx"
        with path.open("wb") as file:
            write_onnx(graph, {}, file)
    return module, path


@pytest.mark.parametrize("pictures", [1, 2])
@pytest.mark.parametrize("little", [0, 1000])
def test_signals_go_down_together_or_one_by_one(traced, pictures, little, monkeypatch):
    module, path = traced
    monkeypatch.setattr("excite.export.compiled.LITTLE", little)
    halves, x = SplitGraph(path, threads=1), torch.randn(pictures, 3, SIDE, SIDE)
    output, seen = halves.look(x)
    torch.testing.assert_close(output, module.output(x), atol=1e-5, rtol=1e-5)
    runs, down = [], halves._down_once
    monkeypatch.setattr(halves, "_down_once", lambda *given: runs.append(len(given[1])) or down(*given))
    found = halves.down(seen, signals(pictures))
    scatters = bool(halves._stretched)
    together = pictures == 1 and (little or not scatters)
    assert runs == ([8, 3] if together else [pictures] * 11)
    wanted = torch.stack([module(x, signal)[0] for signal in signals(pictures)])
    torch.testing.assert_close(found, wanted, atol=1e-5 * float(wanted.abs().sum((2, 3)).max()), rtol=0)


def test_each_signal_is_multiplied_once_for_each_kernel():
    module = MapModule(Branches().eval(), "stem", "mwp")
    with quiet_torch():
        graph = trace_map(module, Sizes(SIDE, SIDE, step=None, batch=True)).graph.graph
    signal = next(node for node in graph.nodes if node.op == "placeholder" and node.target.endswith("1_1"))
    dependent, found = {signal}, Counter()
    for node in graph.nodes:
        if not dependent.isdisjoint(node.all_input_nodes) and node.target is not aten.sym_size.int:
            dependent.add(node)
            found[node.target] += 1
    # The head and its mean, each of eight kernels and four pools, and the last shares.
    assert found[aten.mul.Tensor] <= 15
    assert found[aten.convolution.default] == 8
    assert found[aten.scatter_add.default] == 4


def test_only_what_is_alike_is_reordered():
    """Numbers, factors with more places than the signal, and products of two signals stay as they are."""
    x, signal = torch.randn(2, 3), torch.randn(1, 3)

    def course(x, signal):
        wide = signal * x.exp()  # one signal for each row
        return (wide * x.relu() + signal * signal * 2.0 + (signal * x[:1] + signal * x[:1] * 3.0)).sum(0)

    graph = make_fx(course, tracing_mode="fake")(x, signal)
    wanted = graph(x, signal)
    torch.testing.assert_close(factor_products(graph)(x, signal), wanted)
