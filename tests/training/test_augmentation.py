"""Random views of images: told by seed, name and number alone."""

import numpy as np
import pytest
import torch
from PIL import Image

from excite.models import Preprocess
from excite.training.features import Views, mirrored_square

PREPROCESS = Preprocess(shorter_side=28, mean=0, scale=1)


def gradient(width, height):
    """Every pixel is different."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return Image.fromarray(np.stack([x, y, 0 * x], -1).astype(np.uint8))


class TestMirroredSquare:
    @pytest.mark.parametrize("size", [(6, 4), (4, 6), (5, 2), (1, 9)])
    def test_the_picture_is_in_the_middle(self, size):
        square = np.asarray(mirrored_square(gradient(*size)))
        side, (top, left) = max(size), [(max(size) - one) // 2 for one in size[::-1]]
        assert square.shape == (side, side, 3)
        assert (square[top : top + size[1], left : left + size[0]] == np.asarray(gradient(*size))).all()

    def test_beside_it_is_its_mirror_image(self):
        square = np.asarray(mirrored_square(gradient(8, 4)))
        assert square[:, 0, 1].tolist() == [1, 0, 0, 1, 2, 3, 3, 2]

    def test_a_square_stays_as_it_is(self):
        assert (np.asarray(mirrored_square(gradient(7, 7))) == np.asarray(gradient(7, 7))).all()

    def test_a_long_strip_takes_no_more_memory_than_a_large_picture(self):
        assert mirrored_square(Image.new("RGB", (200_000, 2))).size == (2048, 2048)


class TestViews:
    def test_a_part_of_the_squared_picture_perhaps_flipped(self):
        picture = gradient(32, 32)  # 28 * 256 / 224: nothing is resized
        whole = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)
        seen = set()
        for view in Views(PREPROCESS)(picture, "name", range(60)):
            flipped = bool(view[0, 0, 0] > view[0, 0, -1])
            upright = view.flip(-1) if flipped else view
            left, top = int(upright[0, 0, 0]), int(upright[1, 0, 0])
            assert torch.equal(upright, whole[:, top : top + 28, left : left + 28])
            seen.add((left, top, flipped))
        assert {left for left, _, _ in seen} == {top for _, top, _ in seen} == set(range(5))
        assert {flipped for *_, flipped in seen} == {True, False}

    def test_other_shapes_are_squared_first(self):
        assert Views(PREPROCESS)(gradient(90, 30), "name", (0, 1)).shape == (2, 3, 28, 28)

    def test_told_by_seed_name_and_number_alone(self):
        def view(seed, name, number):
            return Views(PREPROCESS, seed)(gradient(40, 32), name, (number,))

        assert torch.equal(view(0, "a", 3), Views(PREPROCESS)(gradient(40, 32), "a", range(4))[3:])
        others = [view(0, "a", 0), view(1, "a", 0), view(0, "b", 0), view(0, "a", 1)]
        assert sum(torch.equal(others[0], other) for other in others) == 1

    def test_as_the_classifier_takes_pictures(self):
        dark, bright = (
            Views(Preprocess(28, mean=mean, scale=0.5, channels="bgr"))(gradient(32, 32), "name", (0,))
            for mean in ((2, 4, 6), (0, 0, 0))
        )
        assert torch.equal(bright - dark, torch.tensor([1.0, 2, 3])[None, :, None, None].expand(1, 3, 28, 28))
