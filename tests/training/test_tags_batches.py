"""Views of images, and the batches of a training: their order, their decoding, and unreadable images."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from excite.errors import ImageError
from excite.models import Preprocess
from excite.tags.images import open_images
from excite.training.features import Views, WholeImage, mirrored_square
from excite.training.tags.dataset import ImageLoader, TagDataset, batch_sampler, epoch_order
from excite.training.tags.model import Distributed

PREPROCESS = Preprocess(shorter_side=28, mean=0, scale=1)


def gradient(width, height):
    """Every pixel is different."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return Image.fromarray(np.stack([x, y, 0 * x], -1).astype(np.uint8))


class TestMirroredSquare:
    @pytest.mark.parametrize("size", [(6, 4), (4, 6), (5, 2), (1, 9), (7, 7)])
    def test_the_picture_is_in_the_middle(self, size):
        square = np.asarray(mirrored_square(gradient(*size)))
        side, (top, left) = max(size), [(max(size) - one) // 2 for one in size[::-1]]
        assert square.shape == (side, side, 3)
        assert (square[top : top + size[1], left : left + size[0]] == np.asarray(gradient(*size))).all()

    def test_beside_it_is_its_mirror_image(self):
        square = np.asarray(mirrored_square(gradient(8, 4)))
        assert square[:, 0, 1].tolist() == [1, 0, 0, 1, 2, 3, 3, 2]

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

    def test_told_by_seed_name_and_number_alone(self):
        def view(seed, name, number):
            return Views(PREPROCESS, seed)(gradient(40, 32), name, (number,))

        assert torch.equal(view(0, "a", 3), Views(PREPROCESS)(gradient(40, 32), "a", range(4))[3:])
        others = [view(0, "a", 0), view(1, "a", 0), view(0, "b", 0), view(0, "a", 1)]
        assert sum(torch.equal(others[0], other) for other in others) == 1

    def test_as_the_classifier_takes_pictures(self):
        dark, bright = (
            Views(Preprocess(28, mean=mean, scale=0.5, channels="bgr"))(gradient(90, 30), "name", (0,))
            for mean in ((2, 4, 6), (0, 0, 0))
        )
        expected = torch.tensor([1.0, 2, 3])[None, :, None, None].expand(1, 3, 28, 28)
        assert torch.allclose(bright - dark, expected, atol=1e-4)

    def test_the_whole_picture_is_one_view(self):
        seen = WholeImage(PREPROCESS)(gradient(30, 20), "any", (0, 1))
        assert seen.shape == (2, 3, 28, 28)
        assert torch.equal(seen[0], WholeImage(PREPROCESS)(gradient(30, 20), "other", (5,))[0])


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

    def test_groups_of_all_pictures(self):
        def group(name):
            if name == "lost":
                raise ImageError("there is no such image")
            return int(name[0])

        names, nothing = pa.array(["1/a", "0/b", "lost", "1/c"]), np.zeros((4, 2))
        dataset = TagDataset(names, nothing, nothing, nothing, {})
        assert dataset.groups(SimpleNamespace(groups=2, group=group)).tolist() == [1, 0, 0, 1]

    def test_the_sampler_begins_at_any_step_and_processes_share_each_batch(self):
        def plans(step, rank=0, size=1):
            sampler = batch_sampler(np.zeros(10, np.int64), 0, 4, 3, step, Distributed(rank, size))
            return [(epoch, rows.tolist()) for epoch, rows in sampler]

        whole = plans(0)
        assert [(epoch, len(rows)) for epoch, rows in whole] == [(k, n) for k in range(3) for n in (4, 4, 2)]
        assert sorted(row for epoch, rows in whole for row in rows if epoch == 1) == list(range(10))
        assert all(plans(step) == whole[step:] for step in range(10))
        shared = zip(plans(0, 0, 3), plans(0, 1, 3), plans(0, 2, 3), whole, strict=True)
        assert all(sorted(a + b + c) == sorted(rows) for (_, a), (_, b), (_, c), (_, rows) in shared)


def test_unreadable_pictures_are_left_out_also_by_workers(tmp_path):
    for k in range(6):
        Image.new("RGB", (12, 9), (40 * k, 0, 0)).save(tmp_path / f"{k}.png")
    (tmp_path / "3.png").write_bytes(b"no image")
    requests = ([(0, "0.png", 0), (3, "3.png", 0), (1, "1.png", 7)], [(9, "9.png", 0)], [(5, "5.png", 2)])
    own, others = (list(ImageLoader(open_images(tmp_path), Views(PREPROCESS), n)(requests)) for n in (1, 2))
    first, second, third = own
    assert first.rows.tolist() == [0, 1]
    assert [row for row, _ in first.failures] == [3]
    assert "3.png" in first.failures[0][1]
    assert second.values is None
    assert [row for row, _ in second.failures] == [9]
    assert torch.equal(third.values, Views(PREPROCESS)(Image.open(tmp_path / "5.png"), "5.png", (2,)))
    for one, two in zip(own, others, strict=True):
        assert one.rows.tolist() == two.rows.tolist()
        assert one.failures == two.failures
        assert (one.values is None and two.values is None) or torch.equal(one.values, two.values)
