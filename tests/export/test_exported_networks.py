"""Files of small networks of every kind beside the library: onnxruntime and torch.export must give its maps."""

from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

from excite.export.export import compare, quiet_torch
from excite.export.formats import open_onnx, open_pt2, program, write_onnx, write_pt2
from excite.export.trace import STEPS, MapModule, Sizes, _serves, trace_map
from excite.models import fully_convolutional

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

CLOSE = 1e-5  # of a map's sum


def conv(inputs, outputs, kernel=3, **options):
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


def head(channels, classes=4):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


class Residual(nn.Module):
    """A sum of signed terms, a concatenation, a strided shortcut: norms with scales of both signs."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 6, stride=2, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.main = nn.Sequential(conv(6, 8, stride=2), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), conv(8, 8))
        self.short = nn.Conv2d(6, 8, 1, stride=2, bias=False)
        self.left, self.right = conv(8, 3), nn.Sequential(conv(8, 8, groups=8), nn.Conv2d(8, 5, 1))
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Sequential(*head(8))

    def forward(self, pictures):
        features = self.stem(pictures)
        features = functional.relu(self.main(features) + self.short(features))
        joined = self.norm(torch.cat([self.left(features), self.right(features)], 1))
        return self.head(functional.relu_(joined))


def local_norms():
    """LRN, overlapping pooling that reaches over the end, and a large full connection."""
    return nn.Sequential(
        *(conv(3, 6, 5, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), nn.LocalResponseNorm(5)),
        *(conv(6, 6), nn.ReLU(), nn.AvgPool2d(3, 2, padding=1)),
        *(nn.Flatten(), nn.Linear(6 * 4, 9), nn.ReLU(), nn.Linear(9, 4)),
    )


def pooled():
    pool = nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False)
    return nn.Sequential(conv(3, 4), nn.ReLU(), pool, conv(4, 6, stride=3), nn.ReLU(), *head(6))


def smooth():
    """Activations that go below 0, and whatever the size of the image, a full connection of as many inputs."""
    pooling = [nn.AdaptiveAvgPool2d((3, 2)), nn.Flatten()]
    return nn.Sequential(conv(3, 4, stride=2), nn.SiLU(), conv(4, 6), nn.LeakyReLU(), *pooling, nn.Linear(6 * 6, 4))


class PaddedWhereOdd(nn.Sequential):
    """One more row and column where a side is odd: one graph serves only sides of one kind."""

    def forward(self, x):
        return super().forward(nn.functional.pad(x, (0, 1, 0, 1)) if x.shape[2] % 2 or x.shape[3] % 2 else x)


class Case(NamedTuple):
    make: object
    layer: str
    serves: str
    method: str = "c-mwp"
    side: int = 16


def plain():
    return nn.Sequential(conv(3, 4), nn.ReLU(), nn.MaxPool2d(2), conv(4, 6), nn.ReLU(), *head(6))


CASES = {
    "at the image": Case(plain, "input", "any height and width from 4"),  # contrastive, as those below
    "mwp": Case(plain, "1", "any height and width from 4", "mwp"),
    "residual": Case(Residual, "stem", "any height and width from 5"),
    "local norms": Case(local_norms, "1", "16 x 16 only"),  # its full connection wants one size
    "pooled": Case(pooled, "1", "17 x 17 only", side=17),
    "smooth": Case(smooth, "1", "any height and width from 3"),
}


@cache
def network(name):
    """With norms whose scales have both signs, and units that only their bias excites."""
    torch.manual_seed(0)
    net = CASES[name].make().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean, std=0.1)
        if isinstance(module, nn.Conv2d) and module.bias is not None:
            with torch.no_grad():
                module.weight[0] = -module.weight[0].abs()
                module.bias[0] = 1
    return net


@cache
def traced(name):
    case = CASES[name]
    with quiet_torch():
        return trace_map(MapModule(network(name), case.layer, case.method), Sizes(case.side, case.side, step=1))


FORMATS = {"onnx": (write_onnx, open_onnx), "pt2": (write_pt2, open_pt2)}
BOTH = ("residual", "pooled")  # one of all sizes and one of a single size; the others in one format
GRAPHS = ("mwp",)  # the operations are those of "at the image": no other file of them


def opened(name, kind, folder):
    """A network in a format, read again."""
    write, reopen = FORMATS[kind]
    path = folder / f"file.{kind}"
    with quiet_torch():
        with path.open("wb") as file:
            write(traced(name), {"fact": name}, file)
        return reopen(path)


def inputs(name, batch, more=0):
    case = CASES[name]
    generator = torch.Generator().manual_seed(batch + more)
    picture = torch.rand(batch, 3, case.side + more, case.side + 2 * more, generator=generator) - 0.3
    picture[0, :, 3:9, 3:9] = 0  # ties: the first of equals wins
    signal = torch.rand(batch, 4, generator=generator)
    return picture, signal / signal.sum(1, keepdim=True)


def check(run, name, batch, more=0):
    case, given = CASES[name], inputs(name, batch, more)
    with torch.no_grad():
        ours, output = MapModule(network(name), case.layer, case.method)(*given)
    theirs, answer = run(*given)
    assert theirs.isfinite().all()
    assert ours.abs().sum() > 0
    assert (theirs - ours).abs().max() <= CLOSE * ours.abs().sum((1, 2)).min()
    assert torch.allclose(answer, output, atol=1e-5)


def check_dead(run, name):
    """Where nothing excites anything every total is 0, and nothing may be divided by it: zeros, and no NaN."""
    picture, signal = inputs(name, 2)
    assert run(picture, signal * 0)[0].abs().sum() == 0
    for far in (-1e4, 1e4):
        assert run(torch.full_like(picture, far), signal)[0].isfinite().all()


@pytest.mark.parametrize("name", [name for name in CASES if name not in GRAPHS])
def test_a_file_gives_the_maps_of_the_library(name, tmp_path, monkeypatch):
    """All questions about a network in one test: its files take seconds to write, and are written once."""
    monkeypatch.setattr("excite.export.formats.program", cache(program))  # slow, and the same for both formats
    sizes = traced(name).sizes
    assert str(sizes) == CASES[name].serves
    for kind in FORMATS if name in BOTH else ("onnx",):
        run, facts = opened(name, kind, tmp_path)
        assert facts == {"fact": name}
        check_maps(run, name)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_gives_the_maps_of_the_library(name):
    assert str(traced(name).sizes) == CASES[name].serves
    check_maps(torch.no_grad()(traced(name).graph), name)


def check_maps(run, name):
    """Of one image, of many, of larger ones, and where there is nothing to share out."""
    for batch in (1, 17):
        check(run, name, batch)
    if (step := traced(name).sizes.step) is not None:
        check(run, name, 2, 3 * step)
    check_dead(run, name)


def test_a_head_that_slides_over_the_picture(tmp_path):
    """The output is a map, and so is the signal; the windows overlap. What is below the head is the matter above."""
    torch.manual_seed(0)
    net = nn.Sequential(conv(3, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 6))
    module = MapModule(fully_convolutional(net.eval(), 16), "1", "c-mwp")
    with quiet_torch():
        made = trace_map(module, Sizes(20, 24, batch=True))  # of one size, in a third of the time
        path = tmp_path / "map.onnx"
        with path.open("wb") as file:
            write_onnx(made, {}, file)
        run, _ = open_onnx(path)
    assert made.signal == (6, 3, 5)
    agreement = compare(run, module, [torch.rand(3, 20, 24)], batch=True)
    assert agreement.map <= CLOSE
    assert agreement.faintest > 0


def test_work_that_is_never_needed_is_left_out():
    """A ReLU network has one competition for each convolution, as where the values are known."""
    names = [str(node.target) for node in traced("mwp").graph.graph.nodes]
    assert names.count("aten.convolution.default") == 2 + 2  # the network's own; the upper one's total and transpose
    assert not any(name.endswith(("_.default", "_.Tensor")) for name in names)


def test_sides_in_steps_where_not_every_size_fits():
    module = MapModule(PaddedWhereOdd(conv(3, 4, stride=2), nn.ReLU(), *head(4)).eval(), "1", "mwp")
    assert {step: _serves(module, Sizes(32, 32, step=step)) for step in STEPS} == {1: False, 32: True}
