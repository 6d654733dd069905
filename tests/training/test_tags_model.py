"""The chunked loss: the same value and gradients for any chunk size."""

import pytest
import torch
from torch.nn import functional

from excite.errors import ModelError
from excite.training.tags import model as loss
from excite.training.tags.model import linear_loss, logits_loss, set_frequency_biases

UNITS = torch.tensor([[3, 0, 22, -1, -1], [4, 4, 4, 4, 4], [-1, -1, -1, -1, -1], [22, 3, 22, 3, -1], [0, 1, 2, 3, 4]])


@pytest.fixture
def layer():
    random = torch.Generator().manual_seed(0)
    shapes = (len(UNITS), 6), (23, 6), (23,)
    return [(9 * torch.randn(shape, dtype=torch.float64, generator=random)).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("chunk", [1, 7, 50, 10**6, None])
def test_value_and_gradients(layer, chunk, monkeypatch):
    """Of a linear layer in chunks, or of given logits (None)."""
    features, weight, bias = layer
    logits = features @ weight.T + bias
    assert logits.abs().max() > 100  # also where softplus is usually cut short
    monkeypatch.setattr(loss, "CHUNK", chunk or loss.CHUNK)
    found = linear_loss(features, weight, bias, UNITS) if chunk else logits_loss(features @ weight.T + bias, UNITS)
    truth = torch.zeros_like(logits)
    for row, units in enumerate(UNITS.tolist()):
        truth[row, [unit for unit in units if unit >= 0]] = 1
    usual = functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
    assert torch.allclose(found, usual, rtol=1e-12, atol=1e-10)
    gradients = (torch.autograd.grad(each / 5, layer) for each in (found, usual))
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine - theirs).abs().max() < 1e-10


def test_only_the_gradients_that_are_needed(layer):
    features, weight, bias = layer
    found = linear_loss(features.detach(), weight, bias, UNITS)
    found.backward()
    assert features.grad is None
    assert weight.grad is not None
    with torch.no_grad():
        assert linear_loss(features, weight, bias, UNITS) == found


def test_a_batch_of_nothing():
    empty = linear_loss(torch.zeros(0, 4), torch.zeros(3, 4), torch.zeros(3), torch.zeros(0, 5, dtype=torch.int32))
    assert empty == 0


def test_biases_begin_at_the_frequencies():
    layer = torch.nn.Linear(4, 2)
    set_frequency_biases(layer, torch.tensor([49, 0]).numpy(), 99)
    assert layer.bias.sigmoid().tolist() == pytest.approx([0.495, 0.005])
    with pytest.raises(ModelError, match="has no biases"):
        set_frequency_biases(torch.nn.Linear(4, 2, bias=False), torch.tensor([49, 0]).numpy(), 99)
