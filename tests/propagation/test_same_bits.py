"""What docs/numbers.md promises of one process with one number of threads: the same question, the same bits."""

import torch
from oracle import randomise
from torch import nn

from excite.propagation import ExcitationPass, Gradients, mwp, sample_winners


def network():
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    return randomise(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)), 0).eval()


def pictures(count=4):
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_a_map_twice():
    """Also where the second finds what the first has kept of the weights, and where another question came between."""
    net, x = network(), pictures()
    first = mwp(net, x, 2, layer=["1", "4"], contrastive=True)
    mwp(net, x * 0.5, 1, layer="2")
    second = mwp(net, x, 2, layer=["1", "4"], contrastive=True)
    fresh = mwp(network(), x, 2, layer=["1", "4"], contrastive=True)
    for layer, values in first.items():
        assert torch.equal(values, second[layer])
        assert torch.equal(values, fresh[layer])


def test_gradients_twice():
    net, x, signal = network(), pictures(), torch.eye(5)[:4]
    first, second = (Gradients(net, x, ["1"]).down(signal, "guided")["1"] for _ in range(2))
    assert torch.equal(first, second)


def test_one_sweep_for_many_signals_and_one_for_each():
    net, x = network(), pictures(1)
    excitation = ExcitationPass(net, x, ["1"])
    together = excitation.down(torch.eye(5)[:, None])["1"]
    for k, values in enumerate(together):
        alone = ExcitationPass(net, x, ["1"]).down(torch.eye(5)[k : k + 1])["1"]
        assert float((values - alone).abs().sum()) < 1e-5


def test_a_picture_alone_and_in_a_batch():
    net, x = network(), pictures()
    together = mwp(net, x, 2, layer="1", contrastive=True)
    for k, values in enumerate(together):
        alone = mwp(net, x[k : k + 1], 2, layer="1", contrastive=True)[0]
        assert float((values - alone).abs().sum()) < 1e-4 * float(alone.abs().sum())


def test_a_seed_says_which_way_walks_go():
    net, x = network(), pictures(1)
    one, two, other = (sample_winners(net, x, 2, layers=["4", "1"], count=30, seed=seed) for seed in (7, 7, 8))
    assert one.paths == two.paths
    assert one.paths != other.paths


def test_the_global_generator_is_left_alone():
    """Networks are made first: making one draws its weights."""
    net, x = network(), pictures(1)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    sample_winners(net, x, 2, layers=["4"], count=5)
    mwp(net, x, 2, layer="4")
    assert torch.equal(torch.rand(1), expected)
