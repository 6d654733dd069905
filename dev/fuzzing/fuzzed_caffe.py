"""Readers of Caffe's networks and weights."""

from fuzzed import Reader
from writing import chunk, new_blob, new_layer, number, old_blob

from excite.models import load
from excite.models.caffe.reading import read_network_of_weights, read_weights
from excite.models.loading import find_card

__all__ = ["READERS"]

NEW = """name: "tiny" input: "data" input_shape { dim: 1 dim: 3 dim: 16 dim: 16 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 2 kernel_size: 3 pad: 1 group: 1 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 } }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "join" type: "Concat" bottom: "pool" bottom: "pool" top: "join" concat_param { axis: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "join" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" dropout_param { dropout_ratio: 0.5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" include { phase: TEST } }
"""


OLD = """name: "old" input: "data" input_dim: 1 input_dim: 3 input_dim: 16 input_dim: 16
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv"
         convolution_param { num_output: 2 kernel_size: 3 stride: 2 } }
layers { name: "pool" type: POOLING bottom: "conv" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layers { name: "ip" type: INNER_PRODUCT bottom: "pool" top: "ip" inner_product_param { num_output: 4 } }
"""


BATCHED = """layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 2 kernel_h: 3 kernel_w: 1 dilation: 2 pad_h: 2 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" batch_norm_param { eps: 1e-5 } }
layer { name: "scale" type: "Scale" bottom: "bn" top: "bn" scale_param { bias_term: true } }
layer { name: "sum" type: "Eltwise" bottom: "bn" bottom: "conv" top: "sum"
        eltwise_param { operation: SUM coeff: 1 coeff: -1 } }
layer { name: "flat" type: "Flatten" bottom: "sum" top: "flat" }
layer { name: "shape" type: "Reshape" bottom: "flat" top: "shape"
        reshape_param { shape { dim: 0 dim: -1 } } }
layer { name: "odd" type: "NoSuch" bottom: "shape" top: "odd" no_such_param { a: 1 }
        include { phase: TRAIN } }
"""


WORDS = b"layer layers name type bottom top num_output kernel_size stride pad group dilation dim: shape {} pool".split()


def _caffemodel(pixels=4):
    convolution = chunk(106, number(1, 2) + number(4, 3))
    product = chunk(117, number(1, 4))
    layers = [
        new_layer("data", "Input", (), ("data",), rest=chunk(143, chunk(1, chunk(1, bytes([1, 3, pixels, pixels]))))),
        new_layer(
            "conv",
            "Convolution",
            ("data",),
            ("conv",),
            blobs=[new_blob((2, 3, 3, 3), [0.5] * 54), new_blob((2,), [1, 2])],
            rest=convolution,
        ),
        new_layer("relu", "ReLU", ("conv",), ("conv",)),
        new_layer(
            "ip",
            "InnerProduct",
            ("conv",),
            ("ip",),
            blobs=[old_blob((1, 1, 4, 8), [0.1] * 32), old_blob((1, 1, 1, 4), [0] * 4)],
            rest=product,
        ),
    ]
    return chunk(1, "tiny") + b"".join(layers)


def _caffemodels():
    return [
        _caffemodel(),
        chunk(1, "small") + new_layer("ip", "InnerProduct", ("data",), ("ip",), blobs=[new_blob((2,), [1, 2])]),
    ]


def _caffe_bombs():
    nested = b""
    for _ in range(3_000):
        nested = chunk(100, nested)
    many = b"".join(chunk(100, b"") for _ in range(60_000))
    shape = chunk(100, chunk(1, "a") + chunk(7, chunk(7, chunk(1, b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 20))))
    return [nested, many, shape, b"\xff" * 5_000, chunk(100, b"\x0a" + b"\xff" * 9 + b"\x01")]


def _chain(layers, kind, bottoms=1):
    """So many layers, each reading the one before it."""
    lines = ['input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8']
    for k in range(layers):
        read = f'bottom: "{f"r{k - 1}" if k else "data"}" ' * bottoms
        lines.append(f'layer {{ name: "r{k}" type: "{kind}" {read}top: "r{k}" }}')
    return "\n".join(lines)


def _prototxt_bombs():
    wide = OLD.replace("num_output: 2 kernel_size: 3", "num_output: 2147483647 kernel_size: 2147483647")
    padded = OLD.replace("kernel_size: 3", "kernel_size: 3 pad: 100000000")
    chains = (_chain(3_000, "ReLU"), _chain(60, "Concat", 2), _chain(300, "Split"))
    texts = ("layer {" * 50_000, "a" * 900_000, '"' * 100_000, "#" * 100_000, 'name: "' + "\\" * 99_999)
    return [text.encode() for text in (wide, padded, *chains, *texts)]


def _built(folder):
    return find_card(str(folder / "net.prototxt")).build(None)


def _texts(*texts):
    return lambda: [text.encode() for text in texts]


READERS = (
    Reader(
        "prototxt",
        "excite.models.loading.find_card, Card.build",
        "net.prototxt",
        _built,
        _texts(NEW, OLD, BATCHED),
        "words",
        tuple(WORDS),
        hostile=_prototxt_bombs,
    ),
    Reader(
        "caffemodel weights",
        "excite.models.caffe.reading.read_weights",
        "net.caffemodel",
        lambda folder: read_weights(folder / "net.caffemodel"),
        _caffemodels,
        "protobuf",
        hostile=_caffe_bombs,
    ),
    Reader(
        "caffemodel network",
        "excite.models.caffe.reading.read_network_of_weights",
        "net.caffemodel",
        lambda folder: read_network_of_weights(folder / "net.caffemodel"),
        _caffemodels,
        "protobuf",
        hostile=_caffe_bombs,
    ),
    Reader(
        "caffemodel",
        "excite.load",
        "net.caffemodel",
        lambda folder: load(folder / "net.caffemodel"),
        lambda: _caffemodels()[:1],
        "protobuf",
        hostile=_caffe_bombs,
    ),
)
