"""The network's device and type are those of its maps' computation: double, half, autocast, and an accelerator."""

import copy
import pickle
import warnings
from dataclasses import replace

import learning
import pyarrow
import pytest
import torch
from accelerator import DEVICE, Accelerator
from method_names import FOR_ANY_NETWORK
from PIL import Image
from pyarrow import parquet
from skimage import data
from torch import nn

import excite
from excite.errors import ModelError
from excite.export.export import export
from excite.models import Choice, Preprocess
from excite.models.classifier import on_cpu
from excite.propagation import rules
from excite.training import finetune
from excite.training.examples import read_examples
from excite.training.sgd import SGDOptions
from excite.training.tags.model import distributed


@pytest.fixture(scope="module")
def classifier():
    return excite.load("efficientnet-lite0", size=96)


@pytest.fixture(scope="module")
def chelsea():
    return Image.fromarray(data.chelsea()).resize((120, 90))


class Block(nn.Module):
    """A residual block with a gate, an uneven sum, and its ReLUs in place."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.Sigmoid())

    def forward(self, x):
        y = self.norm(self.conv(x)).relu_()
        return (x + y * self.gate(y)).relu()


def network(outputs=5):
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(2), Block(8), nn.GELU(), Block(8)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, outputs)).eval()


def small(module=None, **options):
    preprocess = Preprocess(64, mean=127, scale=1 / 64)
    return excite.wrap(network() if module is None else module, preprocess=preprocess, **options)


def distance(one, other):
    """Of two maps, each over its sum: 0 to 2."""
    first, second = (each.values.double() / each.values.double().sum() for each in (one, other))
    return float((first - second).abs().sum())


@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float64, 1e-4), (torch.bfloat16, 0.15), (torch.float16, 0.03)], ids=str
)
@pytest.mark.parametrize("method", ["c-mwp", "extent", "cam", "guided", "lrp"])
def test_maps_of_other_types(classifier, chelsea, dtype, near, method):
    other = copy.deepcopy(classifier)
    other.module.to(dtype)
    (found,) = excite.attend(other, chelsea, 281, method=method)
    (exact,) = excite.attend(classifier, chelsea, 281, method=method)
    assert found.values.dtype == torch.float32
    assert distance(found, exact) < near
    assert found.mass == pytest.approx(exact.mass, rel=near)
    assert found.probability == pytest.approx(exact.probability, rel=2 * near)


class Mixed(nn.Module):
    """A network with autocast inside its own forward."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.inner(x)


@pytest.mark.parametrize("method", ["mwp", "c-mwp", "cam", "grad", "lrp-epsilon"])
def test_autocast_around_and_inside(classifier, chelsea, method):
    (exact,) = excite.attend(classifier, chelsea, 281, method=method)
    inside = excite.wrap(Mixed(classifier.module), preprocess=classifier.preprocess, verify=True)
    with torch.autocast("cpu", torch.bfloat16):
        (around,) = excite.attend(classifier, chelsea, 281, method=method)
    layer = exact.layer if exact.layer == "input" else f"inner.{exact.layer}"
    (within,) = excite.attend(inside, chelsea, 281, method=method, layer=layer)
    for found in (around, within):
        assert distance(found, exact) < 0.15
        assert found.mass == pytest.approx(exact.mass, rel=0.1)


def test_a_network_without_numbers_of_its_own_runs_on_the_cpu():
    classifier = excite.wrap(nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    assert (classifier.device, classifier.dtype) == (torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("method", FOR_ANY_NETWORK)
def test_every_method_stays_on_the_accelerator(chelsea, method):
    (exact,) = excite.attend(small(), chelsea, 1, method=method)
    classifier = small()
    with Accelerator():
        classifier.module.to(DEVICE)
        (found,) = excite.attend(classifier, chelsea, 1, method=method)
    assert (found.values.device.type, type(found.values)) == ("cpu", torch.Tensor)
    torch.testing.assert_close(found.values, exact.values)
    assert found.mass == pytest.approx(exact.mass)


@pytest.mark.parametrize("method", ["c-mwp", "extent", "grad-cam", "c-guided"])
def test_an_accelerator_without_double_precision(monkeypatch, chelsea, method):
    monkeypatch.setattr(rules, "WITHOUT_DOUBLE", {DEVICE.type})
    (exact,) = excite.attend(small(), chelsea, 1, method=method)
    classifier = small()
    with Accelerator(double=False):
        classifier.module.to(DEVICE)
        (found,) = excite.attend(classifier, chelsea, 1, method=method)
    torch.testing.assert_close(found.values, exact.values)


def test_more_concepts_and_images_wait_no_more_often(chelsea):
    """Reading values makes the CPU wait for the device: their number must not grow with concepts, images or units."""

    def waits(images, concepts, method):
        with Accelerator() as accelerator:
            classifier = small(verify=False)
            classifier.module.to(DEVICE)
            excite.attend_batch(classifier, [chelsea] * images, [concepts] * images, method=method)
            return len(accelerator.waits)

    for method in ("c-mwp", "grad-cam"):
        assert waits(4, [0, 1, 2, 3], method) <= waits(1, [0], method) + 3, method


def test_the_cache_grounding_and_layers_use_the_accelerator(chelsea):
    labels = ["cat", "dog", "tree", "car", "sky"]
    with Accelerator():
        classifier = small(labels=labels)
        classifier.module.to(DEVICE)
        cache = excite.SessionCache(classifier)
        cache.attend(chelsea, "cat")
        assert len(cache.attend(chelsea, "dog")) == 1
        assert cache.runs == 1
        assert cache.size > 0
        assert cache.findings(chelsea)
        assert excite.locate(classifier, chelsea, "cat")[0].concept == "cat"
        assert excite.ground(classifier, chelsea, ["a cat"])
        from excite.models.layers import candidate_layers, outline

        assert outline(classifier)[0]
        assert candidate_layers(classifier.module, classifier.prepared(chelsea)[None])


def test_load_on_a_device(chelsea):
    with Accelerator():
        classifier = excite.load("efficientnet-lite0", device=DEVICE)
        assert classifier.device == DEVICE
    assert excite.load("efficientnet-lite0", device="auto").device.type in {"cpu", "cuda", "mps", "xpu"}


@pytest.mark.parametrize("device", ["cuda:7", "gpu", "meta", ""])
def test_a_device_that_is_not_there(device):
    with pytest.raises(ModelError, match=r"cpu") as error:
        excite.load("efficientnet-lite0", device=device)
    assert "\n" not in str(error.value)
    assert repr(device) in str(error.value)


def test_the_key_of_results_made_on_the_cpu_is_what_it_was():
    before = Choice("efficientnet-lite0").key()
    assert "device" not in before
    assert Choice("efficientnet-lite0", device="cpu").key() == before
    assert pickle.loads(pickle.dumps(Choice("words", device="cpu"))) == Choice("words")  # noqa: S301 - our own


def test_training_mode_is_told_once(chelsea):
    module = network()
    module.insert(6, nn.Dropout(0.5))
    classifier = small(module.train(), verify=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            excite.attend(classifier, chelsea, 1)
    (one,) = [each for each in told if "eval()" in str(each.message)]
    assert issubclass(one.category, excite.errors.TrainingModeWarning)
    assert "dropout" in str(one.message).lower()
    assert "batch" in str(one.message).lower()


def test_a_network_in_training_mode_without_effect_says_nothing(chelsea):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.0), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.append(nn.Linear(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        excite.attend(small(net.train(), verify=False), chelsea, 1, method="mwp")


@pytest.fixture
def tiny(monkeypatch):
    return learning.know_tiny(monkeypatch)


def test_fine_tuning_on_the_accelerator(monkeypatch, tiny, tmp_path):
    accelerator, waits = Accelerator(), []

    def three(losses):
        waits.append(len(accelerator.waits))
        return len(losses) >= 3

    monkeypatch.setattr(finetune, "plateaued", three)
    examples = read_examples(learning.make_train(tmp_path / "data"), "train")
    options = {"sgd": SGDOptions(batch=4, rate=0.1)}
    exact = finetune.FineTuning(tiny, examples, tmp_path / "cpu", **options)
    wanted = exact.train() | exact.measure(examples)
    with accelerator:
        tuning = finetune.FineTuning(tiny, examples, tmp_path / "there", device=DEVICE.type, **options)
        found = tuning.train() | tuning.measure(examples)
    assert (found["loss"], found["map"]) == (pytest.approx(wanted["loss"]), wanted["map"])
    assert waits[-1] - waits[-2] == 2  # of an epoch, not of each step: is its loss finite, and what is it?
    torch.testing.assert_close(*(excite.load(tmp_path / name).module.out.weight for name in ("cpu", "there")))


@pytest.mark.parametrize("options", [{"views": 2}, {"layers": "all"}], ids=str)
def test_a_tag_classifier_on_the_accelerator(tiny, tmp_path, options):
    words = list(learning.coloured(tmp_path / "photos", 18, ("red", "green", "blue")))
    table = {"image": [name for name, _ in words], "tags": [[word] for _, word in words]}
    parquet.write_table(pyarrow.table(table | {"user": [str(k) for k in range(18)]}), tmp_path / "c.parquet")
    quick = replace(learning.QUICK, **options)
    wanted = learning.tag_training(tmp_path, "cpu", quick).train()
    with Accelerator(), distributed(DEVICE.type) as processes:
        found = learning.tag_training(tmp_path, "there", quick, processes=processes).train()
    assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-4)


def test_what_other_runtimes_run_is_on_the_cpu_in_float32(tmp_path):
    double = small(nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).double().eval())
    found = export(double, tmp_path / "map.pt2", layer="1", size=(4, 4), dynamic=False)
    assert found.agreement.map < 1e-4
    assert (double.dtype, on_cpu(double).dtype) == (torch.float64, torch.float32)
    with Accelerator():
        double.module.to(DEVICE)
        assert on_cpu(double).device.type == "cpu"


def test_the_markov_chain_on_the_accelerator():
    net, image = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), torch.ones(1, 3)
    with Accelerator():
        there, moved = copy.deepcopy(net).to(DEVICE), image.to(DEVICE)
        chain = excite.absorbing_chain(there, moved, ["1", "0"])
        matrix = excite.transition_matrix(there, moved, None, "1").cpu()
        walks = excite.sample_winners(there, moved, 0, layers=["1"], count=20)
        won = excite.winner_take_all(there, moved, 0, layers=["1"])["1"].cpu()
        fundamental = chain.fundamental.cpu()
    torch.testing.assert_close(fundamental, excite.absorbing_chain(net, image, ["1", "0"]).fundamental)
    torch.testing.assert_close(matrix, excite.transition_matrix(net, image, None, "1"))
    assert walks.paths == excite.sample_winners(net, image, 0, layers=["1"], count=20).paths
    assert torch.equal(won, excite.winner_take_all(net, image, 0, layers=["1"])["1"])
