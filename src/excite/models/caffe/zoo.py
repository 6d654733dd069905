"""The paper's three networks, as the deploy files of Caffe's Model Zoo describe them.

CNN-S: Chatfield et al. 2014, "VGG_CNN_S". VGG16: Simonyan and Zisserman 2014, "VGG_ILSVRC_16_layers". GoogleNet:
Szegedy et al. 2014 as trained by the BVLC, "bvlc_googlenet", without the two heads that only its training has.
The networks take images in BGR, less the mean of each channel.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from excite.models.caffe.definition import Layer, Network
from excite.models.caffe.network import CaffeNetwork

Row = tuple[str, str, Mapping[str, Any]]  # name, kind, options

INPUT = {"data": (10, 3, 224, 224)}  # ten crops of an image, as all three were tested
IN_PLACE = frozenset({"ReLU", "Dropout"})
CLASSES = 1000


def conv(name: str, relu: str, outputs: int, kernel: int, **others: int) -> list[Row]:
    """A convolution and its ReLU."""
    sizes = {"kernel_size": (kernel,), **{option: (value,) for option, value in others.items()}}
    return [(name, "Convolution", {"num_output": outputs, **sizes}), (relu, "ReLU", {})]


def pool(name: str, kernel: int, stride: int, method: str = "MAX", **others: int) -> Row:
    """A pooling layer."""
    return name, "Pooling", {"pool": method, "kernel_size": kernel, "stride": stride, **others}


def norm(name: str, alpha: float, **others: float) -> Row:
    """Local response normalisation over five channels."""
    return name, "LRN", {"local_size": 5, "alpha": alpha, "beta": 0.75, **others}


def connected(number: int) -> list[Row]:
    """A hidden fully connected layer with its ReLU and dropout."""
    return [
        (f"fc{number}", "InnerProduct", {"num_output": 4096}),
        (f"relu{number}", "ReLU", {}),
        (f"drop{number}", "Dropout", {"dropout_ratio": 0.5}),
    ]


def classifier(name: str) -> list[Row]:
    """The last fully connected layer, and the softmax."""
    return [(name, "InnerProduct", {"num_output": CLASSES}), ("prob", "Softmax", {})]


def stacked(bottom: str, rows: Iterable[Row]) -> tuple[Layer, ...]:
    """Layers on top of each other, each writing a blob of its own name unless it works in place."""
    layers = []
    for name, kind, options in rows:
        top = bottom if kind in IN_PLACE else name
        layers.append(Layer(name, kind, (bottom,), (top,), options))
        bottom = top
    return tuple(layers)


def vgg_stage(stage: int, outputs: int, number: int) -> list[Row]:
    """The convolutions of a stage of VGG16, and its pooling."""
    convolutions = [
        conv(f"conv{stage}_{index}", f"relu{stage}_{index}", outputs, 3, pad=1) for index in range(1, number + 1)
    ]
    return [*(row for rows in convolutions for row in rows), pool(f"pool{stage}", 2, 2)]


def inception(stage: str, bottom: str, outputs: tuple[int, int, int, int, int, int]) -> tuple[Layer, ...]:
    """An inception module; outputs of 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5 and of the pooling branch."""
    here = f"inception_{stage}"
    one, reduce_three, three, reduce_five, five, pooled = outputs
    ends = ("1x1", "3x3", "5x5", "pool_proj")

    def unit(name: str, outputs: int, kernel: int = 1, **others: int) -> list[Row]:
        return conv(f"{here}/{name}", f"{here}/relu_{name}", outputs, kernel, **others)

    return (
        *stacked(bottom, unit("1x1", one)),
        *stacked(bottom, [*unit("3x3_reduce", reduce_three), *unit("3x3", three, 3, pad=1)]),
        *stacked(bottom, [*unit("5x5_reduce", reduce_five), *unit("5x5", five, 5, pad=2)]),
        *stacked(bottom, [pool(f"{here}/pool", 3, 1, pad=1), *unit("pool_proj", pooled)]),
        Layer(f"{here}/output", "Concat", tuple(f"{here}/{end}" for end in ends), (f"{here}/output",)),
    )


CNN_S = Network(
    "VGG_CNN_S",
    INPUT,
    stacked(
        "data",
        [
            *conv("conv1", "relu1", 96, 7, stride=2),
            norm("norm1", 0.0005, k=2.0),
            pool("pool1", 3, 3),
            *conv("conv2", "relu2", 256, 5),
            pool("pool2", 2, 2),
            *conv("conv3", "relu3", 512, 3, pad=1),
            *conv("conv4", "relu4", 512, 3, pad=1),
            *conv("conv5", "relu5", 512, 3, pad=1),
            pool("pool5", 3, 3),
            *connected(6),
            *connected(7),
            *classifier("fc8"),
        ],
    ),
)

VGG16 = Network(
    "VGG_ILSVRC_16_layers",
    INPUT,
    stacked(
        "data",
        [
            *vgg_stage(1, 64, 2),
            *vgg_stage(2, 128, 2),
            *vgg_stage(3, 256, 3),
            *vgg_stage(4, 512, 3),
            *vgg_stage(5, 512, 3),
            *connected(6),
            *connected(7),
            *classifier("fc8"),
        ],
    ),
)

GOOGLENET = Network(
    "GoogleNet",
    INPUT,
    (
        *stacked(
            "data",
            [
                *conv("conv1/7x7_s2", "conv1/relu_7x7", 64, 7, pad=3, stride=2),
                pool("pool1/3x3_s2", 3, 2),
                norm("pool1/norm1", 0.0001),
                *conv("conv2/3x3_reduce", "conv2/relu_3x3_reduce", 64, 1),
                *conv("conv2/3x3", "conv2/relu_3x3", 192, 3, pad=1),
                norm("conv2/norm2", 0.0001),
                pool("pool2/3x3_s2", 3, 2),
            ],
        ),
        *inception("3a", "pool2/3x3_s2", (64, 96, 128, 16, 32, 32)),
        *inception("3b", "inception_3a/output", (128, 128, 192, 32, 96, 64)),
        *stacked("inception_3b/output", [pool("pool3/3x3_s2", 3, 2)]),
        *inception("4a", "pool3/3x3_s2", (192, 96, 208, 16, 48, 64)),
        *inception("4b", "inception_4a/output", (160, 112, 224, 24, 64, 64)),
        *inception("4c", "inception_4b/output", (128, 128, 256, 24, 64, 64)),
        *inception("4d", "inception_4c/output", (112, 144, 288, 32, 64, 64)),
        *inception("4e", "inception_4d/output", (256, 160, 320, 32, 128, 128)),
        *stacked("inception_4e/output", [pool("pool4/3x3_s2", 3, 2)]),
        *inception("5a", "pool4/3x3_s2", (256, 160, 320, 32, 128, 128)),
        *inception("5b", "inception_5a/output", (384, 192, 384, 48, 128, 128)),
        *stacked(
            "inception_5b/output",
            [
                pool("pool5/7x7_s1", 7, 1, "AVE"),
                ("pool5/drop_7x7_s1", "Dropout", {"dropout_ratio": 0.4}),
                *classifier("loss3/classifier"),
            ],
        ),
    ),
)


def for_classes(definition: Network, classes: int) -> Network:
    """The same network with another number of classes, as it is after fine-tuning."""
    *body, last, probabilities = definition.layers
    last = replace(last, options={**last.options, "num_output": classes})
    return replace(definition, layers=(*body, last, probabilities))


def cnn_s(classes: int = CLASSES) -> CaffeNetwork:
    """CNN-S without weights; the paper reads it at conv5, of 17 x 17."""
    return CaffeNetwork(for_classes(CNN_S, classes))


def vgg16(classes: int = CLASSES) -> CaffeNetwork:
    """VGG16 without weights; the paper reads it at pool4, of 14 x 14."""
    return CaffeNetwork(for_classes(VGG16, classes))


def googlenet(classes: int = CLASSES) -> CaffeNetwork:
    """GoogleNet without weights; the paper reads it at pool2/3x3_s2, of 28 x 28."""
    return CaffeNetwork(for_classes(GOOGLENET, classes))
