"""Classifiers of torchvision and timm by name, and networks in Caffe's files: none of these tests goes to the net."""

import os
import subprocess
import sys
from urllib.error import URLError

import pytest
import torch
from caffe.writing import files, row
from processes import Forked
from samples import answers, lively, noise
from zoo import timm_models, torchvision_models

import excite
from excite.errors import ModelError
from excite.models import cards, find_card, load, sources
from excite.models.caffe import network as caffe_network
from excite.models.caffe.definition import Network
from excite.models.caffe.network import CaffeNetwork
from excite.models.cards import CAFFE_PREPROCESS
from excite.vocabulary import imagenet_labels


@pytest.fixture(scope="module", autouse=True)
def no_news():
    """That their compiled operators are left out has been said."""
    torchvision_models()
    timm_models()


def wrong(*args, **kwargs):
    with pytest.raises(ModelError) as caught:
        load(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def nobody(*_, **__):
    raise URLError(OSError(-2, "Name or service not known"))


def check_preparation(card, side, whole):
    """The same tensor as that of the package's own preprocessing, where it is told to crop nothing."""
    assert card.preprocess.shorter_side == side
    for size in (side, side + 30):
        picture = noise(size, size)
        torch.testing.assert_close(card.preprocess(picture), whole(picture), atol=1e-5, rtol=1e-5, msg=card.name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchvision:resnet81", ["torchvision has no classifier 'resnet81'", "Did you mean", "torchvision:resnet18"]),
        ("torchvision:ResNet50", ["torchvision:resnet50"]),
        ("torchvision:fasterrcnn_resnet50_fpn", ["torchvision has no classifier"]),  # a detector
        ("torchvision:", ["torchvision has no classifier ''"]),
        ("timm:resnet81", ["timm has no classifier 'resnet81'", "Did you mean", "timm:resnet18"]),
        ("timm:resnet18.nonsense", ["no weights 'resnet18.nonsense'", "timm:resnet18.a1_in1k"]),
        ("timm:resnet81.a1_in1k", ["timm has no classifier 'resnet81'"]),
    ],
)
def test_an_unknown_name(name, words):
    told = wrong(name)
    assert all(word in told for word in words), told


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchvision:resnet18", ["Cannot fetch https://", "resnet18"]),
        ("timm:resnet18", ["Cannot fetch the weights of timm's resnet18"]),
        ("timm:hf-hub:someone/net", ["Cannot fetch the settings of timm's hf-hub:someone"]),
    ],
)
def test_no_network(name, words, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.hub.urlopen", nobody)
    monkeypatch.setattr(timm_models(), "create_model", nobody)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: [])
    told = wrong(name)
    assert all(word in told for word in [*words, "Name or service not known", "--weights FILE"])


def test_the_hub_is_not_tried_again_and_again_without_a_network(tmp_path):
    """In a process of its own, whose host names lead nowhere: one line, at once, and no warnings of other packages."""
    program = (
        "import socket, time, warnings\n"
        "from excite import ExciteError, load\n"
        "from excite.models.sources import timm_models\n"
        "warnings.simplefilter('ignore')\n"
        "def nobody(*_, **__): raise socket.gaierror(-2, 'Name or service not known')\n"
        "socket.getaddrinfo = nobody\n"
        "timm_models()\n"
        "before = time.monotonic()\n"
        "try: load('timm:resnet18')\n"
        "except ExciteError as error: print(error, time.monotonic() - before < 20)\n"
    )
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    environment |= {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    with Forked(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert said.startswith("Cannot fetch the weights of timm's resnet18: there is no way to huggingface.co")
    assert said.endswith("--weights FILE. True\n")


class TestTorchvision:
    @pytest.mark.parametrize("name", ["resnet18", "densenet121"])
    def test_answers_of_a_state_dict(self, tmp_path, name):
        network = lively(torchvision_models().get_model(name, weights=None))
        torch.save(network.state_dict(), tmp_path / "x.pth")
        classifier = load(f"torchvision:{name}", weights=tmp_path / "x.pth")
        assert torch.equal(answers(classifier.module), answers(network))
        assert not classifier.module.training
        assert classifier.name == f"torchvision:{name}"
        assert classifier.layer is None

    @pytest.mark.parametrize("wrapped", [False, True])
    @pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
    def test_second_heads_in_the_file_are_left_out(self, tmp_path, name, wrapped):
        """They are for training. The file has another number of classes, and maybe the names of DataParallel."""
        make = torchvision_models().get_model
        network = lively(make(name, weights=None, num_classes=7, init_weights=False, transform_input=True))
        assert any(key.lower().startswith("aux") for key in network.state_dict())
        before = "module." if wrapped else ""
        torch.save({before + key: value for key, value in network.state_dict().items()}, tmp_path / "x.pth")
        classifier = load(f"torchvision:{name}", weights=tmp_path / "x.pth")
        assert torch.equal(answers(classifier.module, 80, 80), answers(network, 80, 80))

    def test_the_published_preparation_of_each(self):
        models = torchvision_models()
        for name in models.list_models(module=models)[::5]:
            card = find_card(f"torchvision:{name}")
            published = models.get_model_weights(name).DEFAULT
            side = published.transforms().crop_size[0]
            check_preparation(card, side, published.transforms(resize_size=side))
            assert published.url in card.source

    def test_all_have_these_categories(self):
        models = torchvision_models()
        published = [models.get_model_weights(name).DEFAULT for name in models.list_models(models)]
        assert len({tuple(weights.meta["categories"]) for weights in published}) == 1

    def test_published_weights_come_through_its_own_cache(self, monkeypatch):
        """As torchvision gives them, in eval mode."""
        models, asked = torchvision_models(), []
        network = models.get_model("resnet18", weights=None)

        def get_model(name, *, weights):
            asked.append((name, weights))
            return network

        monkeypatch.setattr(models, "get_model", get_model)
        assert load("torchvision:resnet18").module is network
        assert not network.training
        assert asked == [("resnet18", models.ResNet18_Weights.DEFAULT)]


class TestTimm:
    @pytest.mark.parametrize(
        "name",
        ["resnet18.a1_in1k", "resnet18.tv_in1k", "test_resnet.r160_in1k", "inception_v3.tf_in1k", "resnet10t"],
    )
    def test_the_published_preparation(self, name):
        timm = timm_models()
        settings = timm.data.resolve_model_data_config(timm.create_model(name))
        whole = timm.data.create_transform(**{**settings, "crop_pct": 1.0}, is_training=False)
        check_preparation(find_card(f"timm:{name}"), settings["input_size"][-1], whole)

    @pytest.mark.parametrize(
        ("name", "number"),
        [
            ("resnet18.a1_in1k", 1000),
            ("resnetaa50d.sw_in12k", 11821),
            ("convnext_tiny.fb_in22k", 21841),
            ("mixer_b16_224.miil_in21k", 11221),
        ],
    )
    def test_labels_of_each_part_of_imagenet(self, name, number):
        labels = find_card(f"timm:{name}").labels()
        assert len(labels) == number
        assert any("tabby cat" in labels.synonyms(unit) for unit in labels.find("tabby").units)

    def test_from_the_hub(self, monkeypatch):
        """The settings are those that come with the network there."""
        timm = timm_models()
        network = timm.create_model("test_resnet", num_classes=5)
        network.pretrained_cfg = {**network.pretrained_cfg, "num_classes": 5, "input_size": (3, 96, 96)}
        monkeypatch.setattr(timm, "create_model", lambda name, pretrained: network)
        classifier = load("timm:hf-hub:someone/net")
        assert classifier.module is network
        assert classifier.preprocess.shorter_side == 96
        assert classifier.labels is None


# torchvision and timm where they are missing, broken, or built for another torch: small ones in their place.

NEEDS_OPERATOR = """
import torch
try:
    torch._C._jit_get_schemas_for_operator("torchvision::nms")[0]
except (IndexError, RuntimeError):
    raise RuntimeError("operator torchvision::nms does not exist") from None
"""
FIND = """
import warnings
from excite.models import sources
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(sources.timm_models().__name__, sources.torchvision_models().__name__, sources.timm_models().__name__)
print(*[f"{warning.category.__name__}: {warning.message}" for warning in said], sep="\\n")
"""


def write(folder, **packages_):
    for name, content in packages_.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(content)
        (folder / name / "models.py").write_text("")


@pytest.fixture
def instead(tmp_path, monkeypatch):
    """Puts packages in the place of the real ones."""

    def forget():
        real = {name: part for name, part in sys.modules.items() if name.partition(".")[0] in {"torchvision", "timm"}}
        for name in real:
            del sys.modules[name]
        sources.torchvision_models.cache_clear()
        sources.timm_models.cache_clear()
        return real

    real = forget()
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda **contents: write(tmp_path, **contents)
    forget()
    sys.modules.update(real)


def test_operators_for_another_torch_are_left_out_and_that_is_said_once(tmp_path):
    """In a process of its own, since operators once declared stay."""
    write(tmp_path, torchvision=NEEDS_OPERATOR, timm="import torchvision")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FIND]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)  # noqa: S603
    names, *said = ended.stdout.strip().splitlines()
    assert names == "timm torchvision.models timm"
    assert len(said) == 1
    assert said[0].startswith("ReplacedOperatorsWarning: torchvision's compiled operators do not fit this torch")


@pytest.mark.parametrize(("package", "kind"), [("torchvision", "OSError"), ("timm", "ImportError")])
def test_a_broken_one_is_told_in_one_line(instead, package, kind):
    broken = f"raise {kind}('libcudart.so.12: cannot open\\nsecond line')"
    instead(**{"torchvision": "", "timm": "", package: broken})
    with pytest.raises(ModelError) as caught:
        load(f"{package}:resnet18")
    assert (
        str(caught.value)
        == f"{package} cannot be imported: libcudart.so.12: cannot open. Install the one made for your torch."
    )


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_missing_one_is_told_with_what_to_install(instead, package, monkeypatch):
    look = sources.importlib.util.find_spec
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None if name == package else look(name))
    with pytest.raises(ModelError, match=rf"{package} is not installed: pip install 'excite\[{package}\]'"):
        load(f"{package}:resnet18")


SIDE = 11


def tiny(classes=5):
    """A network of one convolution (four 3 x 3 of stride 2), pooling and some outputs, with random weights."""
    rows = (
        row("conv Convolution data", num_output=4, kernel_size=(3,), stride=(2,)),
        row("relu ReLU conv"),
        row("pool Pooling relu", kernel_size=2, stride=2),
        row("fc InnerProduct pool", num_output=classes),
        row("prob Softmax fc"),
    )
    return CaffeNetwork(Network("tiny", {"data": (1, 3, SIDE, SIDE)}, rows)).initialise(classes)


def contents(network):
    """Its .prototxt and its .caffemodel."""
    blobs = {name: list(network.get_submodule(name).state_dict().values()) for name in ("conv", "fc")}
    return files(network.definition, blobs)


def check_answers(classifier, network):
    found, expected = (answers(module, SIDE, SIDE) for module in (classifier.module, network))
    torch.testing.assert_close(found.flatten(1), expected, atol=1e-4, rtol=1e-5)


@pytest.fixture
def saved(tmp_path):
    for name, content in zip(("deploy.prototxt", "x.caffemodel"), contents(tiny()), strict=True):
        (tmp_path / name).write_bytes(content)
    return tmp_path


class TestCaffe:
    def test_definition_and_weights(self, saved):
        classifier = load(saved / "deploy.prototxt", weights=saved / "x.caffemodel")
        check_answers(classifier, tiny())
        assert classifier.preprocess.shorter_side == SIDE
        assert classifier.preprocess.channels == "bgr"
        assert classifier.preprocess.mean == CAFFE_PREPROCESS.mean
        assert classifier.labels is None
        (found,) = excite.attend(classifier, noise(30, 20), 2, layer="relu", method="mwp")
        assert found.values.shape == (5, 7)  # the network sees 16 x 11 pixels
        assert found.concept == "2"
        check_answers(load(str(saved / "x.caffemodel")), tiny())
        assert classifier.module(torch.randn(1, 3, SIDE, 3 * SIDE)).shape[:3] == (1, 5, 1)
        plain = load(saved / "deploy.prototxt", weights=saved / "x.caffemodel", fully_convolutional=False)
        assert isinstance(plain.module, CaffeNetwork)

    def test_wrong_pairs(self, saved):
        definition, weights = saved / "deploy.prototxt", saved / "x.caffemodel"
        (saved / "other.caffemodel").write_bytes(contents(tiny(7))[1])
        (saved / "renamed.prototxt").write_text(definition.read_text().replace('"fc"', '"fc8-voc"'))
        torch.save(torchvision_models().get_model("squeezenet1_1").state_dict(), saved / "squeezenet.pth")
        assert "must be given as a file: --weights FILE" in wrong(definition)
        assert all(part in wrong(definition, weights=saved / "other.caffemodel") for part in ("fc", "7", "5"))
        assert "no weights for fc8-voc" in wrong(saved / "renamed.prototxt", weights=weights)
        assert "does not fit CaffeNetwork" in wrong(definition, weights=saved / "squeezenet.pth")
        assert "of a Caffe network, but ResNet is none" in wrong("torchvision:resnet18", weights=weights)
        assert "of a Caffe network, but ResNet50 is none" in wrong("resnet50-caffe", weights=weights)
        for swapped in ({"name": weights, "weights": definition}, {"name": definition, "weights": definition}):
            assert "deploy.prototxt" in wrong(**swapped)


class TestZoo:
    """The cards of the paper's networks, with a small one in the place of VGG16."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        monkeypatch.setattr(caffe_network, "zoo_network", lambda _, classes: CaffeNetwork(tiny(classes).definition))

    def test_a_file_for_a_known_network(self, tmp_path):
        """Another number of classes is told by the labels."""
        (tmp_path / "voc.caffemodel").write_bytes(contents(tiny(20))[1])
        words = [f"class {number}" for number in range(20)]
        classifier = load("vgg16", weights=tmp_path / "voc.caffemodel", labels=words, fully_convolutional=False)
        check_answers(classifier, tiny(20))
        assert list(classifier.labels) == words
        assert "voc.caffemodel" in wrong("vgg16", weights=tmp_path / "voc.caffemodel")

    def test_published_weights_are_fetched(self, tmp_path, monkeypatch):
        (tmp_path / "x.caffemodel").write_bytes(contents(tiny(1000))[1])
        asked = []

        def fetch(remote, folder):
            asked.append((remote.name, folder))
            return tmp_path / "x.caffemodel"

        monkeypatch.setattr(cards, "fetch", fetch)
        classifier = load("vgg16", fully_convolutional=False)
        check_answers(classifier, tiny(1000))
        assert asked == [("VGG_ILSVRC_16_layers.caffemodel", "weights")]
        assert classifier.labels == imagenet_labels()
