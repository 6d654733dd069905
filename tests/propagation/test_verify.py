"""The second guard: what the output does when a layer is changed, against what the graph says.

`Around` has a way around the graph beside a skip connection. The classifier's weights are equal within a class, and the
way hands on half of its (flipped) input: whatever the direction, a third of the response passes there.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image
from test_left_as_found import Small, fingerprint, same
from torch import nn
from torch.nn import functional as F
from zoo import torchvision_models

import excite
from excite.errors import LayerError, UnverifiedWarning, VerificationError
from excite.models import Preprocess
from excite.propagation import mwp, verify
from excite.propagation.verify import STEPS

MISSING = 1 / 3


@pytest.fixture(autouse=True)
def kernels():
    """Finite differences use none of the kernels."""


class Around(nn.Module):
    """Two convolutions; the second one's response, and half of it once more by a way of its own."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.way = way
        self.first, self.tap = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()
        self.second, self.fc = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8 * 6 * 6, 3)
        self.register_buffer("workspace", torch.zeros(1, 8, 6, 6))
        with torch.no_grad():
            self.fc.weight.copy_(torch.tensor([[1.0], [-0.5], [2.0]]).expand(3, 8 * 6 * 6))
            self.second.weight.abs_()  # so that little cancels in the sum of all responses
        self.eval()

    def forward(self, x):
        h = F.relu(self.second(self.tap(self.first(x))))
        return self.fc((h + self.way(self, 0.5 * h.flip(3))).flatten(1))


@pytest.fixture(autouse=True)
def _without_the_first_guard(monkeypatch):
    """The taint would refuse all of these before: here it takes whatever is severed or unknown as constant."""
    monkeypatch.setattr("excite.propagation.taint.only_selects", lambda *_: True)


def buffer(net, h):
    net.workspace.copy_(h)
    return net.workspace * 1.0


def thread(net, h):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: h.detach() * 1.0).result()


ESCAPES = {
    "item": lambda net, h: torch.ones_like(h) * h.mean().item(),
    "array": lambda net, h: torch.from_numpy(h.detach().numpy().copy()) * 1.0,
    "numbers": lambda net, h: torch.tensor(h.tolist(), dtype=h.dtype),
    "buffer": buffer,
    "thread": thread,
    "integers": lambda net, h: (h * 256).round().int().to(h.dtype) / 256,
}


def unseen(way):
    """The same in code that no mode sees, so that another guard cannot come first."""

    def hidden(net, h):
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return way(net, h)

    return hidden


def picture(batch=1):
    return torch.rand(batch, 3, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("way", ESCAPES)
def test_the_size_of_what_is_missing(way, exact):
    found = verify(Around(unseen(ESCAPES[way])), picture(), ["tap"], exact=exact)
    assert abs(found.responses["tap"].missing - MISSING) < 0.02
    assert abs(found.accounted["tap"] + MISSING - 1) < 0.02
    with pytest.raises(VerificationError, match=r"layer 'tap', 3[1-5]% does not pass.*expected .*, found .*: values"):
        found.check(strict=False)


def test_a_skip_connection_hides_the_loss():
    """What the guard is for: without it the mass is 1, and a part of the map is at the wrong places."""
    net, twin = Around(unseen(ESCAPES["array"])), Around(lambda net, h: h)
    with torch.no_grad():
        for each in (net, twin):
            each.fc.weight.view(3, 8, 6, 6)[..., :3] *= 0.1
    wrong, right = (mwp(each, picture(), 0, layer="tap") for each in (net, twin))
    assert abs(float(wrong.sum()) - 1) < 1e-5
    assert float((wrong - right).abs().sum()) > 0.1
    with pytest.raises(VerificationError):
        mwp(net, picture(), 0, layer="tap", verify=True)
    assert torch.equal(mwp(twin, picture(), 0, layer="tap", verify=True), right)


def test_rounding_is_seen_by_the_large_step():
    """A tiny step changes no integer, or is all noise: only the large one tells."""
    rounded = unseen(lambda net, h: (h * 16).round().int().to(h.dtype) / 16)
    for exact in (True, False):
        found = verify(Around(rounded), picture(), ["tap"], exact=exact).responses["tap"]
        assert found.differs
        assert found.step == max(STEPS)


# --- no false alarm ------------------------------------------------------------------------------------------------


def body(**options):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3)
    )
    return nn.Sequential(*net, nn.GELU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(32, 4)).eval(**options)


class Many(nn.Module):
    """One module called three times, two arguments, a dict as the answer, a logit of -inf."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.mix, self.fc = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x, scale):
        for _ in range(3):
            x = F.relu(self.mix(x * scale))
        return {"logits": self.fc(x).masked_fill(torch.tensor([False, True, False, False]), -torch.inf)}


def test_calls_arguments_and_answers_of_all_kinds():
    inputs = torch.rand(2, 16), torch.tensor(1.5)
    found = verify(Many().eval(), inputs, ["mix#0", "mix#1", "mix", "input"])
    assert min(found.accounted.values()) > 1 - 1e-6
    found.check()
    assert found.responses["mix#0"].found != found.responses["mix"].found
    with pytest.raises(LayerError, match="#2"):
        verify(Many().eval(), inputs, ["mix#3"])


@pytest.mark.parametrize("x", [torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8), torch.rand(3, 3, 8, 8)])
def test_blank_images_and_batches(x):
    """Where all places are equal, a pooling has ties and a unit may lie exactly at its kink."""
    for exact in (True, False):
        verify(body(), x, ["0", "2", "3", "4", "input"], exact=exact).check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types(dtype, monkeypatch):
    """Half precision is too coarse for all steps but the largest: a small network is copied to double precision."""
    net, x = body().to(dtype), torch.rand(1, 3, 8, 8).to(dtype)
    for exact in (True, False):
        assert verify(net, x, ["2"], exact=exact).accounted["2"] > 1 - 1e-6
    monkeypatch.setattr(import_module("excite.propagation.verify"), "MOST_BYTES", 100)
    own = verify(net, x, ["2"])
    own.check()
    assert own.dtype == dtype
    assert own.responses["2"].step == (1e-6 if dtype == torch.float64 else max(STEPS))


def test_autocast_and_inference_mode():
    net, x = body(), torch.rand(1, 3, 8, 8)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        verify(net, x, ["2"], exact=False).check()
    with torch.inference_mode():
        found = verify(net, x.clone(), ["2"])
    found.check()
    assert found.dtype == torch.float64
    with torch.inference_mode():
        net = body()
    verify(net, x, ["2"], exact=False).check()


def test_dropout_and_norms_in_training_mode_are_the_same_in_each_run():
    net, x = body().train(), torch.rand(4, 3, 8, 8)
    state = torch.get_rng_state()
    found = verify(net, x, ["2"])
    assert found.repeats
    assert found.accounted["2"] > 1 - 1e-6
    assert torch.equal(torch.get_rng_state(), state)


def test_a_gradient_that_is_not_finite_is_no_fault():
    """The norm of zeros is 0, and has no gradient: the map is not concerned, and the response cannot be verified."""
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), Root(), nn.Flatten(), nn.Linear(32, 3)).eval()
    with torch.no_grad():
        net[0].bias.copy_(torch.tensor([5.0, -5.0] * 4))
    found = verify(net, torch.rand(1, 3, 2, 2), ["1"])
    assert found.unclear == ["1"]
    with pytest.warns(UnverifiedWarning, match="cannot be verified"):
        found.check(strict=False)


class Root(nn.Module):
    def forward(self, h):
        return h.sqrt() + h


class Tokens(nn.Module):
    """Places as tokens behind a batch norm, as in LeViT and EfficientFormer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)
        nn.init.uniform_(self.norm.weight, 0.5, 2)

    def forward(self, x):
        return F.relu(self.fc(self.norm(self.conv(x)).flatten(2).transpose(1, 2))).mean(1)


def test_one_image_whose_gradient_comes_in_another_order():
    """There torch's batch norm gives a wrong gradient (torch 2.13): Gradients puts the signal in order first."""
    found = verify(Tokens().eval(), torch.rand(1, 3, 8, 8), ["conv"])
    assert found.accounted["conv"] > 1 - 1e-6


ARCHITECTURES = {
    "efficientnet_b0": "features.5",
    "resnet18": "layer3",
    "swin_t": "features.3",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name):
    try:
        models = torchvision_models()
    except ImportError:
        pytest.skip("torchvision's model definitions are verified here")
    torch.manual_seed(0)
    net = getattr(models, name)(weights=None).eval()
    found = verify(net, torch.rand(1, 3, 64, 64), [ARCHITECTURES[name]], exact=False)
    assert found.accounted[ARCHITECTURES[name]] > 0.97
    found.check()


# --- the network -----------------------------------------------------------------------------------------------------


def test_the_network_is_left_as_it_was_found():
    for net in (Small().eval(), Small().train()):
        net.last = None
        before, state = fingerprint(net), torch.get_rng_state()
        x = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
        given = x.clone()
        for exact in (True, False):
            verify(net, x, ["inner.1", "input"], exact=exact)
        same(before, fingerprint(net))
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(x, given)


def test_several_threads_verify_one_network():
    net, x = body(), torch.rand(1, 3, 8, 8)
    alone = verify(net, x, ["2"], exact=False)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: verify(net, x, ["2"], exact=False), range(4))) == [alone] * 4
    assert not any(child._forward_hooks for child in net.modules())


def test_networks_that_cannot_be_copied_or_converted_are_verified_as_they_are(monkeypatch):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.lock = body(), threading.Lock()

        def forward(self, x):
            return self.net(x)

    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = body()

        def forward(self, x):
            return self.net(x.float())

    x = torch.rand(1, 3, 8, 8)
    for net in (Own(), Single()):
        found = verify(net.eval(), x, ["net.2"])
        found.check()
        assert found.dtype == torch.float32
    monkeypatch.setattr(import_module("excite.propagation.verify"), "MOST_BYTES", 100)
    assert verify(body(), x, ["2"]).dtype == torch.float32


class Noisy(nn.Module):
    """Random numbers of its own, which no seed of torch fixes."""

    def __init__(self, size):
        super().__init__()
        self.net, self.size, self.random = body(), size, np.random.default_rng(0)

    def forward(self, x):
        noise = torch.from_numpy(self.random.normal(size=(1, 4)) * self.size).to(x.dtype)
        return self.net(x) + noise


@pytest.mark.parametrize("size", [0.01, 1.0])
def test_a_network_that_answers_otherwise_each_time(size):
    net, x = Noisy(size).eval(), torch.rand(1, 3, 8, 8)
    found = verify(net, x, ["net.2"])
    assert not found.repeats
    with pytest.raises(VerificationError, match="cannot be verified: the network gives another answer at each run"):
        mwp(net, x, 0, layer="net.2", verify=True)
    with pytest.warns(UnverifiedWarning, match=r"'net\.2' cannot be verified.*verify=False"):
        found.check(strict=False)


# --- wrapped networks ------------------------------------------------------------------------------------------------


def photo(seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8))


def wrapped(way, **options):
    preprocess = Preprocess(6, mean=0, scale=1 / 255)
    return excite.wrap(Around(way), preprocess=preprocess, layer="second", **options)


@pytest.mark.parametrize("method", ["c-mwp", "grad-cam"])
def test_a_wrapped_network_is_verified_on_its_first_image(method):
    classifier = wrapped(unseen(buffer))
    for _ in range(2):  # and is refused again
        with pytest.raises(VerificationError, match=r"layer '.*', 33% does not pass"):
            excite.attend(classifier, photo(), 0, method=method)
    assert len(excite.attend(wrapped(unseen(buffer), verify=False), photo(), 0, method=method)) == 1


def tried(classifier):
    """The classifier with all that is found out about its sizes and layers."""
    other = replace(classifier, verified=None)
    excite.attend(other, photo(), 0)
    classifier.known.update(other.known)
    return classifier


def test_once_for_each_set_of_layers():
    runs = []

    def counted(net, h):
        runs.append(1)
        return h

    classifier = tried(wrapped(counted))
    runs.clear()
    costs = []
    for layer in (None, None, "tap", "tap", ["second", "tap"], "second"):
        excite.attend(classifier, photo(len(costs)), 0, layer=layer)
        costs.append(len(runs))
        runs.clear()
    first, *others = costs
    assert others == [1, first, 1, others[3], 1]
    assert 4 <= first <= 7
    assert classifier.verified == {("second",), ("tap",), ("second", "tap")}


def test_only_the_first_image_of_a_batch_is_verified():
    sizes = []

    def counted(net, h):
        sizes.append(len(h))
        return h

    classifier = tried(wrapped(counted))
    sizes.clear()
    excite.attend_batch(classifier, [photo(seed) for seed in range(5)], 0)
    assert sizes[0] == 5
    assert set(sizes[1:]) == {1}


def test_a_wrapped_network_that_cannot_be_verified_is_told_once_and_explained():
    classifier = excite.wrap(Noisy(1.0).eval(), preprocess=Preprocess(8, mean=0, scale=1 / 255), layer="net.2")
    with pytest.warns(UnverifiedWarning, match="verify=False"):
        (first,) = excite.attend(classifier, photo(), 0)
    (second,) = excite.attend(classifier, photo(1), 0)
    assert first.mass > 0
    assert second.mass > 0
