"""The command with classifiers other than the default one: names, files of weights and labels, sizes."""

import json
from importlib.metadata import version
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from PIL import Image
from zoo import torchvision_models

import excite as library

MODEL = "torchvision:squeezenet1_1"
WORDS = ["cat", "dog", "cow"]


@pytest.fixture(scope="module", autouse=True)
def no_news():
    torchvision_models()


def save_network(path="mine.pth", classes=3, seed=0, name="squeezenet1_1"):
    torch.manual_seed(seed)
    torch.save(torchvision_models().get_model(name, weights=None, num_classes=classes).state_dict(), path)
    return path


@pytest.fixture
def own(cat):
    """Weights and labels of one's own beside the photograph."""
    save_network()
    Path("labels.txt").write_text("cat, puss\ndog\ncow\n")
    return ["--model", MODEL, "--weights", "mine.pth", "--labels", "labels.txt"]


class TestAttend:
    def test_it_says_what_the_library_says(self, excite, cat, own):
        ended = excite("attend", cat, "puss", "2", *own, "--size", 128, "--method", "mwp", "--json", "--no-overlays")
        assert (ended.code, ended.err) == (0, "")
        labels = [["cat", "puss"], "dog", "cow"]
        classifier = library.load(MODEL, weights="mine.pth", labels=labels, size=128)
        maps = library.attend(classifier, cat, ["cat", "cow"], method="mwp")
        assert [found["concept"] for found in ended.answers[0]["maps"]] == ["cat", "cow"]
        for said, found in zip(ended.answers[0]["maps"], maps, strict=True):
            assert said["probability"] == pytest.approx(found.probability, abs=1e-6)
            assert said["point"] == list(found.point())
            assert said["mass"] == pytest.approx(found.mass, abs=1e-6)
            assert said["layer"] == found.layer

    def test_for_each_window_or_for_the_whole(self, excite, cat, own):
        def probability(*options):
            ended = excite("attend", cat, "dog", *own, *options, "--method", "mwp", "--json", "--no-overlays")
            assert ended.code == 0, ended.err
            return ended.answers[0]["maps"][0]["probability"]

        whole, each = probability(), probability("--fully-convolutional")
        assert probability("--whole-picture") == whole
        assert each != whole

    @pytest.mark.parametrize("model", ["torchvision:resnet18", "vgg16"])
    def test_no_network_is_one_line(self, excite, cat, here, monkeypatch, model):
        def nobody(*_, **__):
            raise URLError("Name or service not known")

        monkeypatch.setattr("torch.hub.urlopen", nobody)
        monkeypatch.setattr("excite.io.fetch.urlopen", nobody)
        monkeypatch.setenv("TORCH_HOME", str(here))
        monkeypatch.setenv("EXCITE_HOME", str(here))
        ended = excite("attend", cat, "cat", "--model", model)
        assert ended.code == 1
        assert ended.out == ""
        *told, complaint = ended.err.splitlines()  # torch tells of its download first
        assert all(line.startswith("Downloading: ") for line in told)
        assert complaint.startswith("excite: Cannot fetch http")
        assert "Name or service not known" in complaint


class TestResuming:
    def run(self, excite, *options):
        """How often the classifier was asked, by the time stamps of what it has drawn."""

        def stamps():
            return {path.name: path.stat().st_mtime_ns for path in Path("excite-out").glob("*.dog.jpg")}

        before = stamps()
        ended = excite("attend", "photos", "dog", *options, "--size", 64, "--method", "mwp", "--at-least", 0, "--json")
        assert ended.code == 0, ended.err
        assert len(ended.answers) == 2
        return sum(before.get(name) != stamp for name, stamp in stamps().items()), ended.answers

    def test_notices_other_weights_and_other_labels(self, excite, cat, own):
        Path("photos").mkdir()
        with Image.open(cat) as picture:
            for number in range(2):
                picture.resize((80, 60 + number)).save(f"photos/{number}.png")
        drawn, first = self.run(excite, *own)
        assert drawn == 2
        assert self.run(excite, *own) == (0, first)
        save_network(seed=1)
        drawn, second = self.run(excite, *own)
        assert drawn == 2
        assert second != first
        assert self.run(excite, *own) == (0, second)
        Path("labels.txt").write_text("cow\ncat\nbig dog, dog\n")
        drawn, third = self.run(excite, *own)
        assert [answer["maps"][0]["concept"] for answer in third] == ["big dog"] * 2
        assert third != second


class TestLs:
    def test_layers_of_torchvision(self, excite):
        ended = excite("ls", "layers", "torchvision:resnet18", "--json")
        assert (ended.code, ended.err) == (0, "")
        rows = {row["layer"]: row for row in json.loads(ended.out)}
        names = set(dict(torchvision_models().get_model("resnet18", weights=None).named_modules()))
        assert set(rows) <= names
        facts = {"kind": "Sequential", "channels": 256, "size": "14x14", "stride": 16.0, "receptive field": 211}
        assert rows["layer3"] == {"layer": "layer3", **facts, "recommended": 1}
        assert rows["conv1"]["receptive field"] == 7
        assert rows["layer4"]["receptive field"] == 435  # as published for ResNet-18
        assert rows["avgpool"]["receptive field"] == "all"

    def test_layers_of_the_papers_network(self, excite, monkeypatch):
        def nobody(*_, **__):
            raise AssertionError("went to the net")

        monkeypatch.setattr("excite.io.fetch.urlopen", nobody)
        out = excite("ls", "layers", "googlenet").out
        (marked,) = [line.split() for line in out.splitlines()[1:-1] if line.split()[-1] == "1" and "_s2" in line]
        assert marked == ["pool2/3x3_s2", "MaxPool2d", "192", "28x28", "8.0", "27", "1"]


def test_help_and_version(excite):
    assert excite("attend", "-h").out.count("  excite attend ") >= 4  # examples
    ended = excite("--version")
    assert (ended.code, ended.out) == (0, f"excite {version('excite')}\n")
