"""excite's own best is the mean of two contrastive maps, and says so of itself."""

from dataclasses import replace

import pytest
import torch
from networks import Staged
from PIL import Image

import excite
from excite.experiments.base import open_session
from excite.methods import METHODS
from excite.methods.excitation import LARGER
from excite.models import Preprocess


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return excite.wrap(Staged(), labels=list("abcd"), layer="coarse", preprocess=Preprocess(28))


def seen(classifier, picture, method, size, **options):
    nearer = excite.wrap(classifier.module, labels=list("abcd"), layer="coarse", preprocess=Preprocess(size))
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
    methods = {METHODS["excite"]: ["fine"], METHODS["lrp"]: ["input"]}
    session = open_session(classifier, picture, list(methods), methods)
    assert list(session.excitation(1.0).readings) == ["fine", "input"]
    assert list(session.excitation(LARGER).readings) == ["fine"]


def test_one_forward_pass_for_each_scale_and_way(classifier, picture):
    runs, classifier = [], replace(classifier, verified=None, trial=False)
    classifier.module.register_forward_hook(lambda *_: runs.append(1))
    layers = {METHODS[name]: ["coarse"] for name in ("excite", "c-mwp", "mwp", "grad-cam", "guided")}
    session = open_session(classifier, picture, list(layers), layers)
    for method in layers:
        for unit in range(4):
            session.maps(method, [[{unit: 1.0}]])
    assert len(runs) == 4  # a dry run, excitation at two scales, and gradients


def test_an_empty_look_is_no_division_by_zero():
    dead = Staged()
    with torch.no_grad():
        dead.coarse[0].bias.fill_(-1e9)
    classifier = excite.wrap(dead, labels=list("abcd"), layer="coarse", preprocess=Preprocess(28))
    with pytest.warns(excite.errors.LostSignalWarning):
        (found,) = excite.attend(classifier, Image.new("RGB", (40, 40)), "b", method="excite")
    assert found.values.abs().sum() == 0
    assert found.point() is None
