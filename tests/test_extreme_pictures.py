"""Extreme images and broken classifiers, by every method: finite maps, or one line that says what is wrong."""

import warnings

import numpy as np
import pytest
import torch
from method_names import FOR_ANY_NETWORK
from torch import nn

import excite
from excite.errors import ExciteError, ImageError, LostSignalWarning, NumberError
from excite.models import Preprocess, wrap

NAN = float("nan")
ONE_LOOK = [name for name in FOR_ANY_NETWORK if excite.METHODS[name].scales == (1.0,)]
NOISE = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)


def classifier(change=lambda net: None, preprocess=None):
    """As cam wants it: convolutions, one average over all places, one linear layer."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)),
    ).eval()
    with torch.no_grad():
        net[3].weight.abs_()
        change(net)
    preprocess = preprocess or Preprocess(shorter_side=16, mean=0, scale=1 / 255)
    return wrap(net, labels=["cat", "dog", "bird"], preprocess=preprocess, layer="4")


def broken(net):
    net[3].weight[1, 1] = NAN


def overflowing(net):
    for layer in (net[0], net[3]):
        layer.weight.mul_(1e38)


def zeroed(net):
    for parameter in net.parameters():
        parameter.zero_()


def maps(model, picture, method):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = excite.attend(model, picture, ["cat", "dog"], method=method)
    for each in found:
        assert torch.isfinite(each.values).all()
        assert np.isfinite(each.mass)
        assert each.point() is None or each.values.max() > 0
    return found, [warning for warning in said if warning.category is LostSignalWarning]


@pytest.mark.parametrize("method", FOR_ANY_NETWORK)
def test_broken_weights_and_the_layer_that_overflows_are_named(method):
    with pytest.raises(NumberError, match=r"weights hold NaN in '3\.weight'"):
        excite.attend(classifier(broken), NOISE, "cat", method=method)
    with pytest.raises(NumberError, match=r"in layer '3' \(Conv2d\) numbers first become infinity"):
        excite.attend(classifier(overflowing), NOISE, "cat", method=method)


@pytest.mark.parametrize("method", ONE_LOOK)
def test_a_picture_that_is_prepared_badly_is_named(method):
    def divided(picture):
        prepared = Preprocess(shorter_side=16)(picture)
        return prepared / (prepared - prepared[0, 0, 0])

    with pytest.raises(NumberError, match="the input of the network holds"):
        excite.attend(classifier(preprocess=divided), NOISE, "cat", method=method)


@pytest.mark.parametrize("method", FOR_ANY_NETWORK)
def test_nothing_to_explain(method):
    """All weights are 0, and every logit is exactly 0: winners say that nothing arrived, gradients that all is flat."""
    found, said = maps(classifier(zeroed), NOISE, method)
    if excite.METHODS[method].forward == "excitation":
        assert len(said) == len(found)
    assert method == "center" or all(each.mass == 0 for each in found)


@pytest.mark.parametrize("method", FOR_ANY_NETWORK)
def test_the_smallest_and_the_longest_pictures_and_those_of_one_colour(method):
    shapes = [(1, 1), (1, 300), (2000, 3), (40, 56), *([(4000, 5000)] if method == "c-mwp" else [])]
    for shape, value in zip(shapes, (200, 0, 255, 0, 90), strict=False):
        found, _ = maps(classifier(), np.full((*shape, 3), value, np.uint8), method)
        assert found[0].image_size == shape[::-1]


@pytest.mark.parametrize("method", ["grad", "guided", "c-guided", "c-deconv"])
def test_gradients_near_the_largest_float(method):
    """Their sum leaves the range of float32, although each is a number."""

    def scaled(factor):
        def change(net):
            for bias in (net[0].bias, net[3].bias, net[7].bias):
                bias.zero_()
            net[3].weight.mul_(factor)
            net[7].weight.mul_(factor)

        return classifier(change, Preprocess(shorter_side=16, mean=0, scale=1 / 255e4))  # so that logits are finite

    (usual, _), (found, _) = (maps(scaled(factor), NOISE, method) for factor in (1.0, 2.0**66))
    if method in {"grad", "guided"}:
        assert found[0].mass > torch.finfo(torch.float32).max
    for one, two in zip(usual, found, strict=True):
        assert one.mass > 0
        torch.testing.assert_close(two.values.double() / two.mass, one.values.double() / one.mass, rtol=1e-3, atol=1e-5)


def test_every_way_to_ask():
    model = classifier(broken)
    for ask, arguments, options in (
        (excite.attend_batch, ([NOISE, NOISE], "cat"), {}),
        (excite.locate, (NOISE, "cat"), {}),
        (excite.ground, (NOISE, "a cat"), {}),
        (excite.attend, (NOISE, "cat"), {"against": "dog"}),
        (excite.attend, (NOISE,), {}),
    ):
        with pytest.raises(NumberError, match=r"weights hold NaN in '3\.weight'"):
            ask(model, *arguments, **options)


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_images_and_maps_of_numbers_that_are_none(value):
    """No such map can be made, so nothing that draws, compares or saves maps ever meets one."""
    array = np.full((8, 8, 3), 0.5)
    array[2, 3] = value
    for picture in (array, array.astype(np.float16), torch.from_numpy(array).permute(2, 0, 1)):
        with pytest.raises(ImageError, match="holds NaN or infinity"):
            excite.attend(classifier(), picture, "cat")
    with pytest.raises(ExciteError, match="holds NaN or infinity"):
        excite.AttentionMap(torch.tensor([[1.0, value]]), "cat", "4", "mwp", 1.0, (2, 1))
