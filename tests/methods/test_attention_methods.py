"""Rollout and Chefer's relevance against dense matrices of all tokens, on transformers that give their weights."""

from functools import partial

import pytest
import torch
from networks import Pooled, maps, one_signal, session
from small_transformers import HEIGHT, WIDTH, Transformer, images, made
from torch import nn

import excite
from excite.errors import LayerError, MethodError
from excite.methods import METHODS
from excite.session import Session

LAYERS = [f"blocks.{k}.attention:edges" for k in range(2)]


def weights_and_gradients(network, x, unit):
    """Of each block, both [N, heads, T, T], by plain autograd."""
    response = network(x)[:, unit].sum()
    weights = [block.attention.weights for block in network.blocks]
    return list(zip(weights, torch.autograd.grad(response, weights), strict=True))


def dense(name, found, pooled):
    """The whole product of matrices over the blocks, as the papers write it; of it what the classifier reads."""
    tokens = found[0][0].shape[-1]
    product = torch.eye(tokens).double().expand(len(found[0][0]), -1, -1)
    for weights, gradient in found:
        if name == "rollout":
            product = (0.5 * weights.mean(1) + 0.5 * torch.eye(tokens)) @ product
        else:
            product = product + (weights * gradient).clamp(min=0).mean(1) @ product
    shares = product.mean(1) if pooled else product[:, 0, 1:]
    return shares.detach().reshape(-1, HEIGHT, WIDTH)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("name", ["rollout", "chefer"])
def test_maps_are_those_of_dense_matrices(name, pooled):
    network, x = made(partial(Transformer, pooled)), images()
    found = weights_and_gradients(network, x, 2)
    for each in (network, made(partial(Transformer, pooled, fused=True))):
        given = one_signal(session(each, x, {METHODS[name]: LAYERS}), METHODS[name], {2: 1.0})
        for layer, blocks in zip(LAYERS, (found, found[1:]), strict=True):  # from both blocks, or from the upper one
            expected = dense(name, blocks, pooled)
            assert expected.flatten(1).max(1).values.min() > 1e-4
            torch.testing.assert_close(given[layer], expected, rtol=0, atol=1e-12)


def test_every_signal_and_image_has_its_own_map():
    method, network, x = METHODS["chefer"], made(Transformer), images()
    units = [[{0: 1.0}, {2: 1.0}], [{1: 0.5, 3: -1.0}, {}]]
    together = Session(excite.wrap(network), {1.0: x}, [method])
    assert together.layers[method] == LAYERS[:1]
    found = together.maps(method, units)[LAYERS[0]]
    for k, signal in enumerate(units):
        for n, each in enumerate(signal):
            alone = Session(excite.wrap(network), {1.0: x[n : n + 1]}, [method]).maps(method, [[each]])[LAYERS[0]]
            torch.testing.assert_close(found[k, n], alone[0, 0], rtol=0, atol=1e-12)
    assert not found[1, 1].any()


def test_the_concept_decides_for_chefer_only():
    network, x = made(Transformer), images()
    for name, same in (("rollout", True), ("chefer", False)):
        method = METHODS[name]
        one, other = Session(excite.wrap(network), {1.0: x}, [method]).maps(method, [[{0: 1.0}] * 2, [{1: 1.0}] * 2])[
            LAYERS[0]
        ]
        assert torch.equal(one, other) == same


def test_networks_without_such_attention_are_refused():
    chefer = METHODS["chefer"]
    with pytest.raises(LayerError, match="chefer needs attention, and this network has none"):
        Session(excite.wrap(made(Pooled)), {1.0: images()}, [chefer])
    with pytest.raises(LayerError, match=r"'blocks\.1' of this network: name edges .* blocks\.0\.attention:edges"):
        session(made(Transformer), images(), {chefer: ["blocks.1"]})
    with pytest.raises(LayerError, match="a number for each pair of tokens"):
        session(made(Transformer), images(), {METHODS["c-mwp"]: LAYERS[:1]})
    windows = made(partial(Transformer, pooled=True))
    windows.blocks[0].attention = nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(0, 1), windows.blocks[0].attention)
    windows.blocks[0].attention.append(nn.Unflatten(0, (-1, 2))).append(nn.Flatten(1, 2))
    with pytest.raises(MethodError, match=r"attention\.2:edges' have the shape \(4, 2, 3, 3\) \(windows"):
        maps(windows, images(), "chefer", "blocks.0.attention.2:edges")
