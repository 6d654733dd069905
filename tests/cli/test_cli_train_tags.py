"""From captions to a tag classifier that other commands take, as a user goes through it."""

import json

import learning
import numpy as np
import pytest
from PIL import Image

COLOURS = {"red": (220, 20, 20), "green": (20, 220, 20), "blue": (20, 20, 220)}
TRAIN = ("--model", learning.NAME, "--epochs", "30", "--views", "1", "--batch", "8", "--rate", "0.3")


@pytest.fixture
def photos(here, monkeypatch):
    """A folder of coloured images, and captions that say the colour."""
    learning.know_tiny(monkeypatch)
    random, lines = np.random.default_rng(0), []
    for number in range(45):
        word, colour = list(COLOURS.items())[number % 3]
        pixels = (random.integers(-20, 20, (32, 40, 3)) + colour).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(here / f"{number}.png")
        lines.append(json.dumps({"image": f"{number}.png", "captions": [f"A {word} wall.", f"a wall, {word.upper()}"]}))
    (here / "captions.jsonl").write_text("\n".join(lines))
    return here


def test_from_captions_to_maps(excite, photos):
    (read,) = excite("tags", "captions", "captions.jsonl", "--out", "raw.parquet", "--json").answers
    assert (read["pictures"], read["captions"]) == (45, 90)
    rules = ("--min-count", "10", "--min-tags", "1", "--keep-alphabetical", "--keep-similar")
    (kept,) = excite("tags", "clean", "raw.parquet", "--out", "kept.parquet", *rules, "--json").answers
    assert (kept["kept"], kept["tags"]) == (45, 4)
    (learnt,) = excite("train", "tags", "kept.parquet", "--out", "mine", *TRAIN, "--json").answers
    assert learnt["tags"] == 4
    assert learnt["map"] > 0.9 > learnt["map_by_frequency"]
    (found,) = excite("attend", "0.png", "red", "--model", "mine", "--json").answers
    assert found["maps"][0]["probability"] > 0.5
    (stats,) = excite("tags", "stats", "kept.parquet", "--measures", "mine/measures.csv", "--json").answers
    assert set(stats["visual"]) == {"named", "learnt"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kept.parquet", "--out", "mine"), "there is no corpus"),
        (("captions.jsonl", "--out", "mine"), "is no Parquet file: `excite tags clean captions.jsonl"),
    ],
)
def test_one_line_says_what_to_do(excite, photos, arguments, said):
    assert said in excite("train", "tags", *arguments, *TRAIN).complaint


def test_a_dictionary_is_needed(excite, photos):
    excite("tags", "captions", "captions.jsonl", "--out", "raw.parquet")
    assert "--min-count" in excite("train", "tags", "raw.parquet", "--out", "mine", *TRAIN).complaint
