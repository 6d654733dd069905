"""A map is always that of the weights as they are, however they were changed since the last one.

Each edit is made on a network whose maps were just computed. The next map must be, bit for bit, that of a deep copy
that no map was computed of yet, and the plain kernels' map of it; and it must differ from the map before, or else the
case would show nothing.
"""

import copy
import ctypes
import gc
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune, vector_to_parameters

from excite.errors import SignalError
from excite.propagation import ExcitationPass, mwp, plain_kernels
from excite.propagation.fast import kernels
from excite.propagation.fast.shortcuts import CACHE
from excite.propagation.graph import nodes_below, rule_of


class Net(nn.Module):
    """Every way in which weights are read: ``few`` in blocks of windows, ``wide`` in blocks of rows, and so on."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.direct = nn.Conv2d(8, 8, 3, padding=1)
        self.narrow, self.wide = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 32, 1)
        self.few = nn.Conv2d(32, 16, 3, padding=1)
        self.strided = nn.Conv2d(16, 8, 3, 2, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.dense, self.top = nn.Linear(72, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.direct(F.relu(self.stem(x)))))
        x = F.relu(self.few(F.relu(self.wide(F.relu(self.narrow(x))))))
        x = F.relu(self.depthwise(F.relu(self.strided(x))))
        return self.top(F.relu(self.dense(x.flatten(1))))


LAYERS = ["direct", "narrow", "wide", "few", "strided", "depthwise", "dense"]
SOME = ["direct", "few", "dense"]  # where the kernels make no difference
SIGNALS = torch.eye(5)[:, None]
X = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch):
    """So that small weights are read as large ones are."""
    monkeypatch.setattr(kernels, "MANY", 100)
    monkeypatch.setattr(kernels, "LARGE", 2000)
    monkeypatch.setattr(kernels, "BLOCK", 1000)


def network():
    """Weights and scales of both signs; all units respond, so that every weight matters."""
    torch.manual_seed(0)
    net = Net().eval()
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            nn.init.constant_(parameter, 1.0)
        else:
            nn.init.normal_(parameter, std=0.5 * max(parameter[0].numel(), 1) ** -0.5)
    return net


def map_of(net):
    """The maps of all classes."""
    return mwp(net, X.to(next(net.parameters()).dtype), SIGNALS, layer="stem", contrastive=True).float()


def check(net, edit, tolerance=1e-4):
    """The map after an edit of a network whose maps were computed before."""
    before = [map_of(net) for _ in range(2)][1]
    edit()
    found = map_of(net)
    CACHE.clear()
    fresh = copy.deepcopy(net)
    assert not torch.equal(map_of(fresh), before)
    assert torch.equal(found, map_of(fresh))
    with plain_kernels():
        plain = map_of(fresh)
    torch.testing.assert_close(found, plain, rtol=0, atol=tolerance * float(plain.abs().max()))


def test_all_kernels_are_used():
    excitation = ExcitationPass(network(), X, ["stem"])
    used = {type(rule).__name__ for node in nodes_below(excitation.top) if (rule := rule_of(node)) is not None}
    assert {"FastAffine", "WindowRule", "DenseRule"} <= used


# --- edits of one weight ----------------------------------------------------------------------------------------------


def strongest(weight):
    """The index of its largest number, which surely matters."""
    return np.unravel_index(int(weight.detach().argmax()), tuple(weight.shape))


def permuted(weight, dim=0):
    order = torch.randperm(weight.shape[dim], generator=torch.Generator().manual_seed(2))
    return weight.index_select(dim, order)


def half_of_a_filter(weight):
    weight[2].view(-1)[: weight[2].numel() // 2] = 0


def mirrored(weight):
    weight.copy_(weight.flatten(1).flip(1).view_as(weight))


def one_bit(weight, bit):
    weight.numpy().view(np.uint32)[strongest(weight)] ^= np.uint32(1 << bit)


def sign_bits(weight):
    weight.numpy().view(np.uint32)[:] ^= np.uint32(1 << 31)


def overwritten(weight):
    """By C code, which torch knows nothing of."""
    ctypes.memset(weight.data_ptr() + 4 * (weight.numel() // 4), 0, 2 * weight.numel())


def quantised(weight):
    """By hand: to three bits, with one scale for each filter."""
    scale = weight.flatten(1).abs().amax(1).view(-1, *[1] * (weight.dim() - 1)) / 3
    weight.copy_((weight / scale).round() * scale)


# Of the weights' memory; each through ``.data``, which torch does not count.
VALUES = {
    "negated": lambda weight: weight.neg_(),
    "one filter flipped": lambda weight: weight[2].neg_(),
    "two filters flipped": lambda weight: weight[1:3].neg_(),
    "every other filter flipped": lambda weight: weight[::2].neg_(),
    "half-pruned filter": half_of_a_filter,
    "one channel off": lambda weight: weight[:, 0].zero_(),
    "filters permuted": lambda weight: weight.copy_(permuted(weight)),
    "two filters exchanged": lambda weight: weight[:2].copy_(weight[:2].flip(0)),
    "mirrored": mirrored,
    "one sign bit": lambda weight: one_bit(weight, 31),
    "one bit of an exponent": lambda weight: one_bit(weight, 23),
    "one bit of a fraction": lambda weight: one_bit(weight, 20),
    "all sign bits": sign_bits,
    "one number off": lambda weight: weight.view(-1)[int(weight.argmax())].zero_(),
    "small ones pruned": lambda weight: weight.mul_(weight.abs() > weight.abs().median()),
    "faint": lambda weight: weight.mul_(1e-40).neg_(),
    "huge": lambda weight: weight.mul_(-1e15),
    "rounded": lambda weight: weight.copy_((weight * 3).round() / 3),
    "quantised": quantised,
    "in eight bits": lambda weight: weight.copy_(weight.to(torch.float8_e4m3fn).float()),
    "overwritten": overwritten,
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", VALUES)
def test_through_data(name, layer):
    net = network()
    check(net, lambda: VALUES[name](net.get_submodule(layer).weight.data))


def no_grad(change):
    def edit(module):
        with torch.no_grad():
            change(module.weight)

    return edit


def numpy_of(change):
    return lambda module: change(module.weight.detach().numpy())


def other_memory(module):
    module.weight.data = -module.weight.data


def other_order(module):
    """The same shape with other strides."""
    turned = -module.weight.data
    module.weight.data = turned.transpose(0, 1).contiguous().transpose(0, 1)


def other_storage(module):
    with torch.no_grad():
        module.weight.set_(-module.weight.detach())


def through_storage(module):
    module.weight.untyped_storage().copy_((-module.weight.detach()).untyped_storage())


def through_dlpack(module):
    torch.from_dlpack(module.weight.detach()).neg_()


def shared_memory(module):
    module.weight.share_memory_()
    module.weight.data.neg_()


def another_parameter(module):
    module.weight = nn.Parameter(-module.weight.detach())


def swapped(module):
    torch.utils.swap_tensors(module.weight, nn.Parameter(-module.weight.detach()))


def a_buffer(module):
    weight = -module.weight.detach()
    del module.weight
    module.register_buffer("weight", weight)


def loaded(module, **how):
    module.load_state_dict({name: -value for name, value in module.state_dict().items()}, **how)


def from_a_vector(module):
    vector_to_parameters(torch.cat([-each.detach().flatten() for each in module.parameters()]), module.parameters())


def in_a_thread(module):
    thread = threading.Thread(target=module.weight.data.neg_)
    thread.start()
    thread.join()


def same_address(module):
    """The parameter is gone, and another one is made in its memory, with the same name."""
    memory = module.weight.detach().numpy()
    del module.weight
    gc.collect()
    memory *= -1
    module.weight = nn.Parameter(torch.from_numpy(memory))


def pruned(how, **more):
    return lambda module: how(module, "weight", amount=0.5, **more)


def pruned_for_good(module):
    prune.l1_unstructured(module, "weight", amount=0.5)
    prune.remove(module, "weight")


class Negated(nn.Module):
    def forward(self, weight):
        return -weight


def parametrised(module):
    parametrize.register_parametrization(module, "weight", Negated())


def parametrised_for_good(module):
    parametrised(module)
    parametrize.remove_parametrizations(module, "weight")


EDITS = {
    "neg_": no_grad(lambda weight: weight.neg_()),
    "copy_": no_grad(lambda weight: weight.copy_(-weight)),
    "one filter by index": no_grad(lambda weight: weight.index_fill_(0, torch.tensor([2]), 0)),
    "masked": no_grad(lambda weight: weight.masked_fill_(weight > weight.mean(), 0)),
    "a view of it": no_grad(lambda weight: weight.view(-1)[::2].neg_()),
    "foreach": no_grad(lambda weight: torch._foreach_neg_([weight])),
    "drawn anew": lambda module: module.reset_parameters(),
    "NumPy": numpy_of(lambda values: np.negative(values, out=values)),
    "NumPy, one filter": numpy_of(lambda values: values.__setitem__(2, 0)),
    "NumPy, sorted": numpy_of(lambda values: values.sort(1)),
    "NumPy, shuffled": numpy_of(lambda values: np.random.default_rng(0).shuffle(values)),
    "other memory": other_memory,
    "other order": other_order,
    "other storage": other_storage,
    "through the storage": through_storage,
    "through DLPack": through_dlpack,
    "shared memory": shared_memory,
    "another parameter": another_parameter,
    "swapped": swapped,
    "a buffer": a_buffer,
    "loaded": loaded,
    "loaded and assigned": lambda module: loaded(module, assign=True),
    "from a vector": from_a_vector,
    "in a thread": in_a_thread,
    "at the same address": same_address,
    "pruned by size": pruned(prune.l1_unstructured),
    "pruned at random": pruned(prune.random_unstructured),
    "pruned by filter": pruned(prune.ln_structured, n=2, dim=0),
    "pruned for good": pruned_for_good,
    "parametrised": parametrised,
    "parametrised for good": parametrised_for_good,
    "weight norm": lambda module: (
        parametrizations.weight_norm(module),
        module.parametrizations.weight.original1.data.neg_(),
    ),
}


@pytest.mark.parametrize("layer", SOME)
@pytest.mark.parametrize("name", EDITS)
def test_by_torch_and_others(name, layer):
    net = network()
    check(net, lambda: EDITS[name](net.get_submodule(layer)))


def in_place(module):
    with torch.no_grad():
        module.weight[2].neg_()


def through_data(module):
    module.weight.data[2].neg_()


# --- edits of weights that are made of others, or shared --------------------------------------------------------------


@pytest.mark.parametrize("layer", SOME)
@pytest.mark.parametrize("part", ["weight_orig", "weight_mask"])
def test_what_a_pruned_weight_is_made_of(part, layer):
    net = network()
    module = net.get_submodule(layer)
    prune.l1_unstructured(module, "weight", amount=0.3)
    check(net, getattr(module, part).data[1:3].neg_)


@pytest.mark.parametrize("layer", SOME)
def test_what_a_parametrised_weight_is_made_of(layer):
    net = network()
    module = net.get_submodule(layer)
    parametrised(module)
    check(net, module.parametrizations.weight.original.data[2].neg_)


def test_one_memory_of_all_weights():
    """As some optimisers and communication libraries keep it."""
    net = network()
    flat = torch.cat([each.detach().flatten() for each in net.parameters()])
    start = 0
    for each in net.parameters():
        each.data = flat[start : start + each.numel()].view(each.shape)
        start += each.numel()
    check(net, flat.neg_)


@pytest.mark.parametrize("edit", [in_place, through_data])
def test_one_weight_of_two_layers(edit):
    net = network()
    net.few = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), net.few)
    net.few[0].weight = net.few[2].weight
    check(net, lambda: edit(net.few[0]))


def test_the_scale_of_a_norm():
    for edit in (
        lambda scale: scale.data[1].neg_(),
        lambda scale: scale.data.neg_(),
        lambda scale: scale.data[2].zero_(),
    ):
        net = network()
        check(net, lambda net=net, edit=edit: edit(net.norm.weight))


@pytest.mark.parametrize("layer", LAYERS)
def test_in_half_precision(layer):
    net = network().bfloat16()
    check(net, lambda: through_data(net.get_submodule(layer)), tolerance=1e-2)


@pytest.mark.parametrize("layer", SOME)
def test_in_double_precision(layer):
    net = network().double()
    check(net, lambda: through_data(net.get_submodule(layer)))


@pytest.mark.parametrize("layer", LAYERS)
def test_in_inference_mode(layer):
    with torch.inference_mode():
        net = network()
        check(net, lambda: in_place(net.get_submodule(layer)))


def test_there_and_back_again():
    net = network()
    first = map_of(net)
    for _ in range(2):
        net.few.weight.data.neg_()
        second = map_of(net)
        net.few.weight.data.neg_()
        assert not torch.equal(first, second)
        assert torch.equal(first, map_of(net))


# --- optimisers -------------------------------------------------------------------------------------------------------

OPTIMISERS = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=1.0),
    "SGD with momentum, foreach": lambda weights: torch.optim.SGD(weights, lr=1.0, momentum=0.9, foreach=True),
    "SGD, fused": lambda weights: torch.optim.SGD(weights, lr=1.0, fused=True),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.1),
    "Adam, foreach": lambda weights: torch.optim.Adam(weights, lr=0.1, foreach=True),
    "Adam, fused": lambda weights: torch.optim.Adam(weights, lr=0.1, fused=True),
    "AdamW, fused": lambda weights: torch.optim.AdamW(weights, lr=0.1, fused=True),
    "RMSprop": lambda weights: torch.optim.RMSprop(weights, lr=0.1),
    "Adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.1),
    "Rprop": lambda weights: torch.optim.Rprop(weights, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name):
    net = network()
    optimiser = OPTIMISERS[name](net.parameters())

    def step():
        (net(X) ** 2).sum().backward()
        optimiser.step()

    check(net, step)


# --- edits between a forward pass and its top-down pass ---------------------------------------------------------------

COUNTED = ["neg_", "copy_", "masked", "a view of it", "foreach", "other storage", "loaded", "parametrised"]
ELSEWHERE = [
    "other memory",
    "other order",
    "another parameter",
    "swapped",
    "a buffer",
    "loaded and assigned",
    "pruned by size",
]


@pytest.mark.parametrize("layer", SOME)
@pytest.mark.parametrize("name", COUNTED)
def test_what_torch_counts_is_refused_in_between(name, layer):
    net = network()
    excitation = ExcitationPass(net, X, ["stem"])
    EDITS[name](net.get_submodule(layer))
    with pytest.raises(SignalError, match="weights were changed"):
        excitation.down(SIGNALS)


@pytest.mark.parametrize("layer", SOME)
@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_memory_does_not_matter_in_between(name, layer):
    net = network()
    wanted = ExcitationPass(net, X, ["stem"]).down(SIGNALS)["stem"]
    excitation = ExcitationPass(net, X, ["stem"])
    EDITS[name](net.get_submodule(layer))
    assert torch.equal(excitation.down(SIGNALS)["stem"], wanted)


@pytest.mark.parametrize("layer", SOME)
@pytest.mark.parametrize("name", VALUES)
def test_what_torch_does_not_count_in_between_ends_with_the_pass(name, layer):
    net = network()
    excitation = ExcitationPass(net, X, ["stem"])

    def edit():
        VALUES[name](net.get_submodule(layer).weight.data)
        excitation.down(SIGNALS)

    check(net, edit)
