"""A network is left exactly as it was found, and answers exactly as it does without us."""

import copy
import gc
import weakref

import pytest
import torch
from oracle import randomise
from torch import nn
from torch.nn import functional as F

from excite.errors import ExciteError
from excite.propagation import ExcitationPass, Gradients, mwp, sample_winners


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.3)
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True), nn.BatchNorm2d(4))
        self.norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        self.fc = nn.Linear(4, 5)
        self.register_buffer("nothing", None)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(4), persistent=False)
        randomise(self)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        out = self.inner(x)
        out += x
        out = self.norm(out)
        self.calls += 1
        self.average = 0.9 * self.average + 0.1 * out.mean((0, 2, 3))
        return self.fc(self.drop(out).mean((2, 3)))


def fingerprint(module):
    """Everything about a module that somebody could notice."""
    found = {}
    for name, child in module.named_modules():
        found[name] = {
            "attributes": set(vars(child)),
            "training": child.training,
            "type": type(child),
            "forward": child.forward.__func__,
            "hooks": {key: list(value) for key, value in vars(child).items() if "hooks" in key and value is not None},
            "parameters": {
                key: (id(value), value.requires_grad, value.grad, set(vars(value)), value.clone())
                for key, value in child.named_parameters(recurse=False)
            },
            "buffers": {
                key: (id(value), value.requires_grad, set(vars(value)), value.clone())
                for key, value in child.named_buffers(recurse=False)
            },
        }
    return found


def same(before, after):
    assert before.keys() == after.keys()
    for name, was in before.items():
        now = after[name]
        for key in ("attributes", "training", "type", "forward", "hooks"):
            assert was[key] == now[key], (name, key)
        for group in ("parameters", "buffers"):
            assert was[group].keys() == now[group].keys()
            for key, values in was[group].items():
                assert values[:2] == now[group][key][:2], (name, key)
                assert torch.equal(values[-1], now[group][key][-1]), (name, key)
                assert values[-2] == now[group][key][-2], (name, key)


def picture(batch=2):
    return torch.rand(batch, 3, 6, 6, generator=torch.Generator().manual_seed(0))


STATES = {
    "evaluating": lambda net: net.eval(),
    "training": lambda net: net.train(),
    "mixed": lambda net: (net.train(), net.bn.eval(), net.inner[2].eval(), net.drop.eval()),
    "frozen": lambda net: net.eval().requires_grad_(requires_grad=False),
    "partly frozen": lambda net: (net.eval(), net.conv.requires_grad_(requires_grad=False)),
    "with gradients": lambda net: net.eval()(picture()).sum().backward(),
}


def gradients(net, x, _unit, layer):
    found = Gradients(net, x, layer)
    for way in ("grad", "deconv", "guided", "lrp"):
        found.down(torch.ones_like(found.output), way)


@pytest.mark.parametrize("ask", [mwp, gradients])
@pytest.mark.parametrize("layers", [["conv"], ["input", "bn", "inner"], ["inner.2", "relu", "fc"]])
@pytest.mark.parametrize("state", STATES)
def test_nothing_is_changed(state, layers, ask):
    net = Small()
    STATES[state](net)
    x = picture()
    kept = x.clone()
    before = fingerprint(net)
    ask(net, x, 1, layer=layers)
    same(before, fingerprint(net))
    assert torch.equal(x, kept)
    assert (x.requires_grad, x.grad_fn, x.grad, vars(x)) == (False, None, None, {})
    if state == "with gradients":
        assert net.conv.weight.grad is not None


def test_also_when_something_goes_wrong():
    class Fails(Small):
        def forward(self, x):
            super().forward(x)
            raise ArithmeticError

    net = Fails().train()
    before = fingerprint(net)
    with pytest.raises(ArithmeticError):
        mwp(net, picture(), 1, layer="bn")
    same(before, fingerprint(net))
    net = Small().train()
    before = fingerprint(net)
    for wrong in ({"layer": "absent"}, {"layer": "conv#7"}, {"layer": "drop", "contrastive": True}):
        with pytest.raises(ExciteError):
            mwp(net, picture(), 99, **wrong)
    same(before, fingerprint(net))


@pytest.mark.parametrize("state", ["evaluating", "training", "frozen", "mixed"])
@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("layers", [["bn"], ["conv"], ["inner.0", "fc"]])
def test_the_output_is_the_networks_own_to_the_bit(state, surroundings, layers):
    net = Small()
    STATES[state](net)
    twin = copy.deepcopy(net)
    x = picture()
    torch.manual_seed(3)
    with surroundings():
        expected = twin(x)
    torch.manual_seed(3)
    with surroundings():
        excitation = ExcitationPass(net, x, layers)
    assert torch.equal(excitation.output, expected)
    assert not excitation.output.requires_grad
    for layer in layers:
        assert excitation.readings[layer].probe.shape == excitation.readings[layer].activation.shape


def test_a_backward_pass_of_the_user_still_works():
    """A loss computed before we looked can still be differentiated after, also through norms in training mode."""
    net, x = Small().train(), picture()
    net.drop.eval()
    twin = copy.deepcopy(net)
    loss = net(x).square().sum()
    mwp(net, x, 1, layer="bn")
    loss.backward()
    twin(x).square().sum().backward()
    for mine, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_activations_that_a_network_stores_do_not_carry_our_graph():
    """Networks keep attention maps for later; those must stay ordinary tensors."""

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.fc = nn.Linear(3, 4), nn.Linear(4, 2)
            self.last = None

        def forward(self, x):
            self.last = F.relu(self.a(x))
            return self.fc(self.last)

    net = Keeps()
    mwp(net, torch.rand(1, 3), 0, layer="a")
    assert net.last is None or not net.last.requires_grad


@pytest.mark.parametrize("look", [ExcitationPass, Gradients])
def test_nothing_waits_for_the_garbage_collector(look):
    """Python cannot know how large a tensor is: in a cycle it may stay for a hundred images."""
    gc.collect()
    gc.disable()
    try:
        found = look(Small().eval(), picture(), ["bn"])
        found.down(torch.ones_like(found.output))
        trace = weakref.ref(found)
        output = weakref.ref(found._traced)
        del found
        assert trace() is None
        assert output() is None
    finally:
        gc.enable()


def test_randomness_of_the_surroundings_is_only_used_by_the_network():
    net, x = Small().eval(), picture(1)
    state = torch.random.get_rng_state()
    mwp(net, x, 1, layer="bn")
    sample_winners(net, x, 1, layers=["bn"], count=5)
    assert torch.equal(torch.random.get_rng_state(), state)
