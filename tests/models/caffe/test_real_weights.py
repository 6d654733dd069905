"""Real ImageNet weights in Caffe's formats: written as Caffe would, read by us and by OpenCV, asked about an image."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from writing import Word, chunk, new_layer, number, old_layer, prototxt, varint

import excite
from excite.models.architectures.caffe_era import ResNet50

CONVOLUTION = 4
INPUT = [("name", "net"), ("input", "data"), ("input_shape", [("dim", size) for size in (1, 3, 227, 227)])]


class Writer:
    """A deploy.prototxt and the layers of its .caffemodel, grown together from the image up."""

    def __init__(self, *, old):
        self.old = old
        self.text, self.layers, self.top = list(INPUT), [], "data"

    def add(self, name, kind, parameters=(), *, bottoms=None, in_place=False, blobs=()):
        bottoms = bottoms or [self.top]
        top = bottoms[0] if in_place else name
        spelled = Word(kind.upper()) if self.old else kind
        fields = [("name", name), ("type", spelled), *(("bottom", bottom) for bottom in bottoms), ("top", top)]
        self.text.append(("layers" if self.old else "layer", [*fields, *parameters]))
        if blobs and self.old:
            self.layers.append(old_layer(name, CONVOLUTION, blobs=[self.blob(blob) for blob in blobs]))
        elif blobs:
            self.layers.append(new_layer(name, kind, blobs=[self.blob(blob) for blob in blobs]))
        self.top = top
        return top

    def blob(self, tensor):
        data = chunk(5, tensor.detach().numpy().astype("<f4").tobytes())
        if self.old:
            shape = [1] * (4 - tensor.dim()) + list(tensor.shape)
            return b"".join(number(field, size) for field, size in enumerate(shape, 1)) + data
        return data + chunk(7, chunk(1, b"".join(varint(size) for size in tensor.shape)))

    def convolution(self, name, module, bottom=None):
        options = [("num_output", module.out_channels), ("kernel_size", module.kernel_size[0])]
        options += [("stride", module.stride[0]), ("pad", module.padding[0]), ("bias_term", module.bias is not None)]
        blobs = [module.weight] if module.bias is None else [module.weight, module.bias]
        return self.add(name, "Convolution", [("convolution_param", options)], bottoms=bottom and [bottom], blobs=blobs)

    def relu(self, name):
        return self.add(name, "ReLU", in_place=True)

    def norm(self, name, module):
        """What torch does in one step Caffe does in two."""
        statistics = [module.running_mean, module.running_var, torch.ones(1)]
        options = [("use_global_stats", True), ("eps", module.eps)]
        self.add(f"bn_{name}", "BatchNorm", [("batch_norm_param", options)], in_place=True, blobs=statistics)
        bias = [("scale_param", [("bias_term", True)])]
        return self.add(f"scale_{name}", "Scale", bias, in_place=True, blobs=[module.weight, module.bias])

    def pool(self, name, kernel, stride):
        options = [("pool", Word("MAX")), ("kernel_size", kernel), ("stride", stride)]
        return self.add(name, "Pooling", [("pooling_param", options)])

    def save(self, folder):
        definition, weights = folder / "deploy.prototxt", folder / "net.caffemodel"
        definition.write_text(prototxt(self.text))
        weights.write_bytes(chunk(1, "net") + b"".join(self.layers))
        return definition, weights


def squeezenet(writer, net):
    writer.convolution("conv1", net.conv1)
    writer.relu("relu_conv1")
    writer.pool("pool1", 3, 2)
    for k in range(2, 10):
        fire = net.get_submodule(f"fire{k}")
        writer.convolution(f"fire{k}/squeeze1x1", fire.squeeze)
        below = writer.relu(f"fire{k}/relu_squeeze1x1")
        parts = []
        for side, module in (("1x1", fire.expand1), ("3x3", fire.expand3)):
            writer.convolution(f"fire{k}/expand{side}", module, below)
            parts.append(writer.relu(f"fire{k}/relu_expand{side}"))
        writer.add(f"fire{k}/concat", "Concat", bottoms=parts)
        if k in {4, 8}:
            writer.pool(f"pool{k}", 3, 2)
    writer.add("drop9", "Dropout", [("dropout_param", [("dropout_ratio", 0.5)])], in_place=True)
    writer.convolution("conv10", net.conv_final)
    writer.relu("relu_conv10")
    writer.add("pool10", "Pooling", [("pooling_param", [("pool", Word("AVE")), ("global_pooling", True)])])
    writer.add("prob", "Softmax")


def resnet50(writer, net):
    writer.convolution("conv1", net.conv1)
    writer.norm("conv1", net.bn1)
    writer.relu("conv1_relu")
    writer.pool("pool1", 3, 2)
    for number_, stage in enumerate((net.layer1, net.layer2, net.layer3, net.layer4), 2):
        for letter, block in zip("abcdef", stage, strict=False):
            shortcut = start = writer.top
            if block.downsample is not None:
                writer.convolution(f"res{number_}{letter}_branch1", block.downsample[0], start)
                shortcut = writer.norm(f"{number_}{letter}_branch1", block.downsample[1])
            bottom = start
            for side, conv, norm in zip(
                "abc", (block.conv1, block.conv2, block.conv3), (block.bn1, block.bn2, block.bn3), strict=True
            ):
                writer.convolution(f"res{number_}{letter}_branch2{side}", conv, bottom)
                bottom = writer.norm(f"{number_}{letter}_branch2{side}", norm)
                if side != "c":
                    writer.relu(f"res{number_}{letter}_branch2{side}_relu")
            writer.add(f"res{number_}{letter}", "Eltwise", bottoms=[shortcut, bottom])
            writer.relu(f"res{number_}{letter}_relu")
    writer.add("pool5", "Pooling", [("pooling_param", [("pool", Word("AVE")), ("global_pooling", True)])])
    options = [("inner_product_param", [("num_output", 1000)])]
    writer.add("fc1000", "InnerProduct", options, blobs=[net.fc.weight, net.fc.bias])
    writer.add("prob", "Softmax")


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
    writer = Writer(old=old)
    squeezenet(writer, known.module)
    definition, weights = writer.save(tmp_path)
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
    writer = Writer(old=False)
    resnet50(writer, known.module)
    definition, weights = writer.save(tmp_path)
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
