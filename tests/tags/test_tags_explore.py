"""One tag of a corpus, and the commands ``excite tags show`` and ``excite tags stats``."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from excite.cli.tags.explore import show_command, stats_command
from excite.errors import DataError, ImageError
from excite.tags.corpus import Corpus, schema
from excite.tags.dictionary import Dictionary
from excite.tags.tag_profile import tag_profile

LISTS = [
    ["dog", "pet", "grass"],
    ["pet", "dog", "dog"],
    ["grass", "sky", "sea", "sun", "sand", "dog"],
    ["pet", "cat"],
    ["dog", "pet", "pet"],
    ["dog", "pet", "ball"],
    ["sky", "sea"],
    ["grass", "pet", "dog"],
]
USERS = ["ann", "bob", "ann", "ann", None, "bob", "bob", "ann"]


def write(path, lists, users, group=1000):
    images = [f"{k}.jpg" for k in range(len(lists))]
    pq.write_table(
        pa.table({"image": images, "tags": lists, "user": users}, schema=schema()), path, row_group_size=group
    )
    return path


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for k in range(0, len(LISTS), 2):  # the others are gone
        Image.new("RGB", (40, 30), "red").save(tmp_path / "photos" / f"{k}.jpg")
    return write(tmp_path / "corpus.parquet", LISTS, USERS, 3)


def test_facts(corpus):
    facts = tag_profile("dog", Corpus(corpus))
    assert (facts.listed, facts.pictures, facts.rank, facts.distinct) == (7, 6, 1, 9)
    assert facts.places == (3, 1, 2, 0, 0, 1)
    assert facts.together == ({"tag": "pet", "pictures": 5, "lift": pytest.approx(5 * 8 / (6 * 6))},)
    assert facts.users == ({"user": "ann", "pictures": 3}, {"user": "bob", "pictures": 2})
    assert [tag_profile(tag, Corpus(corpus)).rank for tag in ("pet", "grass", "sky", "sun")] == [2, 3, 5, 9]
    assert sorted(facts.samples) == [(f"{k}.jpg", LISTS[k]) for k in (0, 1, 4, 5, 7)]


def test_as_counted_one_by_one_and_however_it_is_cut_up(tmp_path):
    random = np.random.default_rng(2)
    lists = [[f"t{one}" for one in random.zipf(1.5, 8) if one < 60] for _ in range(500)]
    users = [f"u{one}" for one in random.integers(0, 9, 500)]
    whole = tag_profile("t2", Corpus(write(tmp_path / "whole.parquet", lists, users)), samples=20)
    parts = tag_profile("t2", Corpus(write(tmp_path / "parts.parquet", lists, users, 23)), samples=20)
    assert parts == whole
    with_it = [tags for tags in lists if "t2" in tags]
    assert whole.pictures == len(with_it)
    together = Counter(tag for tags in with_it for tag in set(tags))
    pictures = Counter(tag for tags in lists for tag in set(tags))
    for one in whole.together:
        both = together[one["tag"]]
        assert (one["pictures"], both >= 5) == (both, True)
        assert one["lift"] == pytest.approx((both / 500) / (pictures["t2"] / 500 * pictures[one["tag"]] / 500))
    wanted = Dictionary.of(together, 5).tags
    assert [one["tag"] for one in whole.together] == [tag for tag in wanted if tag != "t2"][:30]
    ranked = Dictionary.of(Counter(tag for tags in lists for tag in tags))
    assert whole.rank == ranked.units["t2"] + 1
    assert sum(whole.places) == whole.listed == ranked.counts[whole.rank - 1]
    assert len(whole.samples) == 20
    assert all("t2" in tags[:5] for _, tags in whole.samples)


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("Dog", "no image lists 'Dog'; the nearest tags are 'dog'"),
        ("gras", "the nearest tags are 'grass'"),
        ("xyzzy", "no frequent tag is written alike"),
        ("", "no image lists ''"),
        ("d\n" * 1_000_000, "no image lists"),
    ],
)
def test_a_tag_that_is_not_there(corpus, tag, said):
    with pytest.raises(DataError, match=said) as failed:
        tag_profile(tag, Corpus(corpus))
    assert "\n" not in str(failed.value)
    assert len(str(failed.value)) < 300


def test_of_several_spellings_the_most_frequent_is_told(tmp_path):
    path = write(tmp_path / "spelt.parquet", [["Hot-Dog"], ["hot dog", "hot dig"], ["hot dog"]], ["ann"] * 3)
    with pytest.raises(DataError, match="nearest tags are 'hot dog', 'hot dig'"):
        tag_profile("HOT DOG", Corpus(path))


def test_no_tags_at_all(tmp_path):
    with pytest.raises(DataError, match="lists no tags at all"):
        tag_profile("dog", Corpus(write(tmp_path / "none.parquet", [[], None], ["ann", "bob"])))


def run(command, *arguments):
    """The command by itself; errors that a user can cause come as they are."""
    app = typer.Typer()
    app.command()(command)
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)
    if isinstance(ended.exception, Exception):
        raise ended.exception
    return ended


def test_show_for_programs(corpus):
    ended = run(show_command, "dog", corpus, "--pictures", "photos", "--out", "dog.png", "--json")
    answer = json.loads(ended.stdout)
    assert answer["places"] == {"1st": 3, "2nd": 1, "3rd": 2, "4th": 0, "5th": 0, "later": 1}
    assert (answer["rank"], answer["unreadable_pictures"], answer["files"]) == (1, 3, ["dog.png"])
    assert ended.stderr.startswith("excite: note: left out of the figure: there is no image")
    assert ended.stderr.endswith("(and 2 more)\n")
    with Image.open("dog.png") as sheet:
        assert sheet.format == "PNG"


def test_show_for_people(corpus):
    ended = run(show_command, "dog", corpus)
    assert ended.stdout.startswith("dog: listed 7 times, by 6 images; rank 1 of 9 tags\n")
    assert "1st 42.9 %, 2nd 14.3 %, 3rd 28.6 %, 4th 0.0 %, 5th 0.0 %, later 14.3 %" in ended.stdout
    assert "pet         5         1.1" in ended.stdout
    assert ended.stderr == ""


def test_show_complains(corpus, tmp_path):
    assert run(show_command, "dog", corpus, "--out", "dog.png").exit_code == 2
    with pytest.raises(DataError, match="no folder 'nowhere'"):
        run(show_command, "dog", corpus, "--pictures", "nowhere", "--out", "dog.png")
    late = write(tmp_path / "late.parquet", [["a", "b", "c", "d", "e", "dog"]], ["ann"])
    with pytest.raises(DataError, match="among its first five"):
        run(show_command, "dog", late, "--pictures", "photos", "--out", "dog.png")
    gone = write(tmp_path / "gone.parquet", [["a"], ["dog"]], ["ann", "ann"])
    with pytest.raises(ImageError, match="none of 1 images can be read"):
        run(show_command, "dog", gone, "--pictures", "photos", "--out", "dog.png")
    assert not (tmp_path / "dog.png").exists()


def test_stats_for_programs(corpus, tmp_path):
    (tmp_path / "measures.csv").write_text("tag,count,precision,share\ndog,9,0.9,0.1\npet,8,0.2,0.1\n")
    options = ("--min-count", "3", "--measures", "measures.csv", "--pictures", "photos", "--out", "out", "--top", "2")
    ended = run(stats_command, corpus, *options, "--json")
    answer = json.loads(ended.stdout)
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


def test_stats_for_people(corpus, tmp_path):
    (tmp_path / "own.csv").write_text("tag,count\ndog,1\ngnu,1\n")
    said = run(stats_command, corpus, "--dictionary", "own.csv", "--top", "1").stdout
    assert "8 images of 2 users (1 images without a user); 25 tags listed, 9 distinct" in said
    assert "dictionary: 2 tags, 28.0 % of all listed (1 of its tags are never listed)" in said
    assert "visual words, named (words for what a classifier knows): 50.0 % of 2 tags, 100.0 % of how often" in said
    assert "next: excite tags show dog" in said
    assert "written" not in said


def test_stats_complains(corpus):
    assert run(stats_command, corpus, "--dictionary", "own.csv", "--min-count", "3").exit_code == 2
    assert run(stats_command, corpus, "--pictures", "photos").exit_code == 2
    with pytest.raises(DataError, match="cannot read the dictionary"):
        run(stats_command, corpus, "--dictionary", "own.csv")
    with pytest.raises(DataError, match="no corpus 'nowhere"):
        run(stats_command, "nowhere.parquet")
