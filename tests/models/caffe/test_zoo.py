"""The paper's networks: their sizes against numbers from elsewhere, and their maps of an image that is not square."""

from itertools import pairwise

import pytest
from samples import noise

import excite

COUNTS = {"cnn-s": 102_908_520, "vgg16": 138_357_544, "googlenet": 6_998_552}  # of weights, as published
LAYERS = {"cnn-s": "conv5", "vgg16": "pool4", "googlenet": "pool2/3x3_s2"}  # as in the paper
# Of 224 x 335 pixels, by hand: the confidence map (windows of 224; pooling rounds up), and the map that is read.
PLACES = {"cnn-s": ((1, 4), (17, 26)), "vgg16": ((1, 5), (14, 21)), "googlenet": ((1, 4), (28, 42))}

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


SHAPES = {"cnn-s": CNN_S_SHAPES, "vgg16": dict(vgg16_shapes()), "googlenet": dict(googlenet_shapes())}


@pytest.mark.filterwarnings("ignore::excite.errors.LostSignalWarning")  # random weights mix everything: little contrast
@pytest.mark.parametrize("name", COUNTS)
def test_published_sizes_and_maps_of_a_wide_picture(name):
    """The network answers for each window, both methods reach the paper's layer, and nothing is lost."""
    assert "http://" in excite.MODELS[name].source
    classifier = excite.load(name, weights="random")  # random weights have zero biases
    network = classifier.module.network
    assert [(blob, shape[1:]) for blob, shape in network.shapes.items()] == list(SHAPES[name].items())
    assert {shape[0] for shape in network.shapes.values()} == {1}
    assert sum(weight.numel() for weight in network.parameters()) == COUNTS[name]
    *layers, last, probabilities = network.definition.layers
    followed = [after for layer, after in pairwise(layers) if layer.kind in {"Convolution", "InnerProduct"}]
    assert all((layer.kind, layer.bottoms) == ("ReLU", layer.tops) for layer in followed)
    assert (last.kind, probabilities.name) == ("InnerProduct", "prob")

    assert classifier.layer == LAYERS[name]
    assert len(classifier.labels) == 1000
    picture, (places, size) = noise(335, 224), PLACES[name]
    assert classifier.module(classifier.preprocess(picture)[None]).shape == (1, 1000, *places)
    (plain,) = excite.attend(classifier, picture, "tench", method="mwp")
    (contrast,) = excite.attend(classifier, picture, "tench", method="c-mwp")
    assert plain.values.shape == contrast.values.shape == size
    assert (plain.layer, plain.image_size) == (LAYERS[name], (335, 224))
    assert abs(plain.mass - 1) < 1e-4
    assert 0 < contrast.mass < 1
