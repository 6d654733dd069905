"""Compiled maps beside those of the library: the same answers from a kept graph, and a line for each mistake."""

import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import excite
from excite.errors import LayerError, MethodError, ModelError
from excite.models import Preprocess

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SIZE = (16, 16)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A cache of our own: what one test compiled serves the others, as it would a user."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXCITE_HOME", str(folder))
        yield folder


@pytest.fixture
def classifier(home):
    preprocess = Preprocess(16, square=True)
    return excite.wrap(network(), labels=["cat", "dog", "sofa", "tree"], preprocess=preprocess, layer="1")


@pytest.fixture
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8))


def check_agreement(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.values.sum() > 0
        assert (one.values - other.values).abs().max() <= 1e-4 * one.values.sum()


def test_the_answers_are_those_of_the_library(classifier, picture):
    compiled = excite.compile(classifier, size=SIZE, threads=1)
    for concepts in (None, "dog", ["cat", 2, "tree"]):
        ours, theirs = excite.attend(classifier, picture, concepts), compiled.attend(picture, concepts)
        check_agreement(ours, theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert other.concept == one.concept
            assert other.probability == pytest.approx(one.probability, abs=1e-5)
            assert other.mass == pytest.approx(one.mass, rel=1e-3)
            assert (other.layer, other.method, other.image_size) == (one.layer, one.method, one.image_size)
            assert other.point() == one.point()


def test_several_concepts_need_one_look(classifier, picture, monkeypatch):
    monkeypatch.setattr("excite.export.compiled.LITTLE", 1000)  # this network has next to no weights
    compiled = excite.compile(classifier, size=SIZE)
    halves = compiled._graph
    looks, downs, look, down = [], [], halves.look, halves._down_once
    monkeypatch.setattr(halves, "look", lambda inputs: looks.append(1) or look(inputs))
    monkeypatch.setattr(halves, "_down_once", lambda *given: downs.append(1) or down(*given))
    compiled.attend(picture, ["cat", "dog", "sofa"])
    assert (len(looks), len(downs)) == (1, 1)


class Alone(nn.Sequential):
    """A network that takes one image at a time."""

    sign = 1

    def forward(self, pictures):
        return super().forward(self.sign * pictures.reshape(1, 3, 16, 16))


def test_a_network_for_one_picture_takes_one_signal_after_the_other(home, picture):
    """Also by the other method."""
    classifier = excite.wrap(Alone(*network()).eval(), preprocess=Preprocess(16, square=True), layer="1")
    compiled = excite.compile(classifier, method="mwp", size=SIZE)
    ours, theirs = excite.attend(classifier, picture, [0, 1, 2], method="mwp"), compiled.attend(picture, [0, 1, 2])
    check_agreement(ours, theirs)
    assert {one.method for one in theirs} == {"mwp"}
    with pytest.raises(ModelError, match="cannot be written down as one graph"):  # for one size it is; not for all
        excite.compile(classifier)


def test_the_graph_is_kept_and_a_broken_one_is_made_anew(classifier, picture, home, monkeypatch):
    """To make it takes seconds, and gives the same file: here that is put in its place."""
    path = excite.compile(classifier, size=SIZE).path
    assert path.parent == home / "compiled"
    whole, written = path.read_bytes(), []

    def export(_classifier, place, **_how):
        written.append(place)
        place.write_bytes(whole)

    monkeypatch.setattr(import_module("excite.export.export"), "export", export)
    assert excite.compile(classifier, size=SIZE).path == path
    assert not written
    path.write_bytes(whole[: len(whole) // 2])
    assert excite.compile(classifier, size=SIZE).attend(picture, "cat")
    assert written == [path]


def test_a_kept_graph_that_no_longer_agrees_is_made_anew(home, picture, monkeypatch):
    """Code of one's own, which no weights and so no name tell of, is seen by comparing both."""
    classifier = excite.wrap(Alone(*network()).eval(), preprocess=Preprocess(16, square=True), layer="1")
    path = excite.compile(classifier, method="mwp", size=SIZE).path  # kept by the test above
    monkeypatch.setattr(Alone, "sign", -1)
    again = excite.compile(classifier, method="mwp", size=SIZE)
    assert again.path == path
    check_agreement(excite.attend(classifier, picture, 1, method="mwp"), again.attend(picture, 1))


def test_changed_weights_are_refused(classifier, picture):
    compiled = excite.compile(classifier, size=SIZE)
    with torch.no_grad():
        classifier.module[0].weight.mul_(2)
    with pytest.raises(ModelError, match="changed since it was compiled: compile it again"):
        compiled.attend(picture, "cat")


def test_mistakes_are_told_in_words(classifier, picture, monkeypatch):
    with pytest.raises(MethodError, match=r"'grad' cannot be compiled: choose mwp or c-mwp"):
        excite.compile(classifier, method="grad")
    with pytest.raises(LayerError, match="nowhere"):
        excite.compile(classifier, layer="nowhere", size=SIZE)
    compiled = excite.compile(classifier, size=SIZE)
    compiled.classifier = replace(classifier, preprocess=Preprocess(16))  # no longer square
    with pytest.raises(ModelError, match=r"to 21 x 16 is not served .* 16 x 16 only: compile it with size="):
        compiled.attend(picture, 0)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"pip install 'excite\[onnx\]'"):
        excite.compile(classifier, size=SIZE)


class Same(nn.Conv2d):
    """Padded as TensorFlow does: by another number for odd sides."""

    def forward(self, pictures):
        above, left = (1 if side % 2 else 0 for side in pictures.shape[-2:])
        return super().forward(nn.functional.pad(pictures, (left, 1, above, 1)))


def test_pictures_are_prepared_in_the_sizes_that_a_graph_serves(home, picture):
    torch.manual_seed(0)
    layers = [Same(3, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = nn.Sequential(*layers, nn.Linear(6, 4)).eval()
    compiled = excite.compile(excite.wrap(net, preprocess=Preprocess(64), layer="1"))
    assert compiled.sizes.step == 32
    assert compiled.classifier.preprocess == Preprocess(64, multiple=32)
    for size in ((40, 30), (31, 64)):
        shown = picture.resize(size)
        check_agreement(excite.attend(compiled.classifier, shown, 1), compiled.attend(shown, 1))
