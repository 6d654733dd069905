"""A corpus as arrays: the tags learnt, the rows left out, the validation split."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from excite.errors import DataError
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary
from excite.training.examples import uniform_hash
from excite.training.tags.dataset import read_tag_dataset
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

    def test_fewer_of_them(self, tmp_path):
        learnt, _ = read_tag_dataset(
            write(tmp_path / "c.parquet", [("a", ["cat", "dog"]), ("b", ["emu", "dog"])]), TAGS, 1
        )
        assert units(learnt) == {"a": [1]}

    def test_rows_left_out_are_counted(self, tmp_path):
        rows = [
            ("a", ["cat"]),
            ("b", ["emu"]),
            ("c", []),
            ("d", None),
            (None, ["cat"]),
            ("a", ["dog"]),
            ("e", ["emu"] * 5 + ["dog"]),
        ]
        learnt, _ = read_tag_dataset(write(tmp_path / "c.parquet", rows), TAGS)
        assert units(learnt) == {"a": [1, -1, -1, -1, -1]}
        assert learnt.left_out == {"without a name": 1, "without a tag to learn": 4, "named before": 1}

    @pytest.mark.parametrize("rows", [[], [("a", ["emu"])]])
    def test_nothing_to_learn(self, tmp_path, rows):
        with pytest.raises(DataError, match="teaches a tag"):
            read_tag_dataset(write(tmp_path / "c.parquet", rows), TAGS)

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
                first.setdefault(name, [TAGS.units[tag] for tag in tags[:5] if tag in TAGS.units])
                listed = first.setdefault(f"{name} all", {TAGS.units[tag] for tag in tags if tag in TAGS.units})
                assert listed
        for dataset in many:
            for row, name in enumerate(dataset.names.to_pylist()):
                assert set(dataset.units[row]) - {-1} == set(first[name])
                found = dataset.pairs[dataset.pairs[:, 0] == row, 1].tolist()
                assert found == (sorted(first[f"{name} all"]) if dataset is many[1] else [])


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
        assert held_out.pairs.tolist() == [
            [row, unit] for row in range(len(held_out)) for unit in (0, 1)
        ]  # all listed tags
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

    def test_none_is_left(self, tmp_path):
        with pytest.raises(DataError, match="no tag to learn"):
            chosen_dictionary(write(tmp_path / "c.parquet", self.ROWS), least=99)
