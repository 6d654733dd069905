"""AttnLRP, rule by rule against the formulas of its paper on explicit matrices, and what is conserved."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import Transformer, images, made
from torch import nn

from excite.propagation import Gradients
from excite.propagation.gradients import Gamma

SEEDS = st.integers(0, 10_000)


class Called(nn.Module):
    """A network of a single operation."""

    def __init__(self, operation):
        super().__init__()
        self.operation = operation

    def forward(self, x):
        return self.operation(x)


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relevance(operation, x, **options):
    """The relevance at the input, and that at the output, which is drawn."""
    network = operation if isinstance(operation, nn.Module) else Called(operation)
    gradients = Gradients(network.double().eval(), x, ["input"])
    above = drawn(99, *gradients.output.shape)
    return gradients.down(above, "attn-lrp", epsilon=0.0, **options)["input"], above


def shared(contributions, above):
    """R_j = sum_i c_ij R_i / sum_k c_ik: the last column is a bias, which keeps its part."""
    return ((contributions / contributions.sum(1, keepdim=True)).T @ above.flatten())[:-1]


def contributions(function, x):
    """c_ij of a function that is linear but for its bias."""
    with torch.no_grad():
        bias = function(torch.zeros_like(x)).reshape(-1, 1)
        columns = function(torch.eye(x.numel()).double().reshape(-1, *x.shape[1:])).flatten(1).T
    return torch.cat([(columns - bias) * x.flatten(), bias], 1)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.05, 0.25, 1.0, 100.0]), st.booleans(), st.booleans())
def test_weights_favour_what_moved_a_unit_as_it_responded(seed, gamma, dense, bias):
    torch.manual_seed(seed)
    layer = nn.Linear(5, 4, bias=bias) if dense else nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=bias)
    x = drawn(seed, 1, 5) if dense else drawn(seed, 1, 2, 4, 5)
    x = torch.where(x > 1, 0, x)  # some are exactly 0
    found, above = relevance(layer, x, gamma=Gamma(dense=gamma) if dense else Gamma(convolution=gamma))
    parts = contributions(layer, x)
    favoured = parts * (1 + gamma * (parts.sign() == parts.sum(1, keepdim=True).sign()).double())
    torch.testing.assert_close(found.flatten(), shared(favoured, above), rtol=1e-8, atol=1e-10)
    other, _ = relevance(layer, x, gamma=Gamma(convolution=gamma) if dense else Gamma(dense=gamma))
    torch.testing.assert_close(other.flatten(), shared(parts, above), rtol=1e-8, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_softmax_is_expanded_where_it_is(seed):
    x = drawn(seed, 2, 3, 4)
    found, above = relevance(nn.Softmax(-1), x)
    torch.testing.assert_close(found, x * (above - x.softmax(-1) * above.sum(-1, keepdim=True)))


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_factors_of_a_product_get_half_each(seed):
    x, split = drawn(seed, 1, 2, 3, 4), (lambda x: (x[:, 0], x[:, 1].transpose(1, 2)))
    found, above = relevance(lambda x: torch.matmul(*split(x)), x)
    (left, right), each = split(x), above / 2 / torch.matmul(*split(x))
    expected = torch.stack(
        [left * (each @ right.transpose(1, 2)), x[:, 1] * (left.transpose(1, 2) @ each).transpose(1, 2)], 1
    )
    torch.testing.assert_close(found, expected)
    found, above = relevance(lambda x: x[:, 0] * x[:, 1].sigmoid(), x)  # a gate is a factor as well
    torch.testing.assert_close(found, torch.stack([above, above], 1) / 2)
    found, above = relevance(lambda x: x[:, 0] / x[:, 1].exp(), x)  # a divisor is none
    torch.testing.assert_close(found, torch.stack([above, torch.zeros_like(above)], 1))


@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.LayerNorm((3, 6), bias=False), nn.GroupNorm(2, 4)])
def test_norms_are_linear_for_their_deviation(norm):
    x = drawn(3, 1, 4, 3, 6)
    with torch.no_grad():
        for k, parameter in enumerate(norm.parameters()):
            parameter.copy_(drawn(k, *parameter.shape))
    found, above = relevance(norm, x)
    dims = (2,) if isinstance(norm, nn.GroupNorm) else tuple(range(-len(norm.normalized_shape), 0))
    groups = (lambda x: x.reshape(len(x), 2, -1)) if isinstance(norm, nn.GroupNorm) else lambda x: x
    deviation = (groups(x).var(dims, unbiased=False, keepdim=True) + norm.eps).sqrt()

    def normal(x):
        return ((groups(x) - groups(x).mean(dims, keepdim=True)) / deviation).reshape(x.shape)

    affine = norm.weight.detach(), 0 if norm.bias is None else norm.bias.detach()
    if isinstance(norm, nn.GroupNorm):
        affine = [each.reshape(-1, 1, 1) for each in affine]
    parts = contributions(lambda x: normal(x) * affine[0] + affine[1], x)
    torch.testing.assert_close(found.flatten(), shared(parts, above))


@settings(max_examples=6, deadline=None)
@given(SEEDS, st.booleans())
def test_relevance_is_conserved_without_biases_and_softmax(seed, pooled):
    torch.manual_seed(seed)
    network = Transformer(pooled, weigh=nn.ReLU(), bias=False).double().eval()  # softmax keeps its constant term
    gradients = Gradients(network, images(), ["input", "patches", "blocks.0"])
    signal = torch.zeros_like(gradients.output)
    signal[:, 1] = 1.0
    for gamma in (Gamma(), Gamma(0.25, 0.05)):
        found = gradients.down(signal, "attn-lrp", epsilon=0.0, gamma=gamma)
        tokens = found.pop("blocks.0")  # with the class token, which holds relevance of its own
        torch.testing.assert_close(tokens.sum((1, 2)), torch.ones(2).double())
        for layer, values in found.items():
            if pooled:
                torch.testing.assert_close(values.flatten(1).sum(1), torch.ones(2).double(), msg=layer)


def test_a_fused_attention_is_its_parts():
    x, found = images(), []
    for fused in (False, True):
        gradients = Gradients(made(partial(Transformer, fused=fused)), x, ["input"])
        signal = torch.zeros_like(gradients.output)
        signal[:, 1] = 1.0
        found.append(gradients.down(signal, "attn-lrp", gamma=Gamma(0.25, 0.05))["input"])
    torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-12)
