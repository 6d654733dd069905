"""Odd ways to write a step, each beside a plain twin with the same output: the same map, or a refusal by name.

Never a wrong map without a word. `dev/hunt` makes such pairs at random; these are the ones that were found first.
"""

import copy
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


def set_data(target, h):
    target.data = h


# --- 1. activations that come back as constants ---

SEVERED = {
    "to(int32)": lambda _, h: (h * 16).to(torch.int32).to(h.dtype) / 16,
    "round, to(int8)": lambda _, h: (h * 16).round().to(torch.int8).to(h.dtype) / 16,
    "view(int64)": lambda _, h: h.contiguous().view(torch.int64).clone().view(h.dtype),
    "quantized": lambda _, h: torch.quantize_per_tensor(h.float(), 0.01, 0, torch.qint32).dequantize().to(h.dtype),
    "bucketize": lambda _, h: torch.linspace(0, 9, 99, dtype=h.dtype)[torch.bucketize(h, torch.linspace(0, 9, 98))],
    "sign by comparing": lambda _, h: torch.where(h > 0, 1.0, -1.0).to(h.dtype),
    "mask as a value": lambda _, h: (h > 0).to(h.dtype),
    "vmap, parameter": lambda s, h: torch.vmap(lambda each: each * s.scale)(h),
    "func.vjp": lambda s, h: torch.func.vjp(lambda each: each * s.scale, h)[0],
    "func.jvp": lambda s, h: torch.func.jvp(lambda each: each * s.scale, (h,), (h,))[0],
    "func.grad": lambda _, h: torch.func.grad(lambda each: (each * each).sum() / 2)(h),
    "buffer.copy_": lambda s, h: written(s.ws, h, lambda ws, h: ws.copy_(h)),
    "buffer[:] =": lambda s, h: written(s.ws, h, lambda ws, h: ws.__setitem__(slice(None), h)),
    "buffer.mul_.add_": lambda s, h: written(s.ws, h, lambda ws, h: ws.mul_(0).add_(h)),
    "buffer.data.copy_": lambda s, h: written(s.ws, h, lambda ws, h: ws.data.copy_(h)),
    "buffer through NumPy": lambda s, h: written(s.ws, h, lambda ws, h: np.copyto(ws.numpy(), h.detach().numpy())),
    "parameter.copy_": lambda s, h: written(s.work, h, lambda ws, h: ws.copy_(h)),
    "buffer, then cloned": lambda s, h: written(s.ws, h, lambda ws, h: ws.copy_(h)).clone(),
    "fresh.data =": lambda _, h: fresh(h, set_data),
    "fresh.set_": lambda _, h: fresh(h, lambda target, h: target.set_(h)),
    "fresh.data.copy_": lambda _, h: fresh(h, lambda target, h: target.data.copy_(h)),
    "nn.Parameter": lambda _, h: nn.Parameter(h),
    "torch.tensor": lambda _, h: torch.tensor(h),
    "new_tensor": lambda _, h: h.new_tensor(h),
    "copy.copy": lambda _, h: copy.copy(h),
    "copy.deepcopy": lambda _, h: copy.deepcopy(h.detach()),
    "pickle": lambda _, h: pickle.loads(pickle.dumps(h.detach())),  # noqa: S301 - our own bytes
    "nested": lambda _, h: torch.nested.nested_tensor([h[0]]).to_padded_tensor(0.0),
    "aten.detach": lambda _, h: torch.ops.aten.detach.default(h),
    "thread, no_grad": lambda s, h: in_thread(lambda: without_gradients(lambda: h * s.scale)),
    "thread into an attribute": lambda s, h: in_thread(lambda: without_gradients(lambda: aside(s, h * 2))) * 0 + s.last,
    "hidden, no_grad": lambda _, h: hidden(lambda: without_gradients(lambda: h * 2)),
    "hidden, detached": lambda _, h: hidden(lambda: h.detach() * 2),
    "numpy": lambda _, h: torch.from_numpy(h.detach().numpy()),
    "numpy array": lambda _, h: torch.as_tensor(np.asarray(h.detach()) * 2),
    "tolist": lambda _, h: torch.tensor(h.tolist(), dtype=h.dtype),
    "item by item": lambda _, h: torch.tensor([each.item() for each in h.flatten()], dtype=h.dtype).view(h.shape),
    "item added": lambda _, h: torch.zeros_like(h) + h.mean().item(),
    "item filled": lambda _, h: torch.zeros_like(h).fill_(h.amax().item()),
    "dlpack": lambda _, h: torch.from_dlpack(h.detach()),
}


@pytest.mark.parametrize("skip", [True, False], ids=["beside a skip", "alone"])
@pytest.mark.parametrize("way", SEVERED)
@pytest.mark.filterwarnings("ignore")
def test_what_leaves_the_graph_is_refused_by_name(way, skip):
    with pytest.raises(NoRuleError) as refusal:
        maps(SEVERED[way], skip)
    assert "does not feed" not in str(refusal.value)
    assert "no top-down rule for '" in str(refusal.value) or "hides its operations" in str(refusal.value)


@pytest.mark.parametrize("way", ["to(int32)", "buffer.copy_", "numpy", "thread, no_grad"])
def test_gradients_are_refused_too(way):
    with pytest.raises(NoRuleError):
        Gradients(network(SEVERED[way], skip=True), image(), ["tap"]).down(torch.eye(3, dtype=torch.float64)[:1])


class Rounded(nn.Module):
    """A residual block whose branch is rounded through integers, as in quantisation by hand."""

    def __init__(self, *, odd):
        super().__init__()
        self.odd = odd
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, h):
        branch = self.b(F.relu(self.a(h)))
        if self.odd:
            branch = (branch * 127).round().to(torch.int32).to(h.dtype) / 127
        return F.relu(h + branch)


@pytest.mark.parametrize("odd", [False, True])
def test_a_residual_network_rounded_through_integers(odd):
    blocks = [Rounded(odd=odd) for _ in range(3)]
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    if odd:
        with pytest.raises(NoRuleError, match=r"'to', called in '\d'"):
            mwp(net.eval(), torch.rand(1, 3, 16, 16), torch.full((5,), 0.2), layer="1")
    else:
        assert mwp(net.eval(), torch.rand(1, 3, 16, 16), torch.full((5,), 0.2), layer="1").sum() > 0.3


# --- what only selects stays allowed ---

ALLOWED = {  # odd, and a plain twin
    "mask": (lambda _, h: h * (h > 0.2), lambda _, h: torch.where(h > 0.2, h, 0.0)),
    "mask of floats": (lambda _, h: (h > 0.2).to(h.dtype) * h, lambda _, h: torch.where(h > 0.2, h, 0.0)),
    "mask turned": (lambda _, h: h * (1 - (h <= 0.2).to(h.dtype)), lambda _, h: torch.where(h > 0.2, h, 0.0)),
    "masked_fill": (lambda _, h: h.masked_fill(h <= 0.2, 0.0), lambda _, h: torch.where(h > 0.2, h, 0.0)),
    "index": (lambda _, h: h[:, h.sum((0, 2, 3)).argsort()], lambda _, h: h[:, torch.tensor(order(h))]),
    "gather": (lambda _, h: h.gather(1, h.argsort(1)), lambda _, h: h.sort(1).values),
    "if": (lambda _, h: h * 2 if bool((h > 100).any()) else h * 3, lambda _, h: h * 3),
    "if item": (lambda _, h: h * 2 if h.amax().item() > 100 else h * 3, lambda _, h: h * 3),
    "routing": (lambda _, h: torch.stack([h * 2, h * 3])[(h.mean() < 100).long()], lambda _, h: h * 3),
    "divisor": (lambda _, h: h / (h > 0).sum(), lambda _, h: h / int((h > 0).sum())),
    "scaled by item": (lambda _, h: h * h.amax().item(), lambda _, h: h * h.amax()),
    "plain attribute": (lambda s, h: h + s.plain, lambda _, h: h + CONSTANT.view_as(h)),
    "attribute in a list": (lambda s, h: h + s.listed[0], lambda _, h: h + CONSTANT),
    "global": (lambda _, h: h * CONSTANT, lambda _, h: h * CONSTANT.clone()),
    "from_numpy": (lambda _, h: h + torch.from_numpy(CONSTANT.numpy()), lambda _, h: h + CONSTANT),
    "after item": (lambda _, h: h + (torch.tensor(0.5) if h.amax().item() > 0 else 0), lambda _, h: h + 0.5),
    "torch.Tensor": (lambda _, h: h + torch.DoubleTensor([0.5]), lambda _, h: h + 0.5),
    "constant in a thread": (lambda _, h: h + in_thread(lambda: torch.ones(1) * 0.5), lambda _, h: h + 0.5),
    "constant.to(h)": (lambda _, h: h + torch.ones(1).to(h), lambda _, h: h + 1.0),
    "constant.view_as(h)": (lambda _, h: h + CONSTANT.flatten().view_as(h), lambda _, h: h + CONSTANT),
    "broadcast_tensors": (lambda _, h: h + torch.broadcast_tensors(CONSTANT, h)[0], lambda _, h: h + CONSTANT),
    "constants as integers": (
        lambda _, h: h + torch.arange(4).to(torch.int8).to(h),
        lambda _, h: h + torch.arange(4.0),
    ),
    "constants through .data": (lambda s, h: h * s.scale.data, lambda _, h: h * 2),
    "statistics kept aside": (lambda s, h: (written(s.ws, h, lambda ws, h: ws.copy_(h)), h * 2)[1], lambda _, h: h * 2),
    "vmap of a copy": (lambda _, h: torch.vmap(torch.flip, (0, None))(h, (0,)), lambda _, h: h.flip(1)),
}


def order(h):
    return h.detach().sum((0, 2, 3)).tolist().__class__(h.detach().sum((0, 2, 3)).argsort().tolist())


@pytest.mark.parametrize("skip", [True, False], ids=["beside a skip", "alone"])
@pytest.mark.parametrize("way", ALLOWED)
def test_what_only_selects_and_constants_are_as_their_twins(way, skip):
    odd, plain = ALLOWED[way]
    for _ in range(2):  # the second image of a network finds what was learnt of it from the first
        assert torch.allclose(maps(odd, skip), maps(plain, skip), atol=1e-12)
    assert torch.allclose(maps(odd, skip, contrastive=True), maps(plain, skip, contrastive=True), atol=1e-12)


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


# --- 2, 3: rules that were wrong on the only way ---


def part_written(h, *, read):
    """Channels of a silu, whose baseline is not 0, moved through a view; then all is read, or another view of it."""
    whole = F.silu(h)
    part, other = whole[:, 1:], whole[:, :, :2]
    part -= 0.25
    return whole if read == "whole" else torch.cat([other, other], 2)


def part_moved(h, *, read):
    whole = torch.cat([F.silu(h)[:, :1], F.silu(h)[:, 1:] - 0.25], 1)
    return whole if read == "whole" else torch.cat([whole[:, :, :2], whole[:, :, :2]], 2)


TWINS = {  # odd, and a plain twin
    **{
        f"a view written, then {read} read": (
            lambda _, h, read=read: part_written(h, read=read),
            lambda _, h, read=read: part_moved(h, read=read),
        )
        for read in ("whole", "another view")
    },
    "constant.clamp(min=y)": (lambda _, h: CONSTANT.clamp(min=h), lambda _, h: torch.maximum(h, CONSTANT)),
    "rsub(alpha=-1)": (lambda _, h: torch.rsub(h, 2.0, alpha=-1), lambda _, h: h + 2.0),
    "complex abs": (lambda _, h: torch.view_as_complex(pairs(h)).abs().view(1, 1, 4, 4), lambda _, h: magnitude(h)),
    "avg_pool2d(divisor_override=-1)": (
        lambda _, h: F.avg_pool2d(h, 2, divisor_override=-1),
        lambda _, h: -F.avg_pool2d(h, 2, divisor_override=1),
    ),
    "linear(h, W, bias=y)": (
        lambda s, h: F.linear(h, matrix(), h.mean((0, 1, 2))),
        lambda s, h: F.linear(h, matrix()) + h.mean((0, 1, 2)).expand(h.shape),
    ),
    "pow(constant, y)": (lambda _, h: torch.pow(CONSTANT, h), lambda _, h: (h * CONSTANT.log()).exp()),
    "relu6, instance_norm": (
        lambda _, h: F.instance_norm(F.relu6(h - 0.5)),
        lambda _, h: F.instance_norm(F.relu(h - 0.5)),
    ),
    "dropout, instance_norm": (
        lambda _, h: F.instance_norm(dropped(h)),
        lambda _, h: F.instance_norm(h * dropped(torch.ones_like(CONSTANT))),
    ),
    "addcmul": (
        lambda _, h: torch.addcmul(h, CONSTANT, h.flip(1), value=0.5),
        lambda _, h: h + 0.5 * (CONSTANT * h.flip(1)),
    ),
    "addmm of activations": (
        lambda _, h: torch.addmm(h[0, 0], h[0, 1], matrix(), beta=2, alpha=-1)[None, None],
        lambda _, h: (h[0, 1] @ matrix() * -1 + h[0, 0] * 2)[None, None],
    ),
    "nn.Buffer": (lambda _, h: nn.Buffer(h), lambda _, h: h),
    "tanh copied": (lambda _, h: torch.zeros_like(h).copy_(torch.tanh(h)), lambda _, h: torch.tanh(h)),
    "tanh written": (
        lambda _, h: fresh(h, lambda target, h: target.__setitem__((slice(None), slice(0, 1)), torch.tanh(h[:, :1]))),
        lambda _, h: torch.cat([torch.tanh(h[:, :1]), torch.zeros_like(h[:, 1:])], 1),
    ),
}


def dropped(h):
    """The same units each time."""
    torch.manual_seed(3)
    return F.dropout(h, 0.5, training=True)


def pairs(h):
    return h.permute(0, 2, 3, 1).contiguous()


def magnitude(h):
    return (h.square().sum(1, keepdim=True)).sqrt()


def matrix():
    return torch.linspace(-1, 2, 16, dtype=torch.float64).view(4, 4)


def head_of(function):
    """As many outputs of the step as the classifier sees: 32."""

    def filled(step, h):
        flat = function(step, h).flatten(1)
        return flat.repeat(1, -(-32 // flat.shape[1]))[:, :32].view(1, 2, 4, 4)

    return filled


@pytest.mark.parametrize("contrastive", [False, True])
@pytest.mark.parametrize("way", TWINS)
def test_rules_agree_with_their_plain_twins(way, contrastive):
    odd, plain = map(head_of, TWINS[way])
    x = image()
    with torch.no_grad():
        output = network(odd, skip=False)(x)
        assert torch.allclose(output, network(plain, skip=False)(x), atol=1e-12)
    assert torch.equal(ExcitationPass(network(odd, skip=False), x, ["tap"]).output, output)  # to the last bit
    found = maps(odd, skip=False, contrastive=contrastive)
    expected = maps(plain, skip=False, contrastive=contrastive)
    assert contrastive or expected.abs().sum() > 0.01
    assert torch.allclose(found, expected, atol=1e-12)


def test_a_hidden_write_to_a_slice():
    """Autograd's node for it does not tell what was written."""

    def tripled(_, h):
        h = h.clone()
        with torch._C.DisableTorchFunction():
            h[:, 0].mul_(3)
        return h

    with pytest.raises(NoRuleError):
        maps(tripled, skip=True)


# --- 5: errors of the right kind ---


def own_gradient(h):
    with torch.enable_grad():
        leaf = h.detach().requires_grad_()
        return torch.autograd.grad((leaf * leaf).sum() / 2, leaf)[0]


UNUSUAL = {
    "_foreach_mul_": lambda _, h: (torch._foreach_mul_([h], 2.0), h)[1],
    "complex product": lambda _, h: (torch.view_as_complex(pairs(h)) * 2j).real.view(1, 1, 4, 4).expand(1, 2, 4, 4),
    "product of complex": lambda _, h: (
        torch.view_as_complex(pairs(h)).square().imag.view(1, 1, 4, 4).expand(1, 2, 4, 4)
    ),
    "sparse": lambda _, h: (h * 2).to_sparse().to_dense(),
    "sparse weights": lambda _, h: (torch.eye(4, dtype=h.dtype).to_sparse() @ h[0, 0]).expand(1, 2, 4, 4),
    "mkldnn": lambda _, h: h.float().to_mkldnn().relu().to_dense().to(h.dtype),
    "autograd.grad": lambda _, h: own_gradient(h),
    "pow of two activations": lambda _, h: torch.pow(h + 1, h),
    "negative base": lambda _, h: torch.pow(-2.0, h.detach().round() * 0 + h * 0 + 2),
    "batch norm by activations": lambda s, h: F.batch_norm(
        h, torch.zeros(2).to(h), torch.ones(2).to(h), h.mean((0, 2, 3))
    ),
    "prelu by activations": lambda _, h: F.prelu(h, h.mean((0, 2, 3))),
    "apply_": lambda _, h: h.detach().clone().apply_(lambda number: number),
}


@pytest.mark.parametrize("skip", [True, False], ids=["beside a skip", "alone"])
@pytest.mark.parametrize("way", UNUSUAL)
def test_unusual_calls_are_refused_by_name(way, skip):
    with pytest.raises(NoRuleError, match="no top-down rule for '"):
        maps(UNUSUAL[way], skip)


def test_an_error_of_the_network_stays_its_own():
    with pytest.raises(RuntimeError, match="shape"):
        maps(lambda _, h: h.view(3, 5), skip=True)
    with pytest.raises(ZeroDivisionError):
        maps(lambda _, h: h * (1 / 0), skip=True)
