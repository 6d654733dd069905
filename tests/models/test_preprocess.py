"""Pictures made as the paper's experiments made them: sizes rounded down, pixels picked. The rest: test_classifier."""

import numpy as np
import pytest
import torch
from PIL import Image

from excite.errors import ModelError
from excite.models import MODELS, Preprocess


def noise(width, height, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def picked(values, height, width):
    """Bilinear without anti-aliasing: the pixels around the centre of each new one, weighed by nearness."""

    def places(new, old):
        centres = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
        first = np.floor(centres).astype(int)
        return first, np.minimum(first + 1, old - 1), centres - first

    top, bottom, down = places(height, values.shape[0])
    left, right, across = places(width, values.shape[1])
    down, across = down[:, None, None], across[None, :, None]
    upper = values[top][:, left] * (1 - across) + values[top][:, right] * across
    lower = values[bottom][:, left] * (1 - across) + values[bottom][:, right] * across
    return upper * (1 - down) + lower * down


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (333, 500), (1023, 7), (224, 224), (225, 224), (61, 47)])
def test_the_longer_side_is_rounded_down(size):
    """As the paper has it: int(size * 224 / shorter)."""
    expected = tuple(min(side * 224 // min(size), 4 * 224) for side in size)
    assert Preprocess().size(size) == expected
    assert Preprocess()(noise(*size)).shape == (3, expected[1], expected[0])


@pytest.mark.parametrize("size", [(90, 60), (33, 47), (20, 21)])
def test_without_antialiasing_pixels_are_picked(size):
    picture = noise(*size)
    made = Preprocess(shorter_side=24, mean=0, scale=1, interpolation="bilinear", antialias=False)(picture)
    width, height = made.shape[2], made.shape[1]
    expected = picked(np.asarray(picture, dtype=np.float64), height, width)
    np.testing.assert_allclose(made.permute(1, 2, 0).numpy(), expected, atol=1e-3)


def test_stripes_survive_picking_and_not_averaging():
    stripes = np.zeros((192, 192, 3), dtype=np.uint8)
    stripes[:, 1::3] = 255
    picture = Image.fromarray(stripes)
    averaged, kept = (
        Preprocess(shorter_side=64, mean=0, scale=1, interpolation="bilinear", antialias=antialias)(picture)
        for antialias in (True, False)
    )
    assert kept.min() == 255  # the middle of each three
    assert averaged[:, :, 4:-4].max() < 150


def test_the_same_size_stays_as_it_is():
    picture = noise(40, 24)
    pixels = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)
    for antialias in (True, False):
        made = Preprocess(shorter_side=24, mean=0, scale=1, antialias=antialias)(picture)
        assert torch.equal(made, pixels)


@pytest.mark.parametrize("name", ["cnn-s", "vgg16", "googlenet"])
def test_the_papers_networks(name):
    """BGR less the mean of each channel, in units of a pixel, picked."""
    prepare = MODELS[name].preprocess
    picture = noise(301, 224)
    blue_first = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1).flip(0)
    expected = blue_first - torch.tensor([103.939, 116.779, 123.68])[:, None, None]
    torch.testing.assert_close(prepare(picture), expected)
    assert prepare.antialias is False
    assert prepare.interpolation == "bilinear"


def test_a_side_of_no_pixels():
    with pytest.raises(ModelError, match="at least one pixel"):
        Preprocess(shorter_side=-3)
