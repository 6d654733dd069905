"""The chunked loss: the same value and gradients for any chunk size."""

import pytest
import torch
from torch.nn import functional

from excite.training.tags import model as loss
from excite.training.tags.model import linear_loss, logits_loss

UNITS = torch.tensor([[3, 0, 22, -1, -1], [4, 4, 4, 4, 4], [-1, -1, -1, -1, -1], [22, 3, 22, 3, -1], [0, 1, 2, 3, 4]])


@pytest.fixture(params=[1, 7, 50, 10**6])
def chunks(request, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK", request.param)


@pytest.fixture
def layer():
    random = torch.Generator().manual_seed(0)
    shapes = (len(UNITS), 6), (23, 6), (23,)
    return [(9 * torch.randn(shape, dtype=torch.float64, generator=random)).requires_grad_() for shape in shapes]


def usual(logits):
    truth = torch.zeros_like(logits)
    for row, units in enumerate(UNITS.tolist()):
        truth[row, [unit for unit in units if unit >= 0]] = 1
    return functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")


def same(one, two, inputs):
    assert torch.allclose(one, two, rtol=1e-12, atol=1e-10)
    for mine, theirs in zip(torch.autograd.grad(one / 5, inputs), torch.autograd.grad(two / 5, inputs), strict=True):
        assert (mine - theirs).abs().max() < 1e-10


@pytest.mark.usefixtures("chunks")
def test_of_a_linear_layer(layer):
    features, weight, bias = layer
    assert (features @ weight.T).abs().max() > 100  # also where softplus is usually cut short
    same(linear_loss(features, weight, bias, UNITS), usual(features @ weight.T + bias), layer)


@pytest.mark.usefixtures("chunks")
def test_of_a_layer_without_biases(layer):
    features, weight, _ = layer
    same(linear_loss(features, weight, None, UNITS), usual(features @ weight.T), layer[:2])


@pytest.mark.usefixtures("chunks")
def test_of_logits(layer):
    features, weight, bias = layer
    same(logits_loss(features @ weight.T + bias, UNITS), usual(features @ weight.T + bias), layer)


def test_only_the_gradients_that_are_needed(layer):
    features, weight, bias = layer
    found = linear_loss(features.detach(), weight, bias, UNITS)
    found.backward()
    assert features.grad is None
    assert weight.grad is not None
    with torch.no_grad():
        assert linear_loss(features, weight, bias, UNITS) == found


def test_a_batch_of_nothing():
    empty = linear_loss(torch.zeros(0, 4), torch.zeros(3, 4), None, torch.zeros(0, 5, dtype=torch.int32))
    assert empty == 0
