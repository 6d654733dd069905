"""What is counted in a corpus: exact numbers, however the corpus is cut up, and what counts as a visual word."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from excite.errors import DataError
from excite.models.architectures.efficientnet_lite0 import embedded_labels
from excite.tags.corpus import Corpus, schema
from excite.tags.dictionary import Dictionary
from excite.tags.statistics import (
    is_named,
    known_words,
    learnt_share,
    learnt_tags,
    shown,
    statistics_of,
    visual_share,
    zipf_slope,
)

SMALL = [
    ("a.jpg", ["dog", "sea shore", "dog"], "ann"),
    ("b.jpg", ["dog", "", None, "cat"], "ann"),
    ("c.jpg", [], "bob"),
    ("d.jpg", None, None),
    ("e.jpg", ["cat", "  ", "emu", "dog", "ant"], "ann"),
]


def write(path, rows, group=1000):
    columns = dict(zip(("image", "tags", "user"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns, schema=schema()), path, row_group_size=group)
    return path


def random_rows(number=400):
    """Tags by Zipf's law, some twice in a list, some blank; users who may be unknown."""
    random = np.random.default_rng(1)
    names = [f"tag{k} two" if k % 3 else f"t{k}" for k in range(300)] + ["", None]
    lists = [[names[min(one, 301)] for one in random.zipf(1.3, random.integers(0, 12))] for _ in range(number)]
    users = [None if one == 0 else f"user{one}" for one in random.integers(0, 30, number)]
    return [(f"{k}.jpg", tags, user) for k, (tags, user) in enumerate(zip(lists, users, strict=True))]


def counted(tmp_path, rows, group=1000):
    return statistics_of(Corpus(write(tmp_path / "corpus.parquet", rows, group)))


def test_exact_numbers(tmp_path):
    found = counted(tmp_path, SMALL)
    assert found.most_frequent(10) == Dictionary(("dog", "cat", "ant", "emu", "sea shore"), (4, 2, 1, 1, 1))
    summary = found.summary([1, 2, 4, 5])
    assert summary.pop("zipf_slope") is None
    assert summary == {
        "pictures": 5,
        "users": 2,
        "pictures_without_user": 1,
        "tags_listed": 9,
        "blank_tags": 3,
        "distinct_tags": 5,
        "tags_a_picture": {"mean": 1.8, "lower": 0, "median": 2, "upper": 3, "least": 0, "most": 4},
        "pictures_a_user": {"median": 2, "most": 3},
        "unigrams": {"of_distinct": 4 / 5, "of_listed": 8 / 9},
        "thresholds": [
            {"at_least": 1, "tags": 5, "covers": 1},
            {"at_least": 2, "tags": 2, "covers": 6 / 9},
            {"at_least": 4, "tags": 1, "covers": 4 / 9},
            {"at_least": 5, "tags": 0, "covers": 0},
        ],
    }


def test_as_counted_one_by_one(tmp_path):
    rows = random_rows()
    found = counted(tmp_path, rows, 37)
    listed = Counter(tag for _, tags, _ in rows for tag in tags if tag)
    assert found.most_frequent(1000) == Dictionary.ranked(listed.items())
    assert found.at_least(20) == Dictionary.ranked(one for one in listed.items() if one[1] >= 20)
    users = Counter(user for _, _, user in rows if user)
    assert found.users.to_pydict() == {
        "text": list(Dictionary.ranked(users.items()).tags),
        "count": list(Dictionary.ranked(users.items()).counts),
    }
    lengths = [sum(bool(tag) for tag in tags) for _, tags, _ in rows]
    spread = found.summary()["tags_a_picture"]
    assert spread["mean"] == pytest.approx(np.mean(lengths))
    assert [spread[name] for name in ("lower", "median", "upper")] == np.percentile(lengths, [25, 50, 75]).tolist()


@pytest.mark.parametrize("group", [1, 7, 149])
def test_the_same_however_it_is_cut_up(tmp_path, group):
    rows = random_rows(150)
    whole = counted(tmp_path, rows)
    parts = counted(tmp_path, rows, group)
    assert len(Corpus(tmp_path / "corpus.parquet").row_groups) > 1
    assert parts.summary() == whole.summary()
    assert parts.tags.equals(whole.tags)
    assert parts.users.equals(whole.users)


def test_a_folder_of_files(tmp_path):
    (tmp_path / "parts").mkdir()
    for part in range(3):
        write(tmp_path / "parts" / f"{part}.parquet", SMALL)
    found = statistics_of(Corpus(tmp_path / "parts"))
    assert found.pictures == 15
    assert found.most_frequent(1) == Dictionary(("dog",), (12,))


def test_tags_seen_equally_often_stand_by_code_point(tmp_path):
    found = counted(tmp_path, [("a.jpg", ["é", "z", "a b", "Z", "猫", "\U0001f408"], "ann")])
    assert found.most_frequent(9).tags == ("Z", "a b", "z", "é", "猫", "\U0001f408")


def test_spaces_of_all_kinds_part_words(tmp_path):
    found = counted(tmp_path, [("a.jpg", ["one", " one ", "a b", "a\tb", "a\u3000b", "a-b"], "ann")])
    assert found.summary()["unigrams"]["of_distinct"] == 0.5


def test_counts_of_other_tags(tmp_path):
    found = counted(tmp_path, SMALL)
    assert found.counted(["emu", "gnu", "dog"]) == Dictionary(("emu", "gnu", "dog"), (1, 0, 4))
    nothing = counted(tmp_path, SMALL[2:4])
    assert nothing.counted(["dog"]).counts == (0,)
    assert nothing.summary()["unigrams"] == {"of_distinct": None, "of_listed": None}


@pytest.mark.parametrize("slope", [-0.7, -1, -1.4])
def test_the_slope_of_a_power_law(slope):
    counts = 1e9 * np.arange(1, 5000) ** float(slope)
    assert zipf_slope(counts) == pytest.approx(slope, abs=1e-6)
    counts[:9] = 1e9  # the head has no say
    assert zipf_slope(counts) == pytest.approx(slope, abs=1e-6)
    assert zipf_slope(counts[:28]) is None


def test_no_rows(tmp_path):
    corpus = Corpus(write(tmp_path / "one.parquet", SMALL))
    with pytest.raises(DataError, match="has no rows"):
        statistics_of(corpus, [])


def test_text_that_is_none(tmp_path):
    tags = pa.ListArray.from_arrays([0, 1], pa.array([b"\xff\xfe"], pa.binary()).view(pa.string()))
    pq.write_table(pa.table({"image": ["a.jpg"], "tags": tags, "user": ["ann"]}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="not UTF-8"):
        statistics_of(Corpus(tmp_path / "bad.parquet"))


def test_what_is_shown_moves_no_cursor():
    assert shown("a\x1b[2J\nb\u202ec") == r"a\x1b[2J\nb\u202ec"
    assert len(shown("x" * 1_000_000)) == 62


@pytest.fixture(scope="module")
def words():
    return known_words(embedded_labels("everyday"))


@pytest.mark.parametrize(
    "tag", "dog,Dogs,tabby-cat,old dogs,hot dog,terrier,dining table,potted_plant,person".split(",")
)
def test_named(words, tag):
    assert is_named(tag, words)


@pytest.mark.parametrize("tag", ["healthy", "business", "holiday", "dog show", "12", "bea", "", "猫", "sunset"])
def test_not_named(words, tag):
    assert not is_named(tag, words)


def test_the_share_of_nothing():
    assert visual_share(Dictionary((), ()), bool) == {"judged": 0, "of_tags": None, "of_listed": None}
    assert visual_share(Dictionary(("dog",), (0,)), bool) == {"judged": 1, "of_tags": 1, "of_listed": None}


def test_learnt(tmp_path):
    path = tmp_path / "measures.csv"
    path.write_text(
        "tag,count,precision,share,first_count\n"
        "dog,9,0.5,0.1,1\nday,9,0.499,0.1,1\nrare,0,,0,1\nnowhere,0,nan,0.1,1\nalways,9,1,0.9,1\n"
    )
    assert learnt_tags(path) == {"dog": True, "day": False, "always": False}
    share = learnt_share(Dictionary(("day", "dog", "rare", "gnu"), (60, 20, 5, 4)), learnt_tags(path))
    assert share == {"judged": 2, "of_tags": 0.5, "of_listed": 0.25}
    with pytest.raises(DataError, match="other tags"):
        learnt_share(Dictionary(("gnu",), (4,)), learnt_tags(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tag,count\ndog,1\n", "no column 'precision'"),
        ("", "no column 'tag'"),
        ("tag,precision,share\ndog,good,0.1\n", "good"),
        (None, "No such file"),
    ],
)
def test_measures_that_are_none(tmp_path, text, said):
    path = tmp_path / "measures.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=said) as failed:
        learnt_tags(path)
    assert "\n" not in str(failed.value)
