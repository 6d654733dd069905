"""Pictures made as the paper's experiments made them: sizes rounded down, pixels picked. The rest: test_classifier."""

import numpy as np
import pytest
import torch
from PIL import Image

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


@pytest.mark.parametrize("size", [(90, 60), (33, 47), (20, 21)])
def test_without_antialiasing_pixels_are_picked(size):
    picture = noise(*size)
    made = Preprocess(shorter_side=24, mean=0, scale=1, interpolation="bilinear", antialias=False)(picture)
    width, height = made.shape[2], made.shape[1]
    expected = picked(np.asarray(picture, dtype=np.float64), height, width)
    np.testing.assert_allclose(made.permute(1, 2, 0).numpy(), expected, atol=1e-3)


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
