"""Ranked boxes of other systems, from files."""

import json

import pytest

from excite.errors import DataError
from excite.experiments.grounding.run import read_results

DOG = {"image": "a.jpg", "phrase": "A  dog", "boxes": [[0, 0, 9, 9], [0, 0, 4, 4]], "scores": [0.1, 0.9]}


def results(tmp_path, *entries, listed=False):
    path = tmp_path / "cca.json"
    path.write_text(json.dumps(entries) if listed else "".join(json.dumps(entry) + "\n\n" for entry in entries))
    return read_results("CCA", path)


def record(image, *texts, box=(0, 0, 9, 9)):
    small = {"union": True, "any": False}
    return {
        "image": image,
        "phrases": [{"text": text, "groups": ["animals"], "boxes": [box], "small": small} for text in texts],
    }


@pytest.mark.parametrize("listed", [False, True])
def test_best_first_by_score(tmp_path, listed):
    (found,), missing = results(tmp_path, DOG, listed=listed).mentions([record("a.jpg", "a dog")], "union")
    assert (found.hit, found.scores, found.pointed, missing) == (2, [0.9, 0.1], None, 0)
    assert (found.picture, found.text, found.groups, found.small) == (0, "a dog", ("animals",), True)


@pytest.mark.parametrize("image", ["a.jpg", "train2014/a.jpg"])
@pytest.mark.parametrize("called", ["a", "a.jpg"])
def test_pictures_by_their_names(tmp_path, image, called):
    _, missing = results(tmp_path, {**DOG, "image": called}).mentions([record(image, "a dog")], "any")
    assert missing == 0


@pytest.mark.parametrize("called", ["36979", "36979.jpg", "36979.png"])
def test_pictures_of_flickr30k_are_numbers(tmp_path, called):
    _, missing = results(tmp_path, {**DOG, "image": called}).mentions([record("36979", "a dog")], "any")
    assert missing == 0


def test_missing_ones_are_counted_and_missed(tmp_path):
    records = [record("a.jpg", "a cat", "a dog"), record("b.jpg", "a dog")]
    found, missing = results(tmp_path, DOG).mentions(records, "union")
    assert ([mention.hit for mention in found], [mention.picture for mention in found], missing) == (
        [None, 2, None],
        [0, 0, 1],
        2,
    )


def test_no_boxes_is_an_answer(tmp_path):
    (found,), missing = results(tmp_path, {**DOG, "boxes": [], "scores": []}).mentions(
        [record("a.jpg", "a dog")], "any"
    )
    assert (found.hit, missing) == (None, 0)


def test_the_same_words_twice(tmp_path):
    """One answer stands for all mentions; of several each takes its own."""
    other = {**DOG, "boxes": [[0, 0, 9, 9]], "scores": [1]}
    asked = [record("a.jpg", "a dog", "A dog", "a dog")]
    assert [one.hit for one in results(tmp_path, DOG).mentions(asked, "union")[0]] == [2, 2, 2]
    assert [one.hit for one in results(tmp_path, other, DOG).mentions(asked, "union")[0]] == [1, 2, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no results"),
        ("{broken", "line 1: broken JSON"),
        ("[{broken", "broken JSON"),
        ("[3]", "entry 1: it is no result"),
        (json.dumps(DOG) + '\n{"image": "a.jpg"}', "line 2: it is no result"),
        (json.dumps({**DOG, "scores": [1]}), "not four numbers and a score each"),
        (json.dumps({**DOG, "scores": [1, "2"]}), "not four numbers and a score each"),
        (json.dumps({**DOG, "scores": [1, float("nan")]}), "not four numbers and a score each"),
        (json.dumps({**DOG, "boxes": [[0, 0, 9, 9], [1, 2, 3]]}), "not four numbers and a score each"),
        (json.dumps({**DOG, "boxes": [[0, 0, 9, 9], [1, 2, 3, True]]}), "not four numbers and a score each"),
        (json.dumps({**DOG, "boxes": [[0, 0, 9, 9], [1, 2, 10**400, 3]]}), "not four numbers and a score each"),
        (json.dumps({**DOG, "scores": [1, 10**400]}), "not four numbers and a score each"),
        (json.dumps({**DOG, "boxes": [[0, 0, 9, 9], [50, 60, 20, 10]]}), "a corner, width and height"),
        ('{"image": %s}' % ("9" * 5000), "line 1: broken JSON"),
        ("[%s]" % ("9" * 5000), "broken JSON"),
    ],
)
def test_other_files(tmp_path, text, words):
    path = tmp_path / "cca.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_results("CCA", path)


def test_words_may_hold_rarer_line_breaks(tmp_path):
    path = tmp_path / "cca.jsonl"
    path.write_text(json.dumps({**DOG, "phrase": "a\u2028dog"}, ensure_ascii=False) + "\r\n", encoding="utf-8")
    _, missing = read_results("CCA", path).mentions([record("a.jpg", "a dog")], "union")
    assert missing == 0


def test_no_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.json"):
        read_results("CCA", tmp_path / "none.json")
