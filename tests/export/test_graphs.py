"""Graphs of maps: nothing is taken to be never negative that may be, products in another order, plain transposes."""

from collections import Counter, OrderedDict
from functools import cache, partial

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from excite.export.compiled import SplitGraph
from excite.export.export import quiet_torch
from excite.export.formats import write_onnx
from excite.export.lowering import adaptive_avg_pool, adaptive_avg_pool_backward, max_pool_backward, pair
from excite.export.simplify import factor_products
from excite.export.trace import MapModule, Sizes, trace_map

SIDE = 8
aten = torch.ops.aten


@cache
def graph_of(make, method="c-mwp", *, batch=False):
    """The map of a network by the library, and its graph."""
    module = MapModule(make().eval(), "stem", method)
    with quiet_torch():
        return module, trace_map(module, Sizes(SIDE, SIDE, step=None, batch=batch))


class Between(nn.Module):
    """A convolution whose children were made by somebody's own code, from a ReLU's output and a signed tensor."""

    def __init__(self, code):
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.main, self.beside = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.code = code
        self.above = nn.Conv2d(4, 5, 3, padding=1)
        self.head = nn.Linear(5, 3)

    def forward(self, pictures):
        features = self.stem(pictures)
        made = self.code(functional.relu(self.main(features)), self.beside(features))
        return self.head(functional.relu(self.above(made)).mean((2, 3)))


def written(rectified, part, values):
    """The tensor, after some of it was overwritten."""
    part.copy_(values)
    return rectified


SIGNED = {
    "in place": lambda rectified, _: rectified.sub_(0.3),
    "through a view": lambda rectified, _: written(rectified, rectified[:, 1:3], rectified[:, 1:3] - 0.3),
    "through a flat view": lambda rectified, signed: written(rectified, rectified.view(-1)[:99], signed.view(-1)[:99]),
    "a part set": lambda rectified, signed: written(rectified, rectified[:, 0], signed[:, 0]),
    "masked": lambda rectified, _: rectified.masked_fill(rectified > 0.5, -1.0),
    "a sum with a signed tensor": lambda rectified, signed: rectified + signed,
    "a product with a signed tensor": lambda rectified, signed: rectified * signed,
    "a quotient": lambda rectified, signed: rectified / (signed + 5),
    "a negative multiple": lambda rectified, _: rectified * -1.5,
    "a negative constant more": lambda rectified, _: rectified + -0.3,
    "negative padding": lambda rectified, _: functional.pad(rectified[:, :, 1:-1, 1:-1], (1, 1, 1, 1), value=-1.0),
    "joined with a signed tensor": lambda rectified, signed: torch.cat([rectified[:, :2], signed[:, :2]], 1),
    "a lower clamp": lambda _, signed: signed.clamp(-0.2, 1),
    "clamped above": lambda _, signed: signed.clamp(max=1),
    "leaky": lambda _, signed: functional.leaky_relu(signed),
    "an odd power": lambda _, signed: signed**3,
    "the larger of two signed ones": lambda rectified, signed: torch.maximum(signed, -rectified - 0.1),
}

ABOVE = {
    "as it is": lambda rectified, _: rectified,
    "pooled": lambda rectified, _: functional.max_pool2d(rectified, 3, 1, 1),
    "averaged": lambda rectified, _: functional.avg_pool2d(rectified, 3, 1, 1),
    "padded": lambda rectified, _: functional.pad(rectified[:, :, 1:-1, 1:-1], (1, 1, 1, 1)),
    "joined": lambda rectified, signed: torch.cat([rectified[:, :2], signed[:, :2].sigmoid()], 1),
    "ReLU6": lambda _, signed: functional.relu6(signed),
    "dropped out": lambda rectified, _: functional.dropout(rectified, training=False),
    "gated": lambda rectified, signed: rectified * signed.sigmoid(),
    "local norm": lambda rectified, _: functional.local_response_norm(rectified, 3),
    "reshaped": lambda rectified, _: rectified.flatten(2).view(rectified.shape).flip(3),
}


def check(module, graph):
    torch.manual_seed(2)
    for k in range(3):
        picture, signal = torch.randn(1, 3, SIDE, SIDE), torch.eye(3)[k][None]
        with torch.no_grad():
            (ours, output), (theirs, answer) = module(picture, signal), graph(picture, signal)
        assert ours.abs().sum() > 1e-3
        assert (theirs - ours).abs().max() <= 1e-5 * ours.abs().sum()
        assert torch.allclose(answer, output, atol=1e-6)


def upper_convolutions(graph):
    """How often the upper convolution runs: for the network's own answer, and for each total that is shared."""
    convolutions = (node for node in graph.graph.nodes if str(node.target) == "aten.convolution.default")
    return sum(list(node.meta["val"].shape) == [1, 5, SIDE, SIDE] for node in convolutions)


@pytest.mark.parametrize("name", [*SIGNED, *ABOVE])
def test_what_may_be_negative_competes_on_both_sides_and_what_cannot_once(name):
    module, traced = graph_of(partial(Between, (SIGNED | ABOVE)[name]))
    graph = traced.graph
    check(module, graph)
    assert upper_convolutions(graph) == 1 + (2 if name in SIGNED else 1)


class Shortcut(nn.Module):
    """A sum of a signed branch and a shortcut with a stride, before a ReLU: what is sent down was pushed up."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.main = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6))
        self.short = nn.Sequential(nn.Conv2d(4, 6, 1, stride=2, bias=False), nn.BatchNorm2d(6))
        self.head = nn.Linear(6, 3)

    def forward(self, pictures):
        features = functional.relu(self.stem(pictures))
        return self.head(functional.relu(self.main(features) + self.short(features)).mean((2, 3)))


def test_nothing_goes_down_by_the_port_of_units_that_cannot_have_been_pushed_down():
    module, traced = graph_of(Shortcut, "mwp")
    graph = traced.graph
    check(module, graph)
    names = [str(node.target) for node in graph.graph.nodes]
    assert names.count("aten.convolution.default") == 3 + 2 * 2  # its own; a total and a way back for two
    assert "aten.lt.Scalar" not in names
    assert not any("scatter" in name for name in names)


class Branches(nn.Module):
    """Kernels of several sizes and a pool side by side, twice, with a pool that takes steps between."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(6, 4, side, padding=side // 2) for side in (1, 3, 1, 1))
        self.second = nn.ModuleList(nn.Conv2d(16, 4, side, padding=side // 2) for side in (1, 3, 1, 1))
        self.head = nn.Linear(16, 3)

    def forward(self, pictures):
        there = functional.relu(self.stem(pictures))
        for step, branches in ((2, self.first), (1, self.second)):
            seen = [there, there, functional.max_pool2d(there, 3, 1, 1), there]
            there = torch.cat([functional.relu(each(x)) for each, x in zip(branches, seen, strict=True)], 1)
            there = functional.max_pool2d(there, 3, step, 1)
        return self.head(there.mean((2, 3)))


def connections():
    """Full connections to a map, which must be made flat: for as many images as there are."""
    torch.manual_seed(2)
    net = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(36, 16), nn.ReLU())
    return nn.Sequential(OrderedDict(stem=nn.Conv2d(3, 4, 3, padding=1), rest=net, head=nn.Linear(16, 3)))


def signals(pictures, count=11):
    return functional.one_hot(torch.arange(count)[:, None].expand(count, pictures) % 3, 3).float()


@pytest.fixture(scope="module", params=[(connections,), (Branches, "mwp"), (Shortcut,)])
def traced(request, tmp_path_factory):
    """A network, its maps by the library, and its graph in a file."""
    module, graph = graph_of(*request.param, batch=True)
    path = tmp_path_factory.mktemp("graph") / "map.onnx"
    with quiet_torch(), path.open("wb") as file:
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
    graph = graph_of(Branches, "mwp", batch=True)[1].graph.graph
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


@pytest.mark.parametrize("sides", [(14, 14), (5, 9), (3, 2), (1, 1)])
@pytest.mark.parametrize("places", [(7, 7), (3, 4), (1, 1)])
def test_adaptive_means(sides, places):
    """Also where units are means of overlapping children, and where there are more units than children."""
    child = torch.randn(2, 3, *sides, dtype=torch.float64)
    signal = torch.randn(2, 3, *places, dtype=torch.float64)
    wanted = aten._adaptive_avg_pool2d_backward(signal, child)
    torch.testing.assert_close(adaptive_avg_pool_backward(signal, child), wanted)
    torch.testing.assert_close(adaptive_avg_pool(child, places), aten._adaptive_avg_pool2d(child, places))


WINDOWS = [(2, 2, 0, 1), (3, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), ((3, 2), (2, 1), (1, 0), 1), ((5, 3), 1, (2, 1), 1),
           (3, 1, 1, (1, 2)), ((1, 3), 1, (0, 1), 1), ((3, 1), (2, 1), (1, 0), 1), (1, 2, 0, 1)]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("sides", [(7, 10), (9, 9)])
def test_back_through_max_pooling(window, ceil, sides):
    """Also where several children are the largest: the first one wins, row by row, as in torch."""
    torch.manual_seed(0)
    child = torch.randint(-3, 4, (2, 3, *sides)).float().relu()
    options = [pair(each) for each in window]
    largest, chosen = aten.max_pool2d_with_indices(child, *options, ceil)
    signal = torch.rand_like(largest)
    wanted = aten.max_pool2d_with_indices_backward(signal, child, *options, ceil, chosen)
    found = max_pool_backward(signal, child, *options, ceil, torch.full_like(chosen, -1))  # torch's choice is not used
    torch.testing.assert_close(found, wanted)
