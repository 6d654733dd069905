"""Odd ways to write a step, each beside a plain twin with the same output: the same map, or a refusal by name.

Never a wrong map without a word. `dev/hunt` makes such pairs at random; these are the ones that were found first.
"""

import io
import pickle
import threading

import numpy as np
import pytest
import torch
from oracle import Net, randomise
from torch import nn
from torch.nn import functional as F

from excite.errors import NoRuleError
from excite.propagation import ExcitationPass, Gradients, mwp
from excite.propagation.unknown import TRIALS

CONSTANT = torch.linspace(0.1, 0.9, 32, dtype=torch.float64).view(1, 2, 4, 4)


class Step(nn.Module):
    """A step with parameters, buffers and plain tensors of its own."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.full((), 2.0, dtype=torch.float64))
        self.work = nn.Parameter(torch.zeros(1, 2, 4, 4, dtype=torch.float64))
        self.register_buffer("ws", torch.zeros(1, 2, 4, 4, dtype=torch.float64))
        self.plain, self.listed, self.last = CONSTANT.clone(), [CONSTANT.clone()], None

    def forward(self, h):
        return self.function(self, h)


def network(function, skip):
    """Tap, convolution, ReLU, the step, perhaps beside a skip connection; then a classifier."""
    torch.manual_seed(1)
    net = Net(
        lambda net, h: net.inner(F.relu(net.a(h))) + (h if skip else 0.0),
        32,
        a=nn.Conv2d(2, 2, 3, padding=1),
        inner=Step(function),
    )
    torch.manual_seed(2)
    randomise(net)
    net.inner.ws.zero_()
    with torch.no_grad():
        net.inner.scale.fill_(2.0)
    return net


def image():
    return torch.rand(1, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def maps(function, skip, **options):
    return mwp(network(function, skip), image(), 0, layer="tap", **options)


def in_thread(function):
    """What a function gives that runs in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def without_gradients(function):
    with torch.no_grad():
        return function()


def hidden(function):
    with torch._C.DisableTorchFunction():
        return function()


def written(target, h, way):
    with torch.no_grad():
        way(target, h)
    return target


def aside(step, value):
    step.last = value
    return value


def fresh(h, way):
    target = torch.zeros_like(h)
    way(target, h)
    return target


# --- activations that come back as constants, and calls without a rule ---


def pairs(h):
    return h.permute(0, 2, 3, 1).contiguous()


SEVERED = {
    "to(int32)": lambda _, h: (h * 16).to(torch.int32).to(h.dtype) / 16,
    "bucketize": lambda _, h: torch.linspace(0, 9, 99, dtype=h.dtype)[torch.bucketize(h, torch.linspace(0, 9, 98))],
    "mask as a value": lambda _, h: (h > 0).to(h.dtype),
    "func.vjp": lambda s, h: torch.func.vjp(lambda each: each * s.scale, h)[0],
    "buffer.copy_": lambda s, h: written(s.ws, h, lambda ws, h: ws.copy_(h)),
    "buffer through NumPy": lambda s, h: written(s.ws, h, lambda ws, h: np.copyto(ws.numpy(), h.detach().numpy())),
    "fresh.set_": lambda _, h: fresh(h, lambda target, h: target.set_(h)),
    "nn.Parameter": lambda _, h: nn.Parameter(h),
    "new_tensor": lambda _, h: h.new_tensor(h),
    "pickle": lambda _, h: pickle.loads(pickle.dumps(h.detach())),  # noqa: S301 - our own bytes
    "aten.detach": lambda _, h: torch.ops.aten.detach.default(h),
    "thread, no_grad": lambda s, h: in_thread(lambda: without_gradients(lambda: h * s.scale)),
    "thread into an attribute": lambda s, h: in_thread(lambda: without_gradients(lambda: aside(s, h * 2))) * 0 + s.last,
    "hidden, detached": lambda _, h: hidden(lambda: h.detach() * 2),
    "numpy": lambda _, h: torch.from_numpy(h.detach().numpy()),
    "tolist": lambda _, h: torch.tensor(h.tolist(), dtype=h.dtype),
    "item filled": lambda _, h: torch.zeros_like(h).fill_(h.amax().item()),
    "product of complex": lambda _, h: (
        torch.view_as_complex(pairs(h)).square().imag.view(1, 1, 4, 4).expand(1, 2, 4, 4)
    ),
    "sparse weights": lambda _, h: (torch.eye(4, dtype=h.dtype).to_sparse() @ h[0, 0]).expand(1, 2, 4, 4),
    "pow of two activations": lambda _, h: torch.pow(h + 1, h),
    "negative base": lambda _, h: torch.pow(-2.0, h.detach().round() * 0 + h * 0 + 2),
    "batch norm by activations": lambda s, h: F.batch_norm(
        h, torch.zeros(2).to(h), torch.ones(2).to(h), h.mean((0, 2, 3))
    ),
    "prelu by activations": lambda _, h: F.prelu(h, h.mean((0, 2, 3))),
}


@pytest.mark.parametrize("kernels", ["fast"], indirect=True)  # none of them refuses anything: once is enough
@pytest.mark.parametrize("skip", [True, False], ids=["beside a skip", "alone"])
@pytest.mark.parametrize("way", SEVERED)
@pytest.mark.filterwarnings("ignore")
def test_what_leaves_the_graph_is_refused_by_name(way, skip):
    with pytest.raises(NoRuleError) as refusal:
        maps(SEVERED[way], skip)
    assert "does not feed" not in str(refusal.value)
    assert "no top-down rule for '" in str(refusal.value) or "hides its operations" in str(refusal.value)


@pytest.mark.parametrize("kernels", ["fast"], indirect=True)
@pytest.mark.parametrize("way", ["to(int32)", "buffer.copy_", "numpy", "thread, no_grad"])
def test_gradients_are_refused_too(way):
    with pytest.raises(NoRuleError):
        Gradients(network(SEVERED[way], skip=True), image(), ["tap"]).down(torch.eye(3, dtype=torch.float64)[:1])


# --- what only selects, what is constant, and writes to views: as their plain twins ---


def part_written(h, *, read):
    """Channels of a silu, whose baseline is not 0, moved through a view; then all is read, or another view of it."""
    whole = F.silu(h)
    part, other = whole[:, 1:], whole[:, :, :2]
    part -= 0.25
    return whole if read == "whole" else torch.cat([other, other], 2)


def part_moved(h, *, read):
    whole = torch.cat([F.silu(h)[:, :1], F.silu(h)[:, 1:] - 0.25], 1)
    return whole if read == "whole" else torch.cat([whole[:, :, :2], whole[:, :, :2]], 2)


def dropped(h):
    """The same units each time."""
    torch.manual_seed(3)
    return F.dropout(h, 0.5, training=True)


TWINS = {  # odd, and a plain twin
    "mask": (lambda _, h: h * (h > 0.2), lambda _, h: torch.where(h > 0.2, h, 0.0)),
    "gather": (lambda _, h: h.gather(1, h.argsort(1)), lambda _, h: h.sort(1).values),
    "routing": (lambda _, h: torch.stack([h * 2, h * 3])[(h.mean() < 100).long()], lambda _, h: h * 3),
    "divisor": (lambda _, h: h / (h > 0).sum(), lambda _, h: h / int((h > 0).sum())),
    "plain attribute": (lambda s, h: h + s.plain, lambda _, h: h + CONSTANT.view_as(h)),
    "attribute in a list": (lambda s, h: h + s.listed[0], lambda _, h: h + CONSTANT),
    "after item": (lambda _, h: h + (torch.tensor(0.5) if h.amax().item() > 0 else 0), lambda _, h: h + 0.5),
    "constant in a thread": (lambda _, h: h + in_thread(lambda: torch.ones(1) * 0.5), lambda _, h: h + 0.5),
    "constants through .data": (lambda s, h: h * s.scale.data, lambda _, h: h * 2),
    "statistics kept aside": (lambda s, h: (written(s.ws, h, lambda ws, h: ws.copy_(h)), h * 2)[1], lambda _, h: h * 2),
    "vmap of a copy": (lambda _, h: torch.vmap(torch.flip, (0, None))(h, (0,)), lambda _, h: h.flip(1)),
    **{
        f"a view written, then {read} read": (
            lambda _, h, read=read: part_written(h, read=read),
            lambda _, h, read=read: part_moved(h, read=read),
        )
        for read in ("whole", "another view")
    },
    "relu6, instance_norm": (
        lambda _, h: F.instance_norm(F.relu6(h - 0.5)),
        lambda _, h: F.instance_norm(F.relu(h - 0.5)),
    ),
    "dropout, instance_norm": (
        lambda _, h: F.instance_norm(dropped(h)),
        lambda _, h: F.instance_norm(h * dropped(torch.ones_like(CONSTANT))),
    ),
    "tanh copied": (lambda _, h: torch.zeros_like(h).copy_(torch.tanh(h)), lambda _, h: torch.tanh(h)),
    "tanh written": (
        lambda _, h: fresh(h, lambda target, h: target.__setitem__((slice(None), slice(0, 1)), torch.tanh(h[:, :1]))),
        lambda _, h: torch.cat([torch.tanh(h[:, :1]), torch.zeros_like(h[:, 1:])], 1),
    ),
}


@pytest.mark.parametrize("skip", [True, False], ids=["beside a skip", "alone"])
@pytest.mark.parametrize("way", TWINS)
def test_an_odd_step_has_the_map_of_its_plain_twin(way, skip):
    (odd, plain), x = TWINS[way], image()
    with torch.no_grad():
        output = network(odd, skip)(x)
        assert torch.allclose(output, network(plain, skip)(x), atol=1e-12)
    assert torch.equal(ExcitationPass(network(odd, skip), x, ["tap"]).output, output)  # to the last bit
    assert maps(plain, skip).sum() > 0.01
    for contrastive in (False, False, True):  # the second time it is known what was learnt of the network at first
        found = maps(odd, skip, contrastive=contrastive)
        assert torch.allclose(found, maps(plain, skip, contrastive=contrastive), atol=1e-12)


def test_constants_of_unknown_origin_are_tried_once():
    net = network(lambda s, h: h + s.plain, skip=True)
    runs = []
    net.inner.register_forward_hook(lambda *_: runs.append(1))
    for _ in range(3):
        mwp(net, image(), 0, layer="tap")
    assert len(runs) == 3 + len(TRIALS)


def test_the_network_is_left_as_found():
    net = network(SEVERED["buffer.copy_"], skip=True)
    for _ in range(2):
        with pytest.raises(NoRuleError):
            mwp(net, image(), 0, layer="tap")
        assert not net.inner.ws.any()
        assert not vars(net.inner.ws)
        torch.save(net.state_dict(), io.BytesIO())


def test_an_error_of_the_network_stays_its_own():
    with pytest.raises(RuntimeError, match="shape"):
        maps(lambda _, h: h.view(3, 5), skip=True)
    with pytest.raises(ZeroDivisionError):
        maps(lambda _, h: h * (1 / 0), skip=True)
