"""What a written graph takes to be never negative: less work where it is so, the library's maps where it is not."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from excite.export.export import quiet_torch
from excite.export.trace import MapModule, Sizes, trace_map

SIDE = 8


class Between(nn.Module):
    """A convolution whose children were made by somebody's own code, from a ReLU's output and a signed tensor."""

    def __init__(self, code):
        super().__init__()
        torch.manual_seed(1)
        self.base = nn.Conv2d(3, 4, 3, padding=1)
        self.stem, self.beside = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.code = code
        self.above = nn.Conv2d(4, 5, 3, padding=1)
        self.head = nn.Linear(5, 3)

    def forward(self, pictures):
        features = self.base(pictures)
        made = self.code(functional.relu(self.stem(features)), self.beside(features))
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


def graph_of(code):
    module = MapModule(Between(code).eval(), "base", "c-mwp")
    with quiet_torch():
        return module, trace_map(module, Sizes(SIDE, SIDE, batch=False)).graph


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
    module, graph = graph_of((SIGNED | ABOVE)[name])
    check(module, graph)
    assert upper_convolutions(graph) == 1 + (2 if name in SIGNED else 1)


class Shortcut(nn.Module):
    """A sum of a signed branch and a shortcut with a stride, before a ReLU: what is sent down was pushed up."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Conv2d(3, 4, 3, padding=1)
        self.main = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6))
        self.short = nn.Sequential(nn.Conv2d(4, 6, 1, stride=2, bias=False), nn.BatchNorm2d(6))
        self.head = nn.Linear(6, 3)

    def forward(self, pictures):
        features = functional.relu(self.base(pictures))
        return self.head(functional.relu(self.main(features) + self.short(features)).mean((2, 3)))


def test_nothing_goes_down_by_the_port_of_units_that_cannot_have_been_pushed_down():
    module = MapModule(Shortcut().eval(), "base", "mwp")
    with quiet_torch():
        graph = trace_map(module, Sizes(SIDE, SIDE, batch=False)).graph
    check(module, graph)
    names = [str(node.target) for node in graph.graph.nodes]
    assert names.count("aten.convolution.default") == 3 + 2 * 2  # its own; a total and a way back for two
    assert "aten.lt.Scalar" not in names
    assert not any("scatter" in name for name in names)
