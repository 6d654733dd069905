"""The paper's networks: their sizes against numbers from elsewhere, and their maps.

The whole file takes about 10 s on one slow core and 1.5 GB at most: only CNN-S runs with all its weights; VGG16 has
thinner full connections here, which are 124 of its 138 million weights.
"""

from dataclasses import replace

import pytest
import torch

from excite.models.caffe.network import CaffeNetwork
from excite.models.caffe.zoo import cnn_s, googlenet, vgg16
from excite.propagation import ExcitationPass

BUILDERS = {"cnn_s": cnn_s, "vgg16": vgg16, "googlenet": googlenet}
COUNTS = {"cnn_s": 102_908_520, "vgg16": 138_357_544, "googlenet": 6_998_552}  # as published

# (outputs, inputs, kernel) of each convolution; a full connection is one as large as its input
CNN_S_UNITS = [
    *[(96, 3, 7), (256, 96, 5), (512, 256, 3), (512, 512, 3), (512, 512, 3)],
    *[(4096, 512, 6), (4096, 4096, 1), (1000, 4096, 1)],
]
VGG16_UNITS = [
    *[(64, 3, 3), (64, 64, 3), (128, 64, 3), (128, 128, 3), (256, 128, 3), (256, 256, 3), (256, 256, 3)],
    *[(512, 256, 3), (512, 512, 3), (512, 512, 3), (512, 512, 3), (512, 512, 3), (512, 512, 3)],
    *[(4096, 512, 7), (4096, 4096, 1), (1000, 4096, 1)],
]
# Table 1 of "Going deeper with convolutions": inputs, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool proj, places
INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32, 28),
    "3b": (256, 128, 128, 192, 32, 96, 64, 28),
    "4a": (480, 192, 96, 208, 16, 48, 64, 14),
    "4b": (512, 160, 112, 224, 24, 64, 64, 14),
    "4c": (512, 128, 128, 256, 24, 64, 64, 14),
    "4d": (512, 112, 144, 288, 32, 64, 64, 14),
    "4e": (528, 256, 160, 320, 32, 128, 128, 14),
    "5a": (832, 256, 160, 320, 32, 128, 128, 7),
    "5b": (832, 384, 192, 384, 48, 128, 128, 7),
}


def inception_units(inputs, one, reduce3, three, reduce5, five, pooled, _places):
    return [
        *[(one, inputs, 1), (reduce3, inputs, 1), (three, reduce3, 3)],
        *[(reduce5, inputs, 1), (five, reduce5, 5), (pooled, inputs, 1)],
    ]


GOOGLENET_UNITS = [
    *[(64, 3, 7), (64, 64, 1), (192, 64, 3)],
    *[unit for stage in INCEPTIONS.values() for unit in inception_units(*stage)],
    (1000, 1024, 1),
]
UNITS = {"cnn_s": CNN_S_UNITS, "vgg16": VGG16_UNITS, "googlenet": GOOGLENET_UNITS}


@pytest.mark.parametrize("name", BUILDERS)
def test_the_number_of_parameters(name):
    network = BUILDERS[name]()
    assert sum(weight.numel() for weight in network.parameters()) == COUNTS[name]
    assert sum(outputs * (inputs * kernel**2 + 1) for outputs, inputs, kernel in UNITS[name]) == COUNTS[name]
    weights = [tuple(weight.shape) for weight in network.parameters() if weight.dim() > 1]
    full = [
        (outputs, inputs * kernel**2)
        if number >= len(UNITS[name]) - (1 if name == "googlenet" else 3)
        else (outputs, inputs, kernel, kernel)
        for number, (outputs, inputs, kernel) in enumerate(UNITS[name])
    ]
    assert weights == full


CNN_S_SHAPES = {
    "data": (3, 224, 224),
    "conv1": (96, 109, 109),
    "norm1": (96, 109, 109),
    "pool1": (96, 37, 37),  # 36 if the last window were left out
    "conv2": (256, 33, 33),
    "pool2": (256, 17, 17),  # not 16
    "conv3": (512, 17, 17),
    "conv4": (512, 17, 17),
    "conv5": (512, 17, 17),
    "pool5": (512, 6, 6),  # not 5
    "fc6": (4096,),
    "fc7": (4096,),
    "fc8": (1000,),
}


def vgg16_shapes():
    yield "data", (3, 224, 224)
    for stage, (number, outputs, places) in enumerate(
        [(2, 64, 224), (2, 128, 112), (3, 256, 56), (3, 512, 28), (3, 512, 14)], 1
    ):
        yield from ((f"conv{stage}_{place}", (outputs, places, places)) for place in range(1, number + 1))
        yield f"pool{stage}", (outputs, places // 2, places // 2)
    yield from {"fc6": (4096,), "fc7": (4096,), "fc8": (1000,)}.items()


def googlenet_shapes():
    yield "data", (3, 224, 224)
    yield "conv1/7x7_s2", (64, 112, 112)
    yield from ((name, (64, 56, 56)) for name in ("pool1/3x3_s2", "pool1/norm1", "conv2/3x3_reduce"))
    yield from ((name, (192, 56, 56)) for name in ("conv2/3x3", "conv2/norm2"))
    yield "pool2/3x3_s2", (192, 28, 28)
    for stage, (inputs, one, reduce3, three, reduce5, five, pooled, places) in INCEPTIONS.items():
        channels = {"1x1": one, "3x3_reduce": reduce3, "3x3": three, "5x5_reduce": reduce5, "5x5": five}
        channels |= {"pool": inputs, "pool_proj": pooled, "output": one + three + five + pooled}
        yield from ((f"inception_{stage}/{name}", (number, places, places)) for name, number in channels.items())
        if stage in {"3b", "4e"}:
            yield f"pool{stage[0]}/3x3_s2", (channels["output"], places // 2, places // 2)
    yield "pool5/7x7_s1", (1024, 1, 1)
    yield "loss3/classifier", (1000,)


SHAPES = {"cnn_s": CNN_S_SHAPES, "vgg16": dict(vgg16_shapes()), "googlenet": dict(googlenet_shapes())}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_blob_has_the_published_shape(name):
    found = BUILDERS[name]().shapes
    assert {blob: shape[1:] for blob, shape in found.items()} == SHAPES[name]
    assert list(found) == list(SHAPES[name])
    assert {shape[0] for shape in found.values()} == {1}


def test_names_and_order_of_the_layers():
    assert " ".join(layer.name for layer in cnn_s().definition.layers) == (
        "conv1 relu1 norm1 pool1 conv2 relu2 pool2 conv3 relu3 conv4 relu4 conv5 relu5 pool5 "
        "fc6 relu6 drop6 fc7 relu7 drop7 fc8 prob"
    )
    assert " ".join(layer.name for layer in vgg16().definition.layers) == (
        "conv1_1 relu1_1 conv1_2 relu1_2 pool1 conv2_1 relu2_1 conv2_2 relu2_2 pool2 "
        "conv3_1 relu3_1 conv3_2 relu3_2 conv3_3 relu3_3 pool3 conv4_1 relu4_1 conv4_2 relu4_2 conv4_3 relu4_3 pool4 "
        "conv5_1 relu5_1 conv5_2 relu5_2 conv5_3 relu5_3 pool5 fc6 relu6 drop6 fc7 relu7 drop7 fc8 prob"
    )
    names = [layer.name for layer in googlenet().definition.layers]
    assert len(names) == len(set(names)) == 142
    assert (
        names[:10]
        == (
            "conv1/7x7_s2 conv1/relu_7x7 pool1/3x3_s2 pool1/norm1 conv2/3x3_reduce conv2/relu_3x3_reduce conv2/3x3 "
            "conv2/relu_3x3 conv2/norm2 pool2/3x3_s2"
        ).split()
    )
    assert names[10:24] == [
        f"inception_3a/{name}"
        for name in (
            "1x1 relu_1x1 3x3_reduce relu_3x3_reduce 3x3 relu_3x3 5x5_reduce relu_5x5_reduce 5x5 relu_5x5 pool "
            "pool_proj relu_pool_proj output"
        ).split()
    ]
    assert names[-4:] == ["pool5/7x7_s1", "pool5/drop_7x7_s1", "loss3/classifier", "prob"]


def thinner(definition, kind, divisor):
    """The same network with fewer units in its hidden layers of a kind."""
    last = [layer.name for layer in definition.layers if layer.kind == "InnerProduct"][-1]
    layers = [
        replace(layer, options={**layer.options, "num_output": layer.options["num_output"] // divisor})
        if layer.kind == kind and layer.name != last
        else layer
        for layer in definition.layers
    ]
    return replace(definition, layers=tuple(layers))


def pictures(number=1):
    return torch.rand(number, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 255 - 115


def check_maps(network, layer):
    """Without biases no unit can win by itself: all of the signal arrives, that of the dual unit too."""
    sweep = ExcitationPass(network, pictures(), [layer])
    signal = torch.zeros(1, 1000)
    signal[0, 283] = 1
    assert sweep.output.shape == signal.shape
    assert sweep.output.abs().max() > 1e-3
    unit = sweep.down(signal)[layer]
    dual = sweep.down(signal, unit=0.0, dual=1.0)[layer]
    contrast = sweep.down(signal, unit=1.0, dual=-1.0)[layer]
    assert tuple(unit.shape) == network.shapes[layer]
    for probability in (unit, dual):
        assert probability.min() >= 0
        assert probability.sum().item() == pytest.approx(1, abs=1e-4)
    torch.testing.assert_close(contrast, unit - dual, atol=1e-6, rtol=0)
    assert contrast.abs().sum() > 1e-4
    assert contrast.sum().item() == pytest.approx(0, abs=1e-4)


def test_maps_of_cnn_s_with_all_its_weights():
    check_maps(cnn_s().initialise(), "conv5")  # 7 s


def test_maps_of_vgg16():
    check_maps(CaffeNetwork(thinner(vgg16().definition, "InnerProduct", 64)).initialise(), "pool4")  # 3 s


def test_maps_of_googlenet():
    check_maps(googlenet().initialise(), "pool2/3x3_s2")  # 2 s


def test_weights_go_to_their_layers_and_those_of_other_heads_are_reported():
    network = CaffeNetwork(thinner(thinner(cnn_s().definition, "Convolution", 8), "InnerProduct", 16))
    blobs = {step.layer.name: list(network.get_submodule(step.module).state_dict().values()) for step in network._steps}
    blobs = {name: [torch.zeros(blob.shape) for blob in found] for name, found in blobs.items() if found}
    assert list(blobs) == "conv1 conv2 conv3 conv4 conv5 fc6 fc7 fc8".split()
    heads = {"loss1/classifier": [torch.zeros(1000, 1024)]}
    assert network.load_blobs({**blobs, **heads}, "test") == ["loss1/classifier"]
    assert not network(pictures()).any()
