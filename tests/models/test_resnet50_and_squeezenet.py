"""The two networks whose weights lie in files: against torchvision's, and the real ones on real images."""

import csv

import pytest
import torch
from PIL import Image
from torch import nn
from zoo import torchvision_models

import excite
from excite.models import load
from excite.models.architectures import ResNet50, SqueezeNet
from excite.models.weights import fill
from excite.vocabulary import imagenet_labels

FILES = {
    "resnet50-caffe": "resnet50_caffe_style.safetensors",
    "squeezenet-caffe": "squeezenet1_0_caffe_style.safetensors",
}
PICTURES = 20
RIGHT = {"resnet50-caffe": 12, "squeezenet-caffe": 7}  # of 20; their true rates are about 75 % and 60 %
HITS = {"resnet50-caffe": 14, "squeezenet-caffe": 12}  # a point anywhere hits half of the boxes or less


def lively(network, seed=0):
    """Random weights, with norms that have seen something."""
    torch.manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.3, 0.7)
    return network.eval()


def answers(network, size=(96, 70)):
    with torch.no_grad():
        return network(torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(0)))


class TestResNet50:
    def test_only_the_strides_differ(self):
        """The same weights give other answers; with the strides moved in three blocks, the very same."""
        theirs = lively(torchvision_models().get_model("resnet50", weights=None))
        ours, back = ResNet50(), torchvision_models().get_model("resnet50", weights=None)
        fill(ours, theirs.state_dict(), "theirs")
        fill(back, ours.state_dict(), "ours")
        assert sum(weight.numel() for weight in ours.parameters()) == 25_557_032  # as published
        assert torch.equal(answers(back), answers(theirs))
        assert (answers(ours) - answers(theirs)).abs().max() > 1e-3
        for stage in (ours.layer2, ours.layer3, ours.layer4):
            assert stage[0].conv1.stride == (2, 2)
            assert stage[0].conv2.stride == (1, 1)
            stage[0].conv1.stride, stage[0].conv2.stride = (1, 1), (2, 2)
        torch.testing.assert_close(answers(ours), answers(theirs))


class TestSqueezeNet:
    def test_the_same_as_torchvisions_with_the_same_weights(self):
        """Version 1.0: torchvision has the same layers in the same order, under other names."""
        theirs = torchvision_models().get_model("squeezenet1_0", weights=None).eval()
        ours = SqueezeNet().eval()
        tensors = list(theirs.state_dict().values())
        assert [tensor.shape for tensor in tensors] == [tensor.shape for tensor in ours.state_dict().values()]
        ours.load_state_dict(dict(zip(ours.state_dict(), tensors, strict=True)))
        for size in ((227, 227), (96, 70)):
            torch.testing.assert_close(answers(ours, size), answers(theirs, size))


@pytest.fixture(scope="module")
def samples(shared_data):
    """Pictures with their output unit and boxes; the number of a class is its line in ImageNet's own list."""
    folder = shared_data / "imagenet"
    lines = (folder / "LOC_synset_mapping.txt").read_text().splitlines()
    units = {line.split()[0]: unit for unit, line in enumerate(lines)}
    with (folder / "LOC_val_solution.csv").open(newline="") as file:
        rows = sorted(csv.reader(file))[:-1]  # without the header
    chosen = rows[:: len(rows) // PICTURES][:PICTURES]
    found = []
    for name, prediction in chosen:
        words = prediction.split()
        boxes = [tuple(map(float, words[start + 1 : start + 5])) for start in range(0, len(words), 5)]
        found.append((folder / "val" / f"{name}.JPEG", units[words[0]], boxes))
    return found


@pytest.fixture(scope="module", params=FILES)
def real(request, shared_data):
    """A classifier from nothing but the file of its weights."""
    path = shared_data.parent / "weights" / FILES[request.param]
    if not path.is_file():
        pytest.skip(f"no real weights at {path}")
    return request.param, path, load(path)


@pytest.fixture(scope="module")
def scores(real, samples):
    """Each image, and what the classifier answers; several tests ask for it."""
    _, _, classifier = real
    answered = []
    for path, _, _ in samples:
        with Image.open(path) as picture:
            upright = picture.convert("RGB")
        with torch.no_grad():
            answered.append((upright, classifier.module(classifier.preprocess(upright)[None])[0]))
    return answered


class TestRealWeights:
    def test_recognised_by_their_fingerprint(self, real):
        name, path, classifier = real
        assert classifier.name == name
        assert classifier.labels == imagenet_labels()
        by_name = load(name, weights=path)
        for module in (classifier.module, by_name.module):
            assert not module.training
            assert all(tensor.dtype == torch.float32 for tensor in module.parameters())
        assert torch.equal(answers(classifier.module), answers(by_name.module))

    def test_the_right_class_and_the_right_place(self, real, samples, scores):
        name, _, classifier = real
        right, hits = 0, 0
        for (_, unit, boxes), (upright, logits) in zip(samples, scores, strict=True):
            right += logits.argmax().item() == unit
            (found,) = excite.attend(classifier, upright, unit)
            assert found.layer == classifier.layer
            x, y = found.point()
            hits += any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in boxes)
        assert right >= RIGHT[name]
        assert hits >= HITS[name]
