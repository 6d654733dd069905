"""The reader against models written by hand, byte for byte as Caffe lays them out."""

import sys

import numpy as np
import pytest
import torch
from writing import chunk, double, new_blob, new_layer, number, old_blob, old_layer, packed, single, varint

from excite.errors import ModelError
from excite.models.caffe.definition import Layer
from excite.models.caffe.reading import net_parameter, read_network, read_network_of_weights, read_weights

CONVOLUTION, DATA, INNER_PRODUCT, RELU, SOFTMAX_LOSS, SPLIT = 4, 5, 14, 18, 21, 22


def numbers(count, seed=0):
    return np.random.default_rng(seed).normal(size=count).astype(np.float32)


def test_weights_of_both_formats(saved):
    weight, bias = numbers(24), numbers(2, seed=1)
    new = new_layer("conv", "Convolution", blobs=[new_blob((2, 3, 2, 2), weight), new_blob((2,), bias)])
    old = old_layer("conv", CONVOLUTION, blobs=[old_blob((2, 3, 2, 2), weight), old_blob((1, 1, 1, 2), bias)])
    relu_new, relu_old = new_layer("relu", "ReLU"), old_layer("relu", RELU)
    for model, shape in ((new + relu_new, (2,)), (relu_old + old, (1, 1, 1, 2))):
        read = read_weights(saved(chunk(1, "net") + model))
        assert list(read) == ["conv"]
        for found, values, expected in zip(read["conv"], (weight, bias), ((2, 3, 2, 2), shape), strict=True):
            assert (found.dtype, found.shape) == (torch.float32, expected)
            np.testing.assert_array_equal(found.flatten(), values)
    read["conv"][0].zero_()  # they are the reader's own, not the file's


@pytest.mark.parametrize(
    "blob",
    [
        b"".join(single(5, value) for value in (1, 2, 3)) + chunk(7, chunk(1, varint(3))),  # unpacked
        chunk(7, number(1, 3)) + chunk(5, packed([1, 2])) + single(5, 3),  # in pieces, its shape unpacked
        chunk(8, packed([1, 2, 3], "d")) + chunk(7, chunk(1, varint(3))),
        b"".join(double(8, value) for value in (1, 2, 3)) + chunk(7, chunk(1, varint(3))),
        chunk(5, packed([1, 2, 3])) + chunk(6, packed([9, 9, 9])) + chunk(7, number(1, 3)) + chunk(9, packed([9], "d")),
    ],
    ids=["unpacked", "pieces", "doubles", "unpacked doubles", "with gradients"],
)
def test_every_way_to_write_numbers(saved, blob):
    (tensor,) = read_weights(saved(new_layer("a", "Bias", blobs=[blob])))["a"]
    torch.testing.assert_close(tensor, torch.tensor([1.0, 2.0, 3.0]), rtol=0, atol=0)


def test_two_layers_of_one_name(saved):
    blob = new_blob((1,), [1.0])
    with_blob = new_layer("a", "Bias", blobs=[blob])
    assert len(read_weights(saved(new_layer("a", "ReLU") + with_blob + new_layer("a", "ReLU")))["a"]) == 1
    with pytest.raises(ModelError, match="two layers named 'a'"):
        read_weights(saved(with_blob + with_blob))


def test_the_network_in_the_weights_is_that_of_the_text(saved):
    parameters = number(1, 8) + number(3, 1) + number(4, 3) + chunk(7, chunk(1, "xavier")) + chunk(18, varint(2))
    blob = new_blob((1,), [1.0])
    model = chunk(1, "n") + chunk(3, "data") + chunk(8, chunk(1, varint(1) + varint(3)))
    model += new_layer("c", "Convolution", ["data"], ["c"], blobs=[blob], rest=number(10, 0) + chunk(106, parameters))
    text = """name: "n" input: "data" input_shape { dim: 1 dim: 3 } layer { name: "c" type: "Convolution" bottom: "data"
        top: "c" convolution_param { num_output: 8 pad: 1 kernel_size: 3 dilation: 2 weight_filler { std: 1 } } }"""
    network = read_network_of_weights(saved(model))
    assert network == read_network(saved(text))
    assert network.layers[0].options == {"num_output": 8, "pad": (1,), "kernel_size": (3,), "dilation": (2,)}


def test_the_network_that_training_saved(saved):
    """Its data layer is of the training phase, and labels with several readers go through a Split."""
    train = chunk(32, number(1, 0))
    model = old_layer("data", DATA, [], ["data", "label"], rest=train + chunk(11, chunk(1, "lmdb")))
    model += old_layer("label_split", SPLIT, ["label"], ["label_0", "label_1"])
    model += old_layer("fc", INNER_PRODUCT, ["data"], ["fc"], rest=chunk(17, number(1, 7)))
    model += old_layer("loss", SOFTMAX_LOSS, ["fc", "label_0"], ["loss"])
    network = read_network_of_weights(saved(model))
    assert network.inputs == {"data": ()}
    assert network.layers == (Layer("fc", "InnerProduct", ("data",), ("fc",), {"num_output": 7}),)


NUMBERS = {  # of Caffe's own fields: of the parameters in a new layer, in an old one with its kind, and inside them
    "BatchNorm": (139, None, "use_global_stats 1, moving_average_fraction 2 f, eps 3 f"),
    "Bias": (141, None, "axis 1, num_axes 2"),
    "Concat": (104, (9, 3), "concat_dim 1, axis 2"),
    "Convolution": (106, (10, 4), """num_output 1, bias_term 2, pad 3, kernel_size 4, group 5, stride 6, pad_h 9,
        pad_w 10, kernel_h 11, kernel_w 12, stride_h 13, stride_w 14, engine 15, axis 16, force_nd_im2col 17,
        dilation 18"""),
    "Deconvolution": (106, (10, 39), "num_output 1, group 5"),
    "Dropout": (108, (12, 6), "dropout_ratio 1 f"),
    "ELU": (140, None, "alpha 1 f"),
    "Eltwise": (110, (24, 25), "operation 1, coeff 2 f, stable_prod_grad 3"),
    "Flatten": (135, None, "axis 1, end_axis 2"),
    "InnerProduct": (117, (17, 14), "num_output 1, bias_term 2, axis 5, transpose 6"),
    "LRN": (118, (18, 15), "local_size 1, alpha 2 f, beta 3 f, norm_region 4, k 5 f, engine 6"),
    "PReLU": (131, None, "channel_shared 2"),
    "Pooling": (121, (19, 17), """pool 1, kernel_size 2, stride 3, pad 4, kernel_h 5, kernel_w 6, stride_h 7,
        stride_w 8, pad_h 9, pad_w 10, engine 11, global_pooling 12, round_mode 13"""),
    "Power": (122, (21, 26), "power 1 f, scale 2 f, shift 3 f"),
    "ReLU": (123, (30, 18), "negative_slope 1 f, engine 2"),
    "Reshape": (133, None, "axis 2, num_axes 3"),
    "Scale": (142, None, "axis 1, num_axes 2, bias_term 4"),
    "Sigmoid": (124, (38, 19), "engine 1"),
    "Softmax": (125, (39, 20), "engine 1, axis 2"),
    "TanH": (127, (37, 23), "engine 1"),
}  # fmt: skip
WORDS = {"pool": "AVE", "engine": "CAFFE", "operation": "SUM", "norm_region": "WITHIN_CHANNEL", "round_mode": "FLOOR"}
LISTS = {"pad", "kernel_size", "stride", "dilation"}


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_number_is_caffes(kind, saved):
    new, old, table = NUMBERS[kind]
    parameters, expected = b"", {}
    for name, place, *real in (entry.split() for entry in table.split(",")):
        parameters += single(int(place), 0.5) if real else number(int(place), 1)
        plain = 0.5 if real else WORDS.get(name, 1)
        many = name == "coeff" or (name in LISTS and kind != "Pooling")
        expected[name] = (plain,) if many else plain
    models = [new_layer("a", kind, rest=chunk(new, parameters))]
    models += [] if old is None else [old_layer("a", old[1], rest=chunk(old[0], parameters))]
    for model in models:
        assert read_network_of_weights(saved(model)).layers == (Layer("a", kind, (), (), expected),)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (new_layer("c", "Convolution", rest=chunk(106, number(19, 2))), "layer 'c' has a field 19 in its Convol"),
        (new_layer("c", "Convolution", rest=chunk(321, b"")), "layer 'c' has a field 321 in its LayerParameter"),
        (new_layer("p", "Pooling", rest=chunk(121, number(1, 9))), "field 1 in its PoolingParameter"),
        (new_layer("r", "ReLU") + chunk(77, b""), "field 77 in its NetParameter"),
        (old_layer("crop", 40), "layer 'crop' says no type"),
        (chunk(2, chunk(1, chunk(1, "conv1")) + chunk(2, "data")), "2013"),
        (new_layer("r", b"\xff\xfe"), "not UTF-8"),
        (chunk(100, chunk(1, b"\xff") + chunk(2, "ReLU")), "not UTF-8"),
        (new_layer("c", "Convolution", rest=chunk(106, b"\xff")), "damaged"),
    ],
)
def test_what_is_not_caffes_in_a_model(saved, model, message):
    with pytest.raises(ModelError, match=message):
        read_network_of_weights(saved(model))


def test_without_protobuf(saved, monkeypatch):
    """The weights need none; the rest says what to install."""
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    net_parameter.cache_clear()
    model = saved(new_layer("b", "Bias", blobs=[new_blob((1,), [1.0])]), "model")
    assert list(read_weights(model)) == ["b"]
    for read, path in ((read_network, saved('layer { type: "ReLU" }')), (read_network_of_weights, model)):
        with pytest.raises(ModelError, match=r"needs protobuf: pip install 'excite\[caffe\]'"):
            read(path)
