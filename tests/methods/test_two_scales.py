"""excite's own best is the mean of two contrastive maps, and says so of itself."""

from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import nn

import excite
from excite.experiments.base import open_session
from excite.methods import METHODS
from excite.methods.excitation import LARGER
from excite.models import Preprocess


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()
        )
        self.output = nn.Linear(8, 4)

    def forward(self, pictures):
        return self.output(self.body(pictures).mean((2, 3)))


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return excite.wrap(Network(), labels=list("abcd"), layer="body", preprocess=Preprocess(28))


@pytest.fixture
def picture():
    values = torch.randint(0, 256, (60, 45, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Image.fromarray(values.numpy())


def seen(classifier, picture, method, size, **options):
    nearer = excite.wrap(classifier.module, labels=list("abcd"), layer="body", preprocess=Preprocess(size))
    return excite.attend(nearer, picture, "b", method=method, **options)[0]


def test_the_mean_of_both_looks(classifier, picture):
    (both,) = excite.attend(classifier, picture, "b", method="excite")
    wide, near = seen(classifier, picture, "c-mwp", 28), seen(classifier, picture, "c-mwp", 52)
    assert both.values.shape == near.values.shape != wide.values.shape
    assert both.mass == pytest.approx((wide.mass + near.mass) / 2, rel=1e-5)
    rest = 2 * both.values - near.values
    assert rest.sum() == pytest.approx(wide.mass, rel=1e-5)
    assert rest.min() > -1e-7
    stretched = wide.upsample(near.values.shape[::-1]).clamp(min=0)
    assert torch.allclose(rest / rest.sum(), stretched / stretched.sum(), atol=1e-6)


def test_against_another_concept_there_is_no_dual(classifier, picture):
    (both,) = excite.attend(classifier, picture, "b", method="excite", against="c")
    wide, near = (seen(classifier, picture, "mwp", size, against="c") for size in (28, 52))
    assert both.mass == pytest.approx((wide.mass + near.mass) / 2, rel=1e-5)


def test_the_nearer_look_keeps_nothing_for_methods_that_do_not_ask_for_it(classifier, picture):
    methods = {METHODS["excite"]: ["body.1"], METHODS["lrp"]: ["input"]}
    session = open_session(classifier, picture, list(methods), methods)
    assert list(session.excitation(1.0).readings) == ["body.1", "input"]
    assert list(session.excitation(LARGER).readings) == ["body.1"]


def test_one_forward_pass_for_each_scale_and_way(classifier, picture):
    runs, classifier = [], replace(classifier, verified=None)
    classifier.module.register_forward_hook(lambda *_: runs.append(1))
    layers = {METHODS[name]: ["body"] for name in ("excite", "c-mwp", "mwp", "grad-cam", "guided")}
    session = open_session(classifier, picture, list(layers), layers)
    for method in layers:
        for unit in range(4):
            session.maps(method, [[{unit: 1.0}]])
    assert len(runs) == 3  # excitation at two scales, and gradients


def test_an_empty_look_is_no_division_by_zero():
    dead = Network()
    with torch.no_grad():
        dead.body[2].bias.fill_(-1e9)
    classifier = excite.wrap(dead, labels=list("abcd"), layer="body", preprocess=Preprocess(28))
    with pytest.warns(excite.errors.LostSignalWarning):
        (found,) = excite.attend(classifier, Image.new("RGB", (40, 40)), "b", method="excite")
    assert found.values.abs().sum() == 0
    assert found.point() is None
