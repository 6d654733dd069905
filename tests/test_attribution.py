"""Tensors in, tensors out: as captum, pytorch-grad-cam and Quantus call explainers, inside their own metrics."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from method_names import FOR_ANY_NETWORK
from torch import nn

import excite
from excite.errors import ExciteError, LayerError, SignalError


@pytest.fixture
def net():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()


@pytest.fixture
def images():
    return torch.rand(3, 3, 16, 12, generator=torch.Generator().manual_seed(1))


TARGETS = [2, [2, 2, 2], torch.tensor(2), torch.tensor([2, 2, 2]), np.array([2, 2, 2]), {2: 1.0}, [{2: 1.0}] * 3]


@pytest.mark.parametrize("target", [*TARGETS, [SimpleNamespace(category=2)] * 3], ids=repr)
def test_every_form_of_target(net, images, target):
    expected = excite.mwp(net, images, 2, layer="1", contrastive=True).sum(1, keepdim=True).clamp(min=0)
    found = excite.attribute(net, images, target, layer=net[1], upsample=False)
    torch.testing.assert_close(found, expected)
    other = excite.attribute(net, images, [2, 0, 2], layer="1", upsample=False)
    torch.testing.assert_close(other[0], found[0])
    assert not torch.allclose(other[1], found[1])


def test_the_most_probable_by_default(net, images):
    best = net(images).argmax(dim=1)
    assert torch.equal(excite.attribute(net, images), excite.attribute(net, images, best))


@pytest.mark.parametrize("method", FOR_ANY_NETWORK)
def test_every_method(net, images, method):
    found = excite.attribute(net, images, 1, method)
    assert found.shape == (3, 1, 16, 12)
    assert found.min() >= 0
    assert found.isfinite().all()


def test_it_keeps_type_and_gives_a_map_for_each_layer(net, images):
    several = excite.attribute(net.double(), images.double(), 1, layer=[net[1], "4"], upsample=False)
    assert [(each.dtype, each.shape[2:]) for each in several] == [
        (torch.float64, (16, 12)),
        (torch.float64, (8, 6)),
    ]


def test_what_is_refused_in_one_line(net, images):
    for target, kind, said in (
        ([1, 2], SignalError, "2 targets for 3 images"),
        ("cat", SignalError, "'cat' is no target"),
        (7, SignalError, "7"),
    ):
        with pytest.raises(kind, match=said):
            excite.attribute(net, images, target, layer=net[1])
    with pytest.raises(LayerError, match="this ReLU is no layer of Sequential"):
        excite.attribute(net, images, 1, layer=nn.ReLU())
    with pytest.raises(ExciteError, match="no method"):
        excite.attribute(net, images, 1, "gradcam")


def test_as_captum_calls_it(net, images):
    """Inside captum's own metrics: what depends on the image changes with it, and less than at random."""
    metrics = pytest.importorskip("captum.metrics")
    explainer = excite.ExcitationBackprop(net, net[1])
    small = explainer.attribute(images, target=1)
    assert small.shape == (3, 1, 16, 12)
    larger = explainer.interpolate(small, (32, 24))
    assert larger.shape == (3, 1, 32, 24)

    def perturb(inputs):
        noise = 0.05 * torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0))
        return noise, inputs - noise

    full = small.expand_as(images)
    infidelity = metrics.infidelity(net, perturb, images, full, target=1)
    assert (infidelity.shape, bool(infidelity.isfinite().all())) == ((3,), True)
    sensitivity = metrics.sensitivity_max(explainer.attribute, images, target=1, perturb_radius=0.01)
    assert ((sensitivity > 0) & (sensitivity < 1)).all()


def test_as_grad_cam_calls_it(net, images):
    targets = [SimpleNamespace(category=unit) for unit in (0, 1, 2)]
    with excite.ExcitationBackprop(net, [net[1], net[4]]) as cam:
        planes = cam(input_tensor=images, targets=targets)
    assert planes.shape == (3, 16, 12)
    assert planes.min() >= 0
    assert planes.max() <= 1
    one = excite.ExcitationBackprop(net, net[4])(images, targets)
    assert one.max(axis=(1, 2)) == pytest.approx(np.ones(3))


def test_as_quantus_calls_it(net, images):
    from excite.models.sources import torchvision_models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchvision_models()  # Quantus imports torchvision
    quantus = pytest.importorskip("quantus", reason="Quantus is not installed: see dev/compare_quantus.py")
    units = net(images).argmax(dim=1).numpy()
    how = {"abs": False, "normalise": False, "disable_warnings": True}
    asked = {
        "model": net,
        "x_batch": images.numpy(),
        "y_batch": units,
        "explain_func": excite.explain_func,
        "explain_func_kwargs": {"layer": "1", "method": "mwp"},
    }
    moved = quantus.MaxSensitivity(nr_samples=2, lower_bound=0.01, **how)(**asked)
    assert (np.isfinite(moved).all(), len(moved)) == (True, 3)
    redrawn = quantus.MPRT(**how)(**asked)
    assert np.mean(redrawn["original"]) > 0.99
    assert abs(np.mean(redrawn["0"])) < 0.5  # with every layer drawn anew, nothing is left of the map
    assert excite.explain_func(net, images.numpy(), units, layer="1", method="mwp") == pytest.approx(
        excite.attribute(net, images, units, "mwp", "1").numpy()
    )
