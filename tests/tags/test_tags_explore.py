"""``excite tags stats`` as a user meets it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from excite.cli.tags import stats_command
from excite.errors import DataError
from excite.tags.corpus import schema
from excite.tags.dictionary import Dictionary

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


def run(command, *arguments):
    """The command by itself; errors that a user can cause come as they are."""
    app = typer.Typer()
    app.command()(command)
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)
    if isinstance(ended.exception, Exception):
        raise ended.exception
    return ended


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
    assert "next: excite train tags" in said
    assert "written" not in said


def test_stats_complains(corpus):
    assert run(stats_command, corpus, "--dictionary", "own.csv", "--min-count", "3").exit_code == 2
    assert run(stats_command, corpus, "--pictures", "photos").exit_code == 2
    with pytest.raises(DataError, match="cannot read the dictionary"):
        run(stats_command, corpus, "--dictionary", "own.csv")
    with pytest.raises(DataError, match="no corpus 'nowhere"):
        run(stats_command, "nowhere.parquet")
