"""The paper's three networks, as the deploy files of Caffe's Model Zoo describe them.

CNN-S: Chatfield et al. 2014, "VGG_CNN_S". VGG16: Simonyan and Zisserman 2014, "VGG_ILSVRC_16_layers". GoogleNet:
Szegedy et al. 2014 as trained by the BVLC, "bvlc_googlenet", without the two heads that only its training has.
The networks take images in BGR, less the mean of each channel.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from excite.models.caffe.definition import Layer, Network
from excite.models.caffe.network import CaffeNetwork

Row = tuple[str, str, Mapping[str, Any], tuple[str, ...]]  # name, kind, options, and the blobs below; () for the last

INPUT = {"data": (10, 3, 224, 224)}  # ten crops of an image, as all three were tested
IN_PLACE = frozenset({"ReLU", "Dropout"})
CLASSES = 1000


def network(name: str, rows: Iterable[Row]) -> Network:
    """Layers on top of each other, each writing a blob of its own name unless it works in place."""
    layers: list[Layer] = []
    bottoms: tuple[str, ...] = tuple(INPUT)
    for row, kind, options, given in rows:
        bottoms = given or bottoms
        tops = bottoms if kind in IN_PLACE else (row,)
        layers.append(Layer(row, kind, bottoms, tops, options))
        bottoms = tops
    return Network(name, INPUT, tuple(layers))


def conv(name: str, outputs: int, kernel: int, *below: str, **others: int) -> list[Row]:
    """A convolution and its ReLU: relu1 of conv1, conv1/relu_7x7 of conv1/7x7_s2."""
    stage, slash, unit = name.rpartition("/")
    relu = f"{stage}/relu_{unit.removesuffix('_s2')}" if slash else name.replace("conv", "relu")
    sizes = {option: (value,) for option, value in {"kernel_size": kernel, **others}.items()}
    return [(name, "Convolution", {"num_output": outputs, **sizes}, below), (relu, "ReLU", {}, ())]


def pool(name: str, kernel: int, stride: int, *below: str, method: str = "MAX", **others: int) -> Row:
    """A pooling layer."""
    return name, "Pooling", {"pool": method, "kernel_size": kernel, "stride": stride, **others}, below


def norm(name: str, alpha: float, **others: float) -> Row:
    """Local response normalisation over five channels."""
    return name, "LRN", {"local_size": 5, "alpha": alpha, "beta": 0.75, **others}, ()


def classifier(name: str, classes: int) -> list[Row]:
    """The last fully connected layer, and the softmax."""
    return [(name, "InnerProduct", {"num_output": classes}, ()), ("prob", "Softmax", {}, ())]


def connected(classes: int) -> Iterable[Row]:
    """Two hidden fully connected layers with ReLU and dropout, and the classifier."""
    for number in (6, 7):
        yield f"fc{number}", "InnerProduct", {"num_output": 4096}, ()
        yield f"relu{number}", "ReLU", {}, ()
        yield f"drop{number}", "Dropout", {"dropout_ratio": 0.5}, ()
    yield from classifier("fc8", classes)


def vgg_stages() -> Iterable[Row]:
    """The convolutions of VGG16, each stage with its pooling."""
    for stage, (outputs, number) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for index in range(1, number + 1):
            yield from conv(f"conv{stage}_{index}", outputs, 3, pad=1)
        yield pool(f"pool{stage}", 2, 2)


def inception(stage: str, below: str, *outputs: int) -> Iterable[Row]:
    """An inception module; outputs of 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5 and of the pooling branch."""
    here = f"inception_{stage}"
    one, reduce_three, three, reduce_five, five, pooled = outputs
    yield from conv(f"{here}/1x1", one, 1, below)
    yield from conv(f"{here}/3x3_reduce", reduce_three, 1, below)
    yield from conv(f"{here}/3x3", three, 3, pad=1)
    yield from conv(f"{here}/5x5_reduce", reduce_five, 1, below)
    yield from conv(f"{here}/5x5", five, 5, pad=2)
    yield pool(f"{here}/pool", 3, 1, below, pad=1)
    yield from conv(f"{here}/pool_proj", pooled, 1)
    yield f"{here}/output", "Concat", {}, tuple(f"{here}/{end}" for end in ("1x1", "3x3", "5x5", "pool_proj"))


def cnn_s(classes: int = CLASSES) -> CaffeNetwork:
    """CNN-S without weights; the paper reads it at conv5, of 17 x 17."""
    rows = [
        *conv("conv1", 96, 7, stride=2),
        norm("norm1", 0.0005, k=2.0),
        pool("pool1", 3, 3),
        *conv("conv2", 256, 5),
        pool("pool2", 2, 2),
        *conv("conv3", 512, 3, pad=1),
        *conv("conv4", 512, 3, pad=1),
        *conv("conv5", 512, 3, pad=1),
        pool("pool5", 3, 3),
        *connected(classes),
    ]
    return CaffeNetwork(network("VGG_CNN_S", rows))


def vgg16(classes: int = CLASSES) -> CaffeNetwork:
    """VGG16 without weights; the paper reads it at pool4, of 14 x 14."""
    return CaffeNetwork(network("VGG_ILSVRC_16_layers", [*vgg_stages(), *connected(classes)]))


def googlenet(classes: int = CLASSES) -> CaffeNetwork:
    """GoogleNet without weights; the paper reads it at pool2/3x3_s2, of 28 x 28."""
    rows = [
        *conv("conv1/7x7_s2", 64, 7, pad=3, stride=2),
        pool("pool1/3x3_s2", 3, 2),
        norm("pool1/norm1", 0.0001),
        *conv("conv2/3x3_reduce", 64, 1),
        *conv("conv2/3x3", 192, 3, pad=1),
        norm("conv2/norm2", 0.0001),
        pool("pool2/3x3_s2", 3, 2),
        *inception("3a", "pool2/3x3_s2", 64, 96, 128, 16, 32, 32),
        *inception("3b", "inception_3a/output", 128, 128, 192, 32, 96, 64),
        pool("pool3/3x3_s2", 3, 2),
        *inception("4a", "pool3/3x3_s2", 192, 96, 208, 16, 48, 64),
        *inception("4b", "inception_4a/output", 160, 112, 224, 24, 64, 64),
        *inception("4c", "inception_4b/output", 128, 128, 256, 24, 64, 64),
        *inception("4d", "inception_4c/output", 112, 144, 288, 32, 64, 64),
        *inception("4e", "inception_4d/output", 256, 160, 320, 32, 128, 128),
        pool("pool4/3x3_s2", 3, 2),
        *inception("5a", "pool4/3x3_s2", 256, 160, 320, 32, 128, 128),
        *inception("5b", "inception_5a/output", 384, 192, 384, 48, 128, 128),
        pool("pool5/7x7_s1", 7, 1, method="AVE"),
        ("pool5/drop_7x7_s1", "Dropout", {"dropout_ratio": 0.4}, ()),
        *classifier("loss3/classifier", classes),
    ]
    return CaffeNetwork(network("GoogleNet", rows))
