"""The ways to a classifier: what each name and each option means, and one line for each mistake."""

import random

import pytest
import torch
from safetensors.torch import save_file
from samples import answers, noise
from torch import nn
from zoo import torchvision_models

import excite
from excite.errors import ModelError
from excite.models import MODELS, Choice, Preprocess, load, wrap
from excite.vocabulary import imagenet_labels

WORDS = ["cat", ["dog", "hound"], "cow"]
SMALL = ("efficientnet-lite0", "resnet50-caffe", "squeezenet-caffe")


@pytest.fixture(scope="module", autouse=True)
def no_news():
    torchvision_models()


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A SqueezeNet of torchvision with three classes, and the file of its weights."""
    torch.manual_seed(0)
    network = torchvision_models().get_model("squeezenet1_1", weights=None, num_classes=3).eval()
    path = tmp_path_factory.mktemp("own") / "mine.pth"
    torch.save({"state_dict": {f"module.{name}": value for name, value in network.state_dict().items()}}, path)
    return network, path


class TestClasses:
    @pytest.mark.parametrize(("labels", "asked", "told"), [(None, 2, "2"), (WORDS, "hound", "dog")])
    def test_as_many_as_the_file_has(self, own, labels, asked, told):
        """Without words for them they are numbers."""
        network, path = own
        classifier = load("torchvision:squeezenet1_1", weights=path, labels=labels)
        assert torch.equal(answers(classifier.module), answers(network))
        assert (classifier.labels is None) == (labels is None)
        (found,) = excite.attend(classifier, noise(80, 64), asked, method="mwp")
        assert found.concept == told

    def test_random_weights_for_as_many_words(self):
        for name in ("torchvision:squeezenet1_1", "efficientnet-lite0", "squeezenet-caffe"):
            classifier = load(name, weights="random", labels=WORDS)
            assert answers(classifier.module).shape == (2, 3)
            assert list(classifier.labels) == ["cat", "dog", "cow"]


@pytest.mark.parametrize("name", ["efficientnet-lite0", "squeezenet-caffe", "torchvision:googlenet"])
def test_random_weights_are_the_same_each_time_and_leave_no_trace(name):
    state, python_state = torch.get_rng_state(), random.getstate()
    first = load(name, weights="random")
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python_state
    torch.rand(1)
    second = load(name, weights="random")
    assert not first.module.training
    pairs = zip(first.module.state_dict().values(), second.module.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert answers(first.module).isfinite().all()
    assert answers(first.module).std() > 0


class TestOptions:
    def test_size(self):
        small, usual = load("squeezenet-caffe", weights="random", size=128), MODELS["squeezenet-caffe"].preprocess
        assert {**vars(small.preprocess), "shorter_side": 227} == vars(usual)
        for size in (0, -1):
            with pytest.raises(ModelError, match="at least one pixel"):
                load("squeezenet-caffe", weights="random", size=size)

        own = Preprocess(shorter_side=100, mean=0)
        assert load("squeezenet-caffe", weights="random", preprocess=own, size=50).preprocess.shorter_side == 50
        with pytest.raises(ModelError, match="leave size out"):
            load("squeezenet-caffe", weights="random", preprocess=lambda _: torch.zeros(3, 9, 9), size=50)

    def test_fully_convolutional(self):
        def places(**options):
            module = load("torchvision:squeezenet1_1", weights="random", **options).module
            with torch.no_grad():
                return module(torch.zeros(1, 3, 224, 320)).shape[2:]

        assert places() == ()
        for others in ({}, {"size": 448}, {"preprocess": Preprocess(shorter_side=300)}):
            assert places(fully_convolutional=True, **others) == (1, 7)  # the window stays the trained one


class TestNames:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("vgg61", ["no model 'vgg61'", "Did you mean 'vgg16'?", "torchvision:NAME", "timm:NAME", "a file"]),
            ("resnet50", ["no model 'resnet50'", "resnet50-caffe"]),
            ("keras:resnet18", ["no model 'keras:resnet18'"]),
            ("gone.safetensors", ["no file 'gone.safetensors'"]),
            ("n" * 5000, ["no model"]),
            ("nul\0byte", ["no model"]),
            ("", ["no model ''"]),
            (".", ["'.' is a folder without classifier.json"]),
        ],
    )
    def test_mistakes(self, name, words, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ModelError) as caught:
            load(name)
        assert all(word in str(caught.value) for word in words), caught.value

    def test_weights_that_must_be_given(self):
        for name in ("resnet50-caffe", "squeezenet-caffe"):
            with pytest.raises(ModelError, match=f"weights of {name} must be given as a file: --weights FILE"):
                load(name)

    @pytest.mark.parametrize("name", SMALL)
    def test_a_file_for_each_card(self, name, tmp_path):
        network = load(name, weights="random").module
        for tensor in network.parameters():
            tensor.data *= 1.1
        save_file(network.state_dict(), tmp_path / "x.safetensors")
        classifier = load(name, weights=tmp_path / "x.safetensors")
        assert torch.equal(answers(classifier.module), answers(network))
        assert classifier.labels == imagenet_labels()
        assert not torch.equal(answers(classifier.module), answers(load(name, weights="random").module))

    def test_a_file_by_itself_that_nobody_knows(self, own, tmp_path):
        message = "does not say for which network it is: name the network and give the file as its weights"
        with pytest.raises(ModelError, match=message):
            load(own[1])
        (tmp_path / "weights").write_bytes(own[1].read_bytes())  # without an ending
        with pytest.raises(ModelError, match=message):
            load(str(tmp_path / "weights"))
        (tmp_path / "notes.txt").write_text("remember the milk")
        with pytest.raises(ModelError, match=r"notes\.txt holds no weights"):
            load(tmp_path / "notes.txt")


def test_wrapped_and_fully_convolutional():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 15 * 15, 2)).eval()
    by_number = wrap(network, fully_convolutional=32)
    by_preparation = wrap(network, preprocess=Preprocess(shorter_side=32), fully_convolutional=True)
    for classifier in (by_number, by_preparation):
        assert classifier.module(torch.zeros(1, 3, 32, 48)).shape == (1, 2, 1, 9)
        assert classifier.name == "Sequential"
    with pytest.raises(ModelError, match="How large were the training images"):
        wrap(network, preprocess=str, fully_convolutional=True)


def test_a_choice_written_down_and_compared(own, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\ncow\n")
    choice = Choice("torchvision:squeezenet1_1", str(own[1]), str(tmp_path / "labels.txt"), size=64)
    classifier = choice.load()
    assert list(classifier.labels) == ["cat", "dog", "cow"]
    assert classifier.preprocess.shorter_side == 64
    key = choice.key()
    assert choice.key() == key
    (tmp_path / "labels.txt").write_text("cat\ndog\npig\n\n")
    assert choice.key() != key
