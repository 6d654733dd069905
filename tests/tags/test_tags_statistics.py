"""What is counted in a corpus, by itself and as ``excite tags stats``; and what counts as a visual word."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from excite.cli.tags import app
from excite.errors import DataError
from excite.models.architectures import embedded_labels
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary
from excite.tags.statistics import is_named, known_words, learnt_share, learnt_tags, statistics_of, visual_share
from excite.tags.statistics import zipf_slope as slope_of

SMALL = [
    ("a.jpg", ["dog", "sea shore", "dog"], "ann"),
    ("b.jpg", ["dog", "", None, "cat"], "ann"),
    ("c.jpg", [], "bob"),
    ("d.jpg", None, None),
    ("e.jpg", ["cat", "  ", "emu", "dog", "ant"], "ann"),
]


@pytest.fixture
def counted(tmp_path, write_rows):
    return lambda rows, group=1000: statistics_of(Corpus(write_rows(tmp_path / "corpus.parquet", rows, group)))


def test_exact_numbers(counted):
    found = counted(SMALL)
    assert found.most_frequent(10) == Dictionary(("dog", "cat", "ant", "emu", "sea shore"), (4, 2, 1, 1, 1))
    assert found.summary([1, 2, 4, 5]) == {
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
            {"at_least": least, "tags": tags, "covers": covers / 9}
            for least, tags, covers in ((1, 5, 9), (2, 2, 6), (4, 1, 4), (5, 0, 0))
        ],
        "zipf_slope": None,
    }
    assert found.counted(["emu", "gnu", "dog"]) == Dictionary(("emu", "gnu", "dog"), (1, 0, 4))
    nothing = counted(SMALL[2:4])
    assert nothing.counted(["dog"]).counts == (0,)
    assert nothing.summary()["unigrams"] == {"of_distinct": None, "of_listed": None}


def test_as_counted_one_by_one_however_it_is_cut_up(counted):
    random = np.random.default_rng(1)
    names = [f"tag{k} two" if k % 3 else f"t{k}" for k in range(300)] + ["", None]
    lists = [[names[min(one, 301)] for one in random.zipf(1.3, random.integers(0, 12))] for _ in range(200)]
    users = [None if one == 0 else f"user{one}" for one in random.integers(0, 30, 200)]
    rows = [(f"{k}.jpg", tags, user) for k, (tags, user) in enumerate(zip(lists, users, strict=True))]
    whole, parts = counted(rows), counted(rows, 37)
    assert parts.summary() == whole.summary()
    assert parts.tags.equals(whole.tags)
    assert parts.users.equals(whole.users)
    listed = Counter(tag for tags in lists for tag in tags if tag)
    assert whole.most_frequent(1000) == Dictionary.ranked(listed.items())
    assert whole.at_least(20) == Dictionary.ranked(one for one in listed.items() if one[1] >= 20)
    owners = Dictionary.ranked(Counter(filter(None, users)).items())
    assert whole.users.to_pydict() == {"text": list(owners.tags), "count": list(owners.counts)}
    lengths = [sum(bool(tag) for tag in tags) for tags in lists]
    spread = whole.summary()["tags_a_picture"]
    assert spread["mean"] == pytest.approx(np.mean(lengths))
    assert [spread[name] for name in ("lower", "median", "upper")] == np.percentile(lengths, [25, 50, 75]).tolist()


def test_ties_stand_by_code_point_and_spaces_of_all_kinds_part_words(counted):
    found = counted([("a.jpg", ["é", "z", "a b", "Z", "猫", "\U0001f408"], "ann")])
    assert found.most_frequent(9).tags == ("Z", "a b", "z", "é", "猫", "\U0001f408")
    found = counted([("a.jpg", ["one", " one ", "a b", "a\tb", "a\u3000b", "a-b"], "ann")])
    assert found.summary()["unigrams"]["of_distinct"] == 0.5


@pytest.mark.parametrize("slope", [-0.7, -1, -1.4])
def test_the_slope_of_a_power_law(slope):
    counts = 1e9 * np.arange(1, 5000) ** float(slope)
    counts[:9] = 1e9  # the head has no say
    assert slope_of(counts) == pytest.approx(slope, abs=1e-6)
    assert slope_of(counts[:28]) is None


def test_no_rows_and_text_that_is_none(tmp_path, write_rows):
    with pytest.raises(DataError, match="has no rows"):
        statistics_of(Corpus(write_rows(tmp_path / "one.parquet", SMALL)), [])
    tags = pa.ListArray.from_arrays([0, 1], pa.array([b"\xff\xfe"], pa.binary()).view(pa.string()))
    pq.write_table(pa.table({"image": ["a.jpg"], "tags": tags, "user": ["ann"]}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="not UTF-8"):
        statistics_of(Corpus(tmp_path / "bad.parquet"))


def test_named():
    words = known_words(embedded_labels("everyday"))
    named = "dog,Dogs,tabby-cat,old dogs,hot dog,terrier,dining table,potted_plant,person".split(",")
    assert [tag for tag in named if not is_named(tag, words)] == []
    others = ["healthy", "business", "holiday", "dog show", "12", "bea", "", "猫", "sunset"]
    assert [tag for tag in others if is_named(tag, words)] == []
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
    bad = {"tag,count\ndog,1\n": "no column 'precision'", "": "no column 'tag'"}
    for text, said in (bad | {"tag,precision,share\ndog,good,0.1\n": "good"}).items():
        path.write_text(text)
        with pytest.raises(DataError, match=said):
            learnt_tags(path)


class TestTheCommand:
    LISTS = ("dog pet grass", "pet dog dog", "grass sky sea sun sand dog", "pet cat", "dog pet pet", "dog pet ball")
    LISTS += ("sky sea", "grass pet dog")
    USERS = ("ann", "bob", "ann", "ann", None, "bob", "bob", "ann")

    @pytest.fixture
    def run(self, tmp_path, monkeypatch, write_rows, encoded):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "photos").mkdir()
        for k in range(0, 8, 2):  # the others are gone
            (tmp_path / f"photos/{k}.jpg").write_bytes(encoded())
        lists = [tags.split() for tags in self.LISTS]
        write_rows("corpus.parquet", [(f"{k}.jpg", lists[k], self.USERS[k]) for k in range(8)], 3)
        return lambda *options, corpus="corpus.parquet": CliRunner().invoke(app, ["stats", corpus, *options])

    def test_for_programs(self, run, tmp_path):
        (tmp_path / "measures.csv").write_text("tag,count,precision,share\ndog,9,0.9,0.1\npet,8,0.2,0.1\n")
        options = "--min-count 3 --measures measures.csv --pictures photos --out out --top 2 --json"
        answer = json.loads(run(*options.split()).stdout)
        assert answer["pictures"] == 8
        assert answer["thresholds"][0] == {"at_least": 3, "tags": 3, "covers": 17 / 25}
        assert answer["dictionary"] == {"tags": 3, "covers": 17 / 25, "never_listed": 0}
        assert answer["visual"]["named"] == {"judged": 3, "of_tags": 1 / 3, "of_listed": 7 / 17}
        assert answer["visual"]["learnt"] == {"judged": 2, "of_tags": 0.5, "of_listed": 0.5}
        assert answer["top"][0] == {"rank": 1, "tag": "dog", "count": 7, "a_picture": 7 / 8, "named": True}
        assert answer["unreadable_pictures"] == 4
        names = ["dictionary.csv", "frequency.png", "cloud.png", "examples.png", "stats.json"]
        assert answer["files"] == [f"out/{name}" for name in names]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
        assert Dictionary.read(tmp_path / "out/dictionary.csv") == Dictionary(("dog", "pet", "grass"), (7, 7, 3))
        del answer["seconds"]
        assert json.loads((tmp_path / "out/stats.json").read_text()) == answer

    def test_for_people(self, run, tmp_path, write_rows):
        (tmp_path / "own.csv").write_text("tag,count\ndog,1\ngnu,1\n")
        said = run("--dictionary", "own.csv", "--top", "1").stdout
        assert "8 images of 2 users (1 images without a user); 25 tags listed, 9 distinct" in said
        assert "dictionary: 2 tags, 28.0 % of all listed (1 of its tags are never listed)" in said
        assert "visual words, named (words for what a classifier knows): 50.0 % of 2 tags, 100.0 % of how often" in said
        assert "next: excite train tags" in said
        assert "written" not in said
        write_rows("odd.parquet", [("1.jpg", ["a\x1b[2J\nb\u202ec"], "u"), ("2.jpg", ["x" * 10**6], "u")])
        said = run(corpus="odd.parquet").stdout
        assert r"a\x1b[2J\nb\u202ec" in said  # nothing that moves a cursor
        assert "x" * 59 + "... " in said

    def test_complains(self, run):
        assert run("--dictionary", "own.csv", "--min-count", "3").exit_code == 2
        assert run("--pictures", "photos").exit_code == 2
        assert "cannot read the dictionary" in str(run("--dictionary", "own.csv").exception)
        assert "no corpus 'nowhere" in str(run(corpus="nowhere.parquet").exception)
