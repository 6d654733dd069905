"""What cannot be explained is refused, by name and with a remedy; never answered with a wrong map."""

import warnings

import pytest
import torch
from oracle import Net, randomise
from torch import nn
from torch.nn import functional as F

from excite.errors import LayerError, MethodError, ModelError, NoRuleError, SignalError, SizeError
from excite.propagation import ExcitationPass, absorbing_chain, mwp, sample_winners, transition_matrix, winner_take_all
from excite.propagation.gradients import Gradients


@pytest.fixture(autouse=True)
def kernels():
    """The kernels refuse nothing: what is refused is the same with all."""


def parts():
    return {"a": nn.Conv2d(2, 2, 3, padding=1), "inner": Inner()}


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.function = lambda h: h

    def forward(self, h):
        return self.function(h)


def picture(batch=1):
    return torch.rand(batch, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0


def compiled(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript announces its end with every call
        return torch.jit.trace(function, torch.rand(1, 2, 4, 4, dtype=torch.float64))


UNKNOWN = {
    "fft_fft": lambda h: torch.fft.fft(h).abs(),
    "matmul": lambda h: h @ h.transpose(2, 3),
    "scatter_add": lambda h: h.scatter_add(1, torch.zeros_like(h, dtype=torch.long), h),
}


@pytest.mark.parametrize("skipped", [False, True])
@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_operations_are_named(name, skipped):
    """Also when a skip connection would hide that the signal was lost."""
    net = Net(lambda net, h: net.inner(F.relu(net.a(h))) + (h if skipped else 0.0), 32, **parts())
    net.inner.function = UNKNOWN[name]
    with pytest.raises(NoRuleError) as refusal:
        mwp(net, picture(), 0, layer="tap")
    message = str(refusal.value)
    assert f"'{name}'" in message
    assert "'inner'" in message
    assert "OPERATIONS" in message


@pytest.mark.parametrize("skipped", [False, True])
@pytest.mark.parametrize("kind", ["TorchScript", "a function of autograd"])
def test_code_that_hides_its_operations(skipped, kind):
    """A whole network in TorchScript is refused as such; a function of it is found on the way down."""
    function = compiled(lambda h: h * torch.sigmoid(h) + h.mean()) if kind == "TorchScript" else Identity.apply
    net = Net(lambda net, h: net.inner(F.relu(net.a(h))) + (h if skipped else 0.0), 32, **parts())
    net.inner.function = function
    for _ in range(3):  # the first calls of TorchScript differ from later ones
        with pytest.raises((NoRuleError, ModelError)):
            mwp(net, picture(), 0, layer="tap")


@pytest.mark.parametrize("computed", [False, True])
def test_hidden_code_below_the_layer_does_not_matter(computed):
    """Trainable parameters inside a custom function below the layer do not stand in the way."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h, scale):
            return h * scale

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None

    class Below(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.tap, self.fc = nn.ReLU(), nn.Linear(4, 2)

        def forward(self, x):
            hidden = Scaled.apply(x, self.scale * 2 if computed else self.scale)
            return self.fc(self.tap(hidden + x) + hidden)

    net = randomise(Below())
    x = torch.rand(1, 4)
    found = mwp(net, x, 0, layer="tap")
    pushes = (net.fc.weight[0].detach() * x).clamp(min=0)
    assert 0 < found.sum() <= 1 + 1e-6
    assert ((found > 0) == (pushes > 0)).all()


def test_torchscript_networks():
    net = Net(lambda net, h: h, 32, **parts())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = torch.jit.trace(net, picture())
        part = nn.Sequential(nn.Identity(), torch.jit.trace(nn.ReLU(), picture()))
    with pytest.raises(ModelError, match="TorchScript"):
        mwp(whole, picture(), 0, layer="tap")
    with pytest.raises(ModelError, match=r"'1'.*TorchScript"):
        mwp(part, picture(), 0, layer="0")


def test_outputs_without_units():
    class Odd(nn.Module):
        def __init__(self, answer):
            super().__init__()
            self.tap, self.answer = nn.Identity(), answer

        def forward(self, x):
            self.tap(x)
            return self.answer

    for answer in (None, 3, {}, (), "text", object()):
        with pytest.raises(ModelError, match="output units"):
            mwp(Odd(answer), picture(), 0, layer="tap")


# --- layers --------------------------------------------------------------------------------------------------------


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.side, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.pair = Pair()
        self.fc = nn.Linear(4, 3)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        x = self.block(self.a(x))
        self.side(x)
        x, _ = self.pair(x)
        return self.fc(x)


class Pair(nn.Module):
    def forward(self, x):
        return x * 2, x


def ask(layer, **options):
    return mwp(Layers(), torch.rand(1, 4), 0, layer=layer, **options)


def gradients(layers, way="grad"):
    found = Gradients(Layers(), torch.rand(1, 4), layers)
    return found.down(torch.ones(1, 3), way)


X = torch.rand(1, 4)
REFUSED = {  # what is asked, and what is said
    "unknown layer": (lambda: ask("blok.0"), LayerError, r"'blok\.0'.*block\.0"),
    "no such part": (lambda: ask("block.2"), LayerError, r"block\.2"),
    "no number": (lambda: ask("a#x"), LayerError, "a#x"),
    "no such call": (lambda: ask("a#1"), LayerError, "#0"),
    "no tensor": (lambda: ask("pair"), LayerError, "'pair' returns tuple"),
    "beside the output": (lambda: ask(["a", "side"]), LayerError, "'side' does not feed the output"),
    "unused": (lambda: ask("unused"), LayerError, "'unused' was not used"),
    "no layer": (lambda: ask([]), LayerError, "name at least one"),
    "the lowest layer": (lambda: ExcitationPass(Layers(), X, ["a"]).start("a"), LayerError, "no walk can start there"),
    "no floats": (lambda: mwp(nn.Embedding(4, 3), torch.tensor([1, 2]), 0, layer="input"), LayerError, "no tensor of"),
    "no module": (lambda: mwp(abs, X, 0, layer="tap"), ModelError, "expected a torch.nn.Module"),
    "contrast": (lambda: ask(["a", "fc"], dual=True), SignalError, "'fc' lies above"),
    "gradients beside": (lambda: gradients(["side"]), LayerError, "'side' does not feed the output"),
    "gradients of none": (lambda: gradients([]), LayerError, "name at least one"),
    "gradients by another way": (lambda: gradients(["a"], "up"), MethodError, "'up': use one of grad, deconv"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_asked_wrongly(name):
    asked, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        asked()


def test_lazy_modules_get_their_shape_first():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Identity(), nn.LazyLinear(3)).eval()
    assert mwp(net, X, 0, layer="0").shape == X.shape


# --- signals -------------------------------------------------------------------------------------------------------


NUMBERS = [3, -4, torch.tensor(3), torch.tensor([0, 1]), torch.tensor([5])]
SHAPES = [torch.rand(shape) for shape in ((4,), (2, 4), (2, 3), (2, 2, 3), (5, 4, 1, 3))]
NO_NUMBERS = [torch.tensor([torch.nan, 0, 0]), torch.tensor([[torch.inf, 0, 0]]), {0: torch.nan}, {1: torch.inf}]


@pytest.mark.parametrize("signal", [*NUMBERS, *SHAPES, *NO_NUMBERS, {0: 1.0, 7: 1.0}])
def test_signals_that_do_not_fit(signal):
    net = Layers()
    with pytest.raises(SignalError):
        mwp(net, torch.rand(1, 4), signal, layer="a")


def test_walks_need_a_distribution_and_one_picture():
    net = Layers()
    for signal in ({0: 0.5}, {0: 2.0, 1: -1.0}, torch.tensor([0.7, 0.7, 0.7])):
        with pytest.raises(SignalError, match="distribution"):
            sample_winners(net, torch.rand(1, 4), signal, layers=["a"])
    with pytest.raises(SignalError, match="one image"):
        sample_winners(net, torch.rand(2, 4), torch.tensor([[0.5, 0, 0], [0.5, 0, 0]]), layers=["a"])
    with pytest.raises(SignalError, match="one image"):
        winner_take_all(net, torch.rand(2, 4), 0, layers=["a"])


# --- sizes ---------------------------------------------------------------------------------------------------------


def test_chains_that_would_not_fit():
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten())
    net.append(nn.Linear(8 * 64 * 64, 2))
    x = torch.rand(1, 1, 64, 64)
    with pytest.raises(SizeError, match=r"32,768 x 32,768.*mwp"):
        transition_matrix(net, x, "2", "0")
    with pytest.raises(SizeError):
        absorbing_chain(net, x, ["2", "0"])
    assert transition_matrix(net, x, None, "2").shape == (2, 32768)
