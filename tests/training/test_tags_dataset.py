"""A corpus as arrays, the views of its images, and the batches of a training."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from excite.errors import DataError, ImageError
from excite.models import Preprocess
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary
from excite.tags.images import open_images
from excite.training.examples import uniform_hash
from excite.training.features import Views, WholeImage, mirrored_square
from excite.training.tags.dataset import ImageLoader, TagDataset, batch_sampler, epoch_order, read_tag_dataset
from excite.training.tags.model import Distributed
from excite.training.tags.run import chosen_dictionary

TAGS = Dictionary(("dog", "cat", "2019", "日本", "-"), (5, 4, 3, 2, 1))


def write(path, rows, **more):
    images, tags = zip(*rows, strict=True) if rows else ((), ())
    table = pa.table(
        {
            "image": pa.array(images, pa.string()),
            "tags": pa.array(tags, pa.list_(pa.string())),
            "user": pa.array([None] * len(rows), pa.string()),
        }
    )
    pq.write_table(table, path, **more)
    return Corpus(path)


def units(dataset):
    return {dataset.names[row].as_py(): dataset.units[row].tolist() for row in range(len(dataset))}


class TestWhatIsLearnt:
    def test_the_first_tags_as_listed(self, tmp_path):
        rows = [
            ("a", ["cat", "emu", "dog", "cat", "emu", "2019"]),  # 2019 is the sixth, the second cat is none
            ("b", ["日本"]),
            ("c", ["emu", None, "dog"]),
        ]
        learnt, held_out = read_tag_dataset(write(tmp_path / "c.parquet", rows), TAGS)
        assert units(learnt) == {"a": [1, -1, 0, -1, -1], "b": [3, -1, -1, -1, -1], "c": [-1, -1, 0, -1, -1]}
        assert len(held_out) == 0
        assert learnt.counts(5).tolist() == [2, 1, 0, 1, 0]
        assert learnt.units.dtype == np.int32
        assert units(read_tag_dataset(Corpus(tmp_path / "c.parquet"), TAGS, 1)[0]) == {"a": [1], "b": [3]}

    def test_rows_left_out_are_counted(self, tmp_path):
        rows = [
            *(("a", ["cat"]), ("b", ["emu"]), ("c", []), ("d", None), (None, ["cat"]), ("a", ["dog"])),
            ("e", ["emu"] * 5 + ["dog"]),
        ]
        learnt, _ = read_tag_dataset(write(tmp_path / "c.parquet", rows), TAGS)
        assert units(learnt) == {"a": [1, -1, -1, -1, -1]}
        assert learnt.left_out == {"without a name": 1, "without a tag to learn": 4, "named before": 1}

    def test_nothing_to_learn(self, tmp_path):
        for rows in ([], [("a", ["emu"])]):
            with pytest.raises(DataError, match="teaches a tag"):
                read_tag_dataset(write(tmp_path / "c.parquet", rows), TAGS)
        with pytest.raises(DataError, match="no tag to learn"):
            chosen_dictionary(write(tmp_path / "c.parquet", [("a", ["emu"])]), least=99)

    def test_in_batches_as_at_once(self, tmp_path):
        random = np.random.default_rng(0)
        words = [*TAGS.tags, "emu", "yak"]
        rows = [(f"{k % 280}.jpg", list(random.choice(words, random.integers(0, 8)))) for k in range(300)]
        one = read_tag_dataset(write(tmp_path / "one.parquet", rows), TAGS, held_out=0.3)
        many = read_tag_dataset(write(tmp_path / "many.parquet", rows, row_group_size=7), TAGS, held_out=0.3)
        assert [part.digest() for part in one] == [part.digest() for part in many]
        assert one[0].left_out == many[0].left_out
        first = {}  # the first row of each image that teaches something
        for name, tags in rows:
            if set(tags[:5]) & set(TAGS.tags):
                first.setdefault(name, [[TAGS.units.get(tag, -1) for tag in some] for some in (tags[:5], tags)])
        for dataset in many:
            for row, name in enumerate(dataset.names.to_pylist()):
                early, listed = (set(some) - {-1} for some in first[name])
                assert set(dataset.units[row]) - {-1} == early
                found = dataset.pairs[dataset.pairs[:, 0] == row, 1].tolist()
                assert found == (sorted(listed) if dataset is many[1] else [])


class TestValidationSplit:
    def test_by_name_alone(self, tmp_path):
        rows = [(f"{k}.jpg", ["dog", "emu", "cat"]) for k in range(400)]
        kept, held_out = read_tag_dataset(write(tmp_path / "c.parquet", rows), TAGS, 1, 0.1)
        few, held_out_of_few = read_tag_dataset(write(tmp_path / "d.parquet", rows[::-3]), TAGS, 1, 0.1)
        assert len(kept) + len(held_out) == 400
        assert 20 < len(held_out) < 60
        assert set(units(held_out)) == {name for name, _ in rows if uniform_hash(name) < 0.1}
        assert set(units(held_out_of_few)) <= set(units(held_out))
        assert set(units(few)) <= set(units(kept))
        all_listed = [[row, unit] for row in range(len(held_out)) for unit in (0, 1)]
        assert held_out.pairs.tolist() == all_listed
        assert len(kept.pairs) == 0

    def test_other_tags_or_order_are_another_dataset(self, tmp_path):
        def digest(rows):
            return read_tag_dataset(write(tmp_path / "c.parquet", rows), TAGS)[0].digest()

        rows = [("a", ["cat", "dog"]), ("b", ["dog"])]
        others = [rows[::-1], [("a", ["cat"]), rows[1]], [("x", ["cat", "dog"]), rows[1]]]
        assert len({digest(some) for some in (rows, *others)}) == 4
        assert digest(rows) == digest(rows)


class TestWhichTags:
    ROWS = (("a", ["cat", "dog", "cat", None]), ("b", ["dog", "dog", "-", " ", "-", " "]), ("c", ["2019"]))

    def test_counted(self, tmp_path):
        found, _, left_out = chosen_dictionary(write(tmp_path / "c.parquet", self.ROWS, row_group_size=1), least=2)
        assert found == Dictionary(("dog", "cat"), (3, 2))
        assert left_out == 1  # "-"; a blank one is no tag at all

    def test_the_one_beside_and_the_one_given(self, tmp_path):
        corpus = write(tmp_path / "c.parquet", self.ROWS)
        with pytest.raises(DataError, match="or --min-count N"):
            chosen_dictionary(corpus)
        TAGS.save(tmp_path / "c.tags.csv")
        assert chosen_dictionary(corpus)[0].tags == ("dog", "cat", "2019", "日本")
        Dictionary(("emu",), (9,)).save(tmp_path / "mine.csv")
        assert chosen_dictionary(corpus, tmp_path / "mine.csv")[0].tags == ("emu",)
        with pytest.raises(DataError, match="leave one of them out"):
            chosen_dictionary(corpus, tmp_path / "mine.csv", 3)


PREPROCESS = Preprocess(shorter_side=28, mean=0, scale=1)


def gradient(width, height):
    """Every pixel is different."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return Image.fromarray(np.stack([x, y, 0 * x], -1).astype(np.uint8))


class TestMirroredSquare:
    @pytest.mark.parametrize("size", [(8, 4), (4, 6), (5, 2), (1, 9), (7, 7)])
    def test_the_image_in_the_middle_and_its_mirror_image_beside_it(self, size):
        square = np.asarray(mirrored_square(gradient(*size)))
        side, (top, left) = max(size), [(max(size) - one) // 2 for one in size[::-1]]
        assert square.shape == (side, side, 3)
        assert (square[top : top + size[1], left : left + size[0]] == np.asarray(gradient(*size))).all()
        if size == (8, 4):
            assert square[:, 0, 1].tolist() == [1, 0, 0, 1, 2, 3, 3, 2]

    def test_a_long_strip_takes_no_more_memory_than_a_large_image(self):
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

    def test_as_the_classifier_takes_images_and_the_whole_image_as_one_view(self):
        dark, bright = (
            Views(Preprocess(28, mean=mean, scale=0.5, channels="bgr"))(gradient(90, 30), "name", (0,))
            for mean in ((2, 4, 6), (0, 0, 0))
        )
        expected = torch.tensor([1.0, 2, 3])[None, :, None, None].expand(1, 3, 28, 28)
        assert torch.allclose(bright - dark, expected, atol=1e-4)
        seen = WholeImage(PREPROCESS)(gradient(30, 20), "any", (0, 1))
        assert seen.shape == (2, 3, 28, 28)
        assert torch.equal(seen[0], WholeImage(PREPROCESS)(gradient(30, 20), "other", (5,))[0])


class TestOrder:
    def test_one_group_is_a_permutation_and_several_are_read_one_after_the_other(self):
        orders = [epoch_order(np.zeros(50, np.int64), seed, epoch) for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))]
        assert sorted(orders[0]) == list(range(50))
        assert (orders[0] == orders[1]).all()
        assert len({tuple(order) for order in orders}) == 3
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


@pytest.mark.usefixtures("quick_workers")
def test_unreadable_images_are_left_out_also_by_workers(tmp_path, monkeypatch):
    """Workers begin as in ``quick_workers``."""

    def quick(*given, **options):
        several = {"multiprocessing_context": "forkserver"} if options.get("num_workers") else {}
        return DataLoader(*given, **options | several)

    monkeypatch.setattr(torch.utils.data, "DataLoader", quick)
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
