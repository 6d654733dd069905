"""A map is always that of the weights as they are, however they were changed since the last one.

Each edit is made on a network whose maps were just computed. The next map must be, bit for bit, that of a deep copy
that no map was computed of yet, and the plain kernels' map of it; and it must differ from the map before, or else the
case would show nothing.
"""

import copy
import ctypes
import gc
from itertools import cycle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune

from excite.errors import SignalError
from excite.propagation import ExcitationPass, mwp, plain_kernels
from excite.propagation.fast import kernels
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


def one_bit(weight, bit):
    """Of its largest number, which surely matters."""
    place = np.unravel_index(int(weight.detach().argmax()), tuple(weight.shape))
    weight.numpy().view(np.uint32)[place] ^= np.uint32(1 << bit)


VALUES = {  # of the weights' memory; each through ``.data``, which torch does not count
    "every other filter flipped": lambda weight: weight[::2].neg_(),
    "one sign bit": lambda weight: one_bit(weight, 31),
    "faint": lambda weight: weight.mul_(1e-40).neg_(),
    "huge": lambda weight: weight.mul_(-1e15),
    "overwritten by C": lambda weight: ctypes.memset(weight.data_ptr() + weight.numel(), 0, 2 * weight.numel()),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", VALUES)
def test_through_data(name, layer):
    """Also between a forward pass and its top-down pass: the next pass has the weights as they are."""
    net = network()
    excitation = ExcitationPass(net, X, ["stem"])

    def edit():
        VALUES[name](net.get_submodule(layer).weight.data)
        excitation.down(SIGNALS)

    check(net, edit)


def no_grad(change):
    def edit(module):
        with torch.no_grad():
            change(module.weight)

    return edit


def set_data(module, value):
    module.weight.data = value


def set_parameter(module, value):
    module.weight = nn.Parameter(value)


def a_buffer(module):
    weight = -module.weight.detach()
    del module.weight
    module.register_buffer("weight", weight)


def loaded(module):
    module.load_state_dict({name: -value for name, value in module.state_dict().items()})


def same_address(module):
    """The parameter is gone, and another one is made in its memory, with the same name."""
    memory = module.weight.detach().numpy()
    del module.weight
    gc.collect()
    memory *= -1
    module.weight = nn.Parameter(torch.from_numpy(memory))


class Negated(nn.Module):
    def forward(self, weight):
        return -weight


COUNTED = {  # by torch: a top-down pass with other weights than its forward pass is refused
    "neg_": no_grad(lambda weight: weight.neg_()),
    "a view of it": no_grad(lambda weight: weight.view(-1)[::2].neg_()),
    "other storage": no_grad(lambda weight: weight.set_(-weight.detach())),
    "loaded": loaded,
    "parametrised": lambda module: parametrize.register_parametrization(module, "weight", Negated()),
}
ELSEWHERE = {  # the old weights stay where they were
    "other memory": lambda module: set_data(module, -module.weight.data),
    "another parameter": lambda module: set_parameter(module, -module.weight.detach()),
    "swapped": lambda module: torch.utils.swap_tensors(module.weight, nn.Parameter(-module.weight.detach())),
    "a buffer": a_buffer,
    "pruned": lambda module: prune.l1_unstructured(module, "weight", amount=0.5),
}
UNSEEN = {  # by anybody
    "NumPy": lambda module: module.weight.detach().numpy().sort(1),
    "through the storage": lambda module: module.weight.untyped_storage().copy_((-module.weight).untyped_storage()),
    "through DLPack": lambda module: torch.from_dlpack(module.weight.detach()).neg_(),
    "at the same address": same_address,
}
EDITS = {**COUNTED, **ELSEWHERE, **UNSEEN}


@pytest.mark.parametrize(("name", "layer"), [*zip(EDITS, cycle(SOME), strict=False)])
def test_by_torch_and_others(name, layer):
    net = network()
    check(net, lambda: EDITS[name](net.get_submodule(layer)))


@pytest.mark.parametrize(("name", "layer"), [*zip([*COUNTED, *ELSEWHERE], cycle(SOME), strict=False)])
def test_between_a_forward_pass_and_its_top_down_pass(name, layer):
    net = network()
    wanted = ExcitationPass(net, X, ["stem"]).down(SIGNALS)["stem"]
    excitation = ExcitationPass(net, X, ["stem"])
    EDITS[name](net.get_submodule(layer))
    if name in COUNTED:
        with pytest.raises(SignalError, match="weights were changed"):
            excitation.down(SIGNALS)
    else:
        assert torch.equal(excitation.down(SIGNALS)["stem"], wanted)


@pytest.mark.parametrize(
    "edit", [lambda scale: scale[1].neg_(), lambda scale: scale.neg_(), lambda scale: scale[2].zero_()]
)
def test_the_scale_of_a_norm(edit):
    net = network()
    check(net, lambda: edit(net.norm.weight.data))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float64, 1e-4)], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_in_other_types(layer, dtype, tolerance):
    net = network().to(dtype)
    check(net, net.get_submodule(layer).weight.data[2].neg_, tolerance)


@pytest.mark.parametrize("layer", SOME)
def test_in_inference_mode(layer):
    with torch.inference_mode():
        net = network()
        check(net, net.get_submodule(layer).weight[2].neg_)
