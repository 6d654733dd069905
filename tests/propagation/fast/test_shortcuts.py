"""Short cuts that save time: each beside the long way, and beside what would make it wrong."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Net, randomise
from torch import nn
from torch.nn import functional as F

from excite.propagation import ExcitationPass, mwp, plain_kernels
from excite.propagation.fast import shortcuts
from excite.propagation.fast.carry import _copied
from excite.propagation.graph import CopyOnWrite

SHAPE = (4, 8, 8)


def picture(seed=0):
    return torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- in-place calls give their tensor other memory, if nobody else looks at the old one -----------------------------


def made():
    return torch.ones(3, requires_grad=True) * 2


def test_who_looks_at_a_memory():
    memory, alone = CopyOnWrite(), made()
    assert memory.only_saved(alone)
    kept = memory.keep(alone)
    assert memory.only_saved(alone)  # what the memory keeps stays where it is
    alias = alone.detach()
    assert not memory.only_saved(alone)
    del alias
    assert memory.only_saved(alone)
    assert torch.equal(kept.tensor, alone)


def test_views_and_what_has_views_keep_their_memory():
    memory, base = CopyOnWrite(), made()
    view = base[1:]
    assert not memory.only_saved(view)
    assert not memory.only_saved(base)


def seen_through_numpy(net, h):
    h = net.a(h)
    outside = h.detach().numpy()
    F.relu(h, inplace=True)
    assert (outside >= 0).all()
    return h


def seen_through_a_view(net, h):
    h = net.a(h)
    view = h.flatten(2)
    h += 1.0
    torch.relu_(h)
    return view.view_as(h)


def wider_term(net, h):
    h = net.a(h)
    h += net.b(h)[:1]  # broadcast into it
    return torch.relu_(h)


WRITTEN = {
    "numpy": (seen_through_numpy, lambda net, h: F.relu(net.a(h))),
    "view": (seen_through_a_view, lambda net, h: F.relu(net.a(h) + 1.0)),
    "broadcast": (wider_term, lambda net, h: F.relu((a := net.a(h)) + net.b(a)[:1])),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_in_place_calls_are_seen_by_all_who_look(name):
    parts = {"a": nn.Conv2d(4, 4, 3, padding=1), "b": nn.Conv2d(4, 4, 3, padding=1)}
    for seed in range(3):
        first, second = (randomise(Net(body, 256, **parts), seed) for body in WRITTEN[name])
        x = picture(seed)
        found, wanted = (mwp(net, x, 1, layer="tap", contrastive=True) for net in (first, second))
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
        with torch.no_grad():
            assert torch.equal(ExcitationPass(first, x, ["tap"]).output, first(x))


# --- below the taps -------------------------------------------------------------------------------------------------


class Below(nn.Module):
    """A body below the tap; what is known of its answer shows in what comes after."""

    def __init__(self, body):
        super().__init__()
        self.body, self.a, self.b = body, nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.bn, self.tap, self.head = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.LazyLinear(5)

    def forward(self, x):
        below = self.body(self, x)
        h = self.tap(below)
        h = h + below  # it passes the tap by: is it an activation, and where does it rest?
        h = h * below  # and is it a gate?
        return self.head(F.relu(self.bn(h)).flatten(1))


BODIES = {
    "relu6": lambda net, x: F.relu6(net.a(x)),
    "relu6 in place": lambda net, x: F.relu6(net.a(x), inplace=True),
    "hardtanh from 0": lambda net, x: F.hardtanh(net.a(x), 0.0, 2.0),
    "hardtanh by name": lambda net, x: F.hardtanh(net.a(x), max_val=2.0, min_val=0.0),
    "hardtanh from -1": lambda net, x: F.hardtanh(net.a(x)),
    "gated by relu6": lambda net, x: F.relu6(net.a(x)) * net.b(x),
    "padded relu6": lambda net, x: F.pad(F.relu6(net.a(x)), (1, 0, 1, 0)),
    "padded with ones": lambda net, x: F.pad(F.relu(net.a(x)), (1, 0, 1, 0), value=1.0),
    "padded by reflection": lambda net, x: F.pad(F.relu(net.a(x)), (1, 0, 1, 0), mode="reflect"),
    "padded response, normed": lambda net, x: net.bn(F.pad(net.a(x), (1, 0, 1, 0))),
    "padded tanh": lambda net, x: F.pad(torch.tanh(net.a(x)), (1, 0, 1, 0)),
    "relu6 of tanh": lambda net, x: F.relu6(torch.tanh(net.a(x))),
}


@pytest.mark.parametrize("name", BODIES)
def test_below_the_taps_the_quick_way_knows_what_the_general_way_knows(name, monkeypatch):
    net = Below(BODIES[name]).double()
    with torch.no_grad():
        net(picture())
    net = randomise(net, 3)
    quick = mwp(net, picture(), 1, layer="tap")
    monkeypatch.setattr(shortcuts, "_BELOW", {})
    torch.testing.assert_close(mwp(net, picture(), 1, layer="tap"), quick, rtol=1e-12, atol=1e-14)


# --- max pooling ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (3, 7, 5)])
@pytest.mark.parametrize("count", [1, 4])
def test_max_pooling_on_flat_memory_is_its_gradient(shape, count):
    generator = torch.Generator().manual_seed(0)
    child = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    pooled = F.max_pool2d(child.clone(), 3, 2, 1, ceil_mode=True)
    signals = torch.randn(count, *pooled.shape, generator=generator, dtype=torch.float64)
    node = pooled.grad_fn
    while "MaxPool" not in type(node).__name__:  # torch adds and takes away the batch of one
        (node,) = (below for below, _ in node.next_functions)
    along = signals.unsqueeze(1) if len(shape) == 3 else signals
    (found,) = _copied(node, "MaxPool2DWithIndices", along, 1)
    wanted = [torch.autograd.grad(pooled, child, each, retain_graph=True)[0] for each in signals]
    torch.testing.assert_close(found.view(count, *shape), torch.stack(wanted))


@pytest.mark.parametrize("dim", [-1, -2, 1, 2])
def test_a_concatenation_is_divided_along_its_own_dimension(dim):
    """Torch keeps -1 as 2**64 - 1, whose remainder by 3 dimensions is not that of -1."""

    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.tap, self.head = nn.ReLU(), nn.Linear(4 * 64 * 2, 3)

        def forward(self, x):
            tokens = self.tap(x).flatten(2)
            return self.head(torch.cat([tokens, tokens * 2], dim).flatten(1))

    network = randomise(Joined().double())
    found = mwp(network, picture(), 1, layer="tap")
    assert found.sum().item() == pytest.approx(2)
    with plain_kernels():
        torch.testing.assert_close(found, mwp(network, picture(), 1, layer="tap"))


# --- pooling and local response normalisation: equal to torch's own to the bit ---------------------------------------


@settings(max_examples=120, deadline=None)
@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.one_of(st.none(), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    ceil=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_max_pooling_is_torchs_own(height, width, kernel, stride, padding, ceil, dtype):
    x = torch.randn(2, 3, height, width, dtype=dtype)
    x[0, 0, 0, 0] = torch.nan
    try:
        expected = F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:20].replace("(", r"\(").replace("[", r"\[")):
            shortcuts.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
        return
    found = shortcuts.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.is_contiguous()


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_ties_go_to_the_same_child(kernel, stride, padding):
    """Where several children are the largest, torch's gradient has a favourite, and so have we."""
    x = torch.randint(0, 3, (2, 4, 9, 10)).float()
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    pooled = [
        pool(leaf, kernel, stride, padding)
        for pool, leaf in zip((F.max_pool2d, shortcuts.max_pool2d), leaves, strict=True)
    ]
    assert torch.equal(*pooled)
    signal = torch.rand_like(pooled[0])
    assert torch.equal(*(torch.autograd.grad(out, leaf, signal)[0] for out, leaf in zip(pooled, leaves, strict=True)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 13])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_response_norms_are_torchs_own(size, channels, dtype):
    x = torch.randn(2, channels, 5, 6, dtype=dtype) * 20
    expected = F.local_response_norm(x, size, alpha=2e-2, beta=0.6, k=1.5)
    assert torch.equal(shortcuts.local_response_norm(x, size, alpha=2e-2, beta=0.6, k=1.5), expected)


def test_a_network_gives_its_own_output_above_and_below_the_tap():
    body = [nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), nn.LocalResponseNorm(5)]
    body += [nn.Conv2d(6, 8, 3), nn.ReLU(), nn.LocalResponseNorm(3), nn.MaxPool2d(2, padding=1), nn.Flatten()]
    net = nn.Sequential(*body, nn.LazyLinear(4)).eval()
    x = torch.randn(2, 3, 20, 23)
    expected = net(x).detach()
    for layer in ("0", "2", "3", "5", "7"):
        assert torch.equal(ExcitationPass(net, x, [layer]).output, expected)
