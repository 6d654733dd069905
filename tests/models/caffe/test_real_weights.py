"""Real ImageNet weights in Caffe's formats: written as Caffe would, read by us and by OpenCV, asked about an image."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from writing import files, row

import excite
from excite.models.architectures import ResNet50
from excite.models.caffe.definition import Network


class Stack:
    """The layers and the blobs of a network, grown together from the image up."""

    def __init__(self):
        self.rows, self.blobs, self.top = [], {}, "data"

    def add(self, name, kind, *bottoms, in_place=False, blobs=(), **options):
        bottoms = bottoms or (self.top,)
        self.top = bottoms[0] if in_place else name
        self.rows.append(row(f"{name} {kind} {' '.join(bottoms)} -> {self.top}", **options))
        self.blobs[name] = blobs
        return self.top

    def convolution(self, name, module, *bottom):
        sizes = {"kernel_size": module.kernel_size[:1], "stride": module.stride[:1], "pad": module.padding[:1]}
        blobs, bias = list(module.parameters()), module.bias is not None
        return self.add(
            name, "Convolution", *bottom, blobs=blobs, num_output=module.out_channels, bias_term=bias, **sizes
        )

    def norm(self, name, module):
        """What torch does in one step Caffe does in two."""
        statistics = [module.running_mean, module.running_var, torch.ones(1)]
        options = {"use_global_stats": True, "eps": module.eps}
        self.add(f"bn_{name}", "BatchNorm", in_place=True, blobs=statistics, **options)
        scales = [module.weight, module.bias]
        return self.add(f"scale_{name}", "Scale", in_place=True, blobs=scales, bias_term=True)

    def save(self, folder, *, old=False):
        definition = Network("net", {"data": (1, 3, 227, 227)}, tuple(self.rows))
        paths = folder / "deploy.prototxt", folder / "net.caffemodel"
        for path, content in zip(paths, files(definition, self.blobs, old=old), strict=True):
            path.write_bytes(content)
        return paths


def squeezenet(net):
    stack = Stack()
    stack.convolution("conv1", net.conv1)
    stack.add("relu_conv1", "ReLU", in_place=True)
    stack.add("pool1", "Pooling", kernel_size=3, stride=2)
    for k in range(2, 10):
        fire = net.get_submodule(f"fire{k}")
        stack.convolution(f"fire{k}/squeeze1x1", fire.squeeze)
        below = stack.add(f"fire{k}/relu_squeeze1x1", "ReLU", in_place=True)
        parts = []
        for side, module in (("1x1", fire.expand1), ("3x3", fire.expand3)):
            stack.convolution(f"fire{k}/expand{side}", module, below)
            parts.append(stack.add(f"fire{k}/relu_expand{side}", "ReLU", in_place=True))
        stack.add(f"fire{k}/concat", "Concat", *parts)
        if k in {4, 8}:
            stack.add(f"pool{k}", "Pooling", kernel_size=3, stride=2)
    stack.add("drop9", "Dropout", in_place=True, dropout_ratio=0.5)
    stack.convolution("conv10", net.conv_final)
    stack.add("relu_conv10", "ReLU", in_place=True)
    stack.add("pool10", "Pooling", pool="AVE", global_pooling=True)
    stack.add("prob", "Softmax")
    return stack


def resnet50(net):
    stack = Stack()
    stack.convolution("conv1", net.conv1)
    stack.norm("conv1", net.bn1)
    stack.add("conv1_relu", "ReLU", in_place=True)
    stack.add("pool1", "Pooling", kernel_size=3, stride=2)
    for number, stage in enumerate((net.layer1, net.layer2, net.layer3, net.layer4), 2):
        for letter, block in zip("abcdef", stage, strict=False):
            here = f"{number}{letter}"
            shortcut = bottom = stack.top
            if block.downsample is not None:
                stack.convolution(f"res{here}_branch1", block.downsample[0], bottom)
                shortcut = stack.norm(f"{here}_branch1", block.downsample[1])
            for side, place in zip("abc", (1, 2, 3), strict=True):
                stack.convolution(f"res{here}_branch2{side}", block.get_submodule(f"conv{place}"), bottom)
                bottom = stack.norm(f"{here}_branch2{side}", block.get_submodule(f"bn{place}"))
                if side != "c":
                    stack.add(f"res{here}_branch2{side}_relu", "ReLU", in_place=True)
            stack.add(f"res{here}", "Eltwise", shortcut, bottom)
            stack.add(f"res{here}_relu", "ReLU", in_place=True)
    stack.add("pool5", "Pooling", pool="AVE", global_pooling=True)
    stack.add("fc1000", "InnerProduct", blobs=[net.fc.weight, net.fc.bias], num_output=1000)
    stack.add("prob", "Softmax")
    return stack


@pytest.fixture(scope="module")
def picture(shared_data):
    path = sorted((shared_data / "imagenet" / "val").glob("*.JPEG"))[3]
    with Image.open(path) as file:
        return file.convert("RGB").resize((227, 227))


def weights_file(shared_data, name):
    return Path(shared_data).parent / "weights" / f"{name}_caffe_style.safetensors"


def opencv_probabilities(definition, weights, inputs):
    cv2 = pytest.importorskip("cv2")
    net = cv2.dnn.readNetFromCaffe(str(definition), str(weights))
    net.setInput(inputs.numpy())
    return torch.from_numpy(np.array(net.forward("prob"))).reshape(1, -1)


@pytest.mark.parametrize("old", [True, False], ids=["old format", "new format"])
def test_squeezenet(shared_data, picture, tmp_path, old):
    """All three agree: our own module, the network built from the files, and OpenCV's."""
    known = excite.load(weights_file(shared_data, "squeezenet1_0"))
    definition, weights = squeezenet(known.module).save(tmp_path, old=old)
    read = excite.load(definition, weights=weights, preprocess=known.preprocess, labels=known.labels)
    inputs = known.preprocess(picture)[None]
    with torch.no_grad():
        expected, answer = known.module(inputs), read.module(inputs).flatten(1)
    torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        opencv_probabilities(definition, weights, inputs), expected.softmax(1), rtol=1e-3, atol=1e-5
    )
    (ours,) = excite.attend(known, picture, int(expected.argmax()), layer="fire9")
    (theirs,) = excite.attend(read, picture, int(expected.argmax()), layer="fire9/concat")
    torch.testing.assert_close(theirs.values, ours.values, rtol=1e-3, atol=1e-6)
    wide = picture.resize((400, 227))
    (found,) = excite.attend(read, wide, int(expected.argmax()), layer="fire9/concat", method="mwp")
    assert found.values.shape == (13, 24)


def test_resnet50_with_norms_in_two_steps(shared_data, picture, tmp_path):
    """BatchNorm, Scale and Eltwise: the same answer and the same map as torch's norms, with real, signed scales."""
    known = excite.load(weights_file(shared_data, "resnet50"))
    known.module.maxpool = nn.MaxPool2d(3, 2, ceil_mode=True)  # as Caffe's files have it: no padding, rounded up
    definition, weights = resnet50(known.module).save(tmp_path)
    read = excite.load(definition, weights=weights, preprocess=known.preprocess, fully_convolutional=False)
    inputs = known.preprocess(picture)[None]
    assert isinstance(known.module, ResNet50)
    with torch.no_grad():
        expected, answer = known.module(inputs), read.module(inputs)
    torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        opencv_probabilities(definition, weights, inputs), expected.softmax(1), rtol=1e-2, atol=1e-4
    )
    (ours,) = excite.attend(known, picture, int(expected.argmax()), layer="layer3")
    (theirs,) = excite.attend(read, picture, int(expected.argmax()), layer="res4f_relu")
    torch.testing.assert_close(theirs.values, ours.values, rtol=1e-2, atol=1e-5)
