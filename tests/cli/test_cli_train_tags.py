"""From captions to a tag classifier that other commands take, as a user goes through it."""

import gzip
import json

import learning
import pytest

from excite.models.loading import read_saved

TRAIN = ("--model", learning.NAME, "--epochs", "30", "--views", "1", "--batch", "8", "--rate", "0.3")


@pytest.fixture
def photos(here, monkeypatch):
    """A folder of coloured images, and captions that say the colour."""
    learning.know_tiny(monkeypatch)
    lines = [
        json.dumps({"image": name, "captions": [f"A {word} wall.", f"a wall, {word.upper()}"]})
        for name, word in learning.coloured(here, 45, ("red", "green", "blue"))
    ]
    (here / "captions.jsonl").write_text("\n".join(lines))
    return here


def test_from_captions_to_maps(excite, photos):
    (read,) = excite("tags", "captions", "captions.jsonl", "--out", "raw.parquet", "--json").answers
    assert (read["pictures"], read["captions"]) == (45, 90)
    (photos / "44.png").write_bytes(b"no image")
    rules = ("--min-count", "10", "--min-tags", "1", "--keep-alphabetical", "--keep-similar")
    (kept,) = excite("tags", "clean", "raw.parquet", "--out", "kept.parquet", *rules, "--json").answers
    assert (kept["kept"], kept["tags"]) == (45, 4)
    ended = excite("train", "tags", "kept.parquet", "--out", "mine", *TRAIN, "--json")
    (learnt,) = ended.answers
    assert (learnt["tags"], learnt["unreadable"]) == (4, 1)
    assert "44.png" in ended.err
    assert learnt["map"] > 0.9 > learnt["map_by_frequency"]
    assert read_saved(photos / "mine").training["map"] == learnt["map"]
    assert "train tags" in (photos / "mine/README.md").read_text()
    again = excite("train", "tags", "kept.parquet", "--out", "mine", *TRAIN).out
    assert "finished already" in again
    assert "x that of predicting by frequency" in again
    (found,) = excite("attend", "0.png", "red", "--model", "mine", "--json").answers
    assert found["maps"][0]["probability"] > 0.5
    (stats,) = excite("tags", "stats", "kept.parquet", "--measures", "mine/measures.csv", "--json").answers
    assert set(stats["visual"]) == {"named", "learnt"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kept.parquet", "--out", "mine"), "there is no corpus"),
        (("captions.jsonl", "--out", "mine"), "captions.jsonl has no column 'tags'"),
        (("captions.xls", "--out", "mine"), "what can be read: .parquet"),
        (("kept.parquet", "--out", "mine", "--layers", "all"), "leave --views out"),
        (("kept.parquet", "--out", "mine", "--layers", "some"), "choose output or all"),
    ],
)
def test_one_line_says_what_to_do(excite, photos, arguments, said):
    assert said in excite("train", "tags", *arguments, *TRAIN).complaint


def test_it_reads_what_the_cleaning_reads(excite, photos):
    """JSON Lines in a compressed file, with a bad line; the dictionary lies beside it."""
    lines = [{"image": one["image"], "tags": one["captions"][0].split()[1:2]} for one in captions(photos)]
    with gzip.open(photos / "raw.jsonl.gz", "wt") as file:
        file.write("\n".join([*map(json.dumps, lines), "{"]))
    (photos / "raw.jsonl.tags.csv").write_text("tag,count\nred,15\ngreen,15\n")
    ended = excite("train", "tags", "raw.jsonl.gz", "--out", "mine", *TRAIN, "--json")
    assert ended.answers[0]["tags"] == 2
    assert "that cannot be used, not json: 1" in ended.err
    assert ended.answers[0]["map"] > 0.9


def captions(folder):
    return map(json.loads, (folder / "captions.jsonl").read_text().splitlines())


def test_a_dictionary_is_needed(excite, photos):
    excite("tags", "captions", "captions.jsonl", "--out", "raw.parquet")
    assert "--min-count" in excite("train", "tags", "raw.parquet", "--out", "mine", *TRAIN).complaint
