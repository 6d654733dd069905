"""The batches of a training: their order, their decoding, and unreadable images."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from excite.errors import ImageError
from excite.models import Preprocess
from excite.tags.images import open_images
from excite.training.features import Views, WholeImage
from excite.training.tags.dataset import ImageLoader, TagDataset, epoch_order

SEEN = Preprocess(shorter_side=8)


class TestOrder:
    def test_one_group_is_a_permutation(self):
        orders = [epoch_order(np.zeros(50, np.int64), seed, epoch) for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))]
        assert sorted(orders[0]) == list(range(50))
        assert (orders[0] == orders[1]).all()
        assert len({tuple(order) for order in orders}) == 3

    def test_groups_are_read_one_after_the_other(self):
        groups = np.repeat(np.arange(100, 112), 10)
        order = epoch_order(groups, 0, 0, window=3)
        assert sorted(order) == list(range(120))
        for start in range(0, 120, 30):
            window = groups[order[start : start + 30]]
            assert len(set(window)) == 3
            assert (np.diff(window) != 0).sum() > 10  # mixed within
        assert groups[order[0]] not in groups[order[30:]]


class TwoGroups:
    """Images in two groups; the rest is missing."""

    groups = 2

    def group(self, name):
        if name == "lost":
            raise ImageError("there is no such image")
        return int(name[0])


def test_groups_of_all_pictures():
    names, nothing = pa.array(["1/a", "0/b", "lost", "1/c"]), np.zeros((4, 2))
    dataset = TagDataset(names, nothing, nothing, nothing, {})
    assert dataset.groups(TwoGroups()).tolist() == [1, 0, 0, 1]


@pytest.fixture
def folder(tmp_path):
    for k in range(6):
        Image.new("RGB", (12, 9), (40 * k, 0, 0)).save(tmp_path / f"{k}.png")
    (tmp_path / "3.png").write_bytes(b"no image")
    return tmp_path


def decoded(folder, batches, workers):
    return list(ImageLoader(open_images(folder), Views(SEEN), workers)(batches))


class TestDecoder:
    REQUESTS = ([(0, "0.png", 0), (3, "3.png", 0), (1, "1.png", 7)], [(9, "9.png", 0)], [(5, "5.png", 2)])

    def test_bad_pictures_are_left_out(self, folder):
        first, second, third = decoded(folder, self.REQUESTS, 1)
        assert first.rows.tolist() == [0, 1]
        assert [row for row, _ in first.failures] == [3]
        assert "3.png" in first.failures[0][1]
        assert second.values is None
        assert [row for row, _ in second.failures] == [9]
        expected = Views(SEEN)(Image.open(Path(folder, "5.png")), "5.png", (2,))
        assert torch.equal(third.values, expected)

    def test_the_same_with_workers(self, folder):
        for one, two in zip(decoded(folder, self.REQUESTS, 1), decoded(folder, self.REQUESTS, 2), strict=True):
            assert one.rows.tolist() == two.rows.tolist()
            assert one.failures == two.failures
            assert (one.values is None and two.values is None) or torch.equal(one.values, two.values)

    def test_the_whole_picture_is_one_view(self):
        picture = Image.effect_noise((30, 20), 90).convert("RGB")
        seen = WholeImage(SEEN)(picture, "any", (0, 1))
        assert seen.shape == (2, 3, 8, 8)
        assert torch.equal(seen[0], WholeImage(SEEN)(picture, "other", (5,))[0])
