"""The paper's three networks as a user meets them: by name, at the paper's layers, on images that are not square."""

import numpy as np
import pytest
from PIL import Image

import excite
from excite.models import find_card

LAYERS = {"cnn-s": "conv5", "vgg16": "pool4", "googlenet": "pool2/3x3_s2"}
PARAMETERS = {"cnn-s": 102_908_520, "vgg16": 138_357_544, "googlenet": 6_998_552}
# Of 224 x 335 pixels, by hand: the confidence map (windows of 224; pooling rounds up), and the map that is read.
PLACES = {"cnn-s": ((1, 4), (17, 26)), "vgg16": ((1, 5), (14, 21)), "googlenet": ((1, 4), (28, 42))}


def noise(width, height):
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.mark.filterwarnings("ignore::excite.errors.LostSignalWarning")  # random weights mix everything: little contrast
@pytest.mark.parametrize("name", LAYERS)
def test_maps_of_a_wide_picture(name):
    """224 x 335: the network answers for each window, both methods reach the paper's layer, and nothing is lost."""
    classifier = excite.load(name, weights="random")  # random weights have zero biases
    assert sum(weight.numel() for weight in classifier.module.parameters()) == PARAMETERS[name]
    assert classifier.layer == LAYERS[name]
    assert len(classifier.labels) == 1000
    picture = noise(335, 224)
    places, size = PLACES[name]
    assert classifier.module(classifier.preprocess(picture)[None]).shape == (1, 1000, *places)
    (plain,) = excite.attend(classifier, picture, "tench", method="mwp")
    (contrast,) = excite.attend(classifier, picture, "tench", method="c-mwp")
    assert plain.values.shape == contrast.values.shape == size
    assert plain.layer == LAYERS[name]
    assert abs(plain.mass - 1) < 1e-4
    assert 0 < contrast.mass < 1
    assert plain.image_size == (335, 224)


@pytest.mark.parametrize("name", LAYERS)
def test_its_card_says_where_the_weights_are(name):
    card = find_card(name)
    assert card.fully_convolutional
    assert card.layers == (LAYERS[name],)
    assert "http://" in card.source
