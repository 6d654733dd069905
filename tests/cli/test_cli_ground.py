"""``excite ground`` from the outside, with a classifier of colours; its usual answers are in tests/snapshots."""

import json
from pathlib import Path

import numpy as np
import pytest
from annotated import SIDE, colour_classifier, picture
from PIL import Image

from excite.grounding import ground


@pytest.fixture
def photo(here, model):
    """A red square and a green one."""
    picture(here / "squares.png", [("red", (4, 8, 16, 20)), ("green", (28, 24, 44, 40))])
    return "squares.png"


@pytest.fixture
def run(excite, photo):
    return lambda *arguments: excite("ground", photo, *arguments, "--side", SIDE)


def boxes_file(boxes):
    np.savez("boxes.npz", boxes=np.array(boxes, np.float32).reshape(-1, 4), scores=np.ones(len(boxes), np.float32))
    return "boxes.npz"


class TestJson:
    def test_it_says_what_the_library_says(self, run, photo):
        options = {"gamma": 1.0, "trust": 0.0, "most": 2, "method": "mwp", "layer": "2", "hints": False}
        (found,) = ground(colour_classifier(), photo, "a red thing", side=SIDE, **options)
        arguments = "--gamma 1 --trust 0 --most 2 --method mwp --layer 2 --no-hints --no-overlays --json".split()
        (answer,) = run("a red thing", *arguments).answers
        assert answer["phrases"] == [{**json.loads(json.dumps(found.to_json())), "picture": None}]
        assert (answer["gamma"], answer["method"], answer["layer"]) == (1.0, "mwp", "2")
        assert not Path("excite-out").exists()

    def test_regions_from_a_file(self, run):
        (answer,) = run(
            "red", "--json", "--no-overlays", "--proposals", boxes_file([[0, 0, 20, 24], [24, 20, 48, 48]])
        ).answers
        assert [region["box"] for region in answer["phrases"][0]["regions"]] == [[0, 0, 20, 24], [24, 20, 48, 48]]
        assert answer["proposals"] == "boxes.npz"

    def test_regions_are_kept_for_the_next_time(self, run):
        answers = [run("red", "--json", "--cache", "kept", "--no-overlays").answers for _ in range(2)]
        assert answers[0] == answers[1]
        assert len([file for file in Path("kept").rglob("*") if file.is_file()]) == 1


class TestText:
    def test_no_evidence(self, run, here):
        Image.new("RGB", (SIDE, SIDE)).save("squares.png")
        said = run("red", "--proposals", boxes_file([[0, 0, 20, 24]]), "--no-overlays").out
        assert "regions: none, there is no evidence for it anywhere\npoint: nowhere\n" in said

    @pytest.mark.parametrize("nonsense", ["xqzzy blorf", "the of and", "a zebra"])
    def test_no_known_word_is_refused(self, run, nonsense):
        ended = run("red", nonsense, "--json")
        assert (ended.code, ended.err.count("\n")) == (1, 1)
        assert f"excite: colours knows no word of {nonsense!r}: " in ended.err
        red, refused = ended.answers[0]["phrases"]
        assert (refused["regions"], refused["point"], refused["picture"]) == ([], None, None)
        assert refused["reason"] == "no word of it is known"
        assert red["regions"]
        assert red["reason"] is None
        assert run(nonsense).complaint

    def test_hints_alone_are_answered_and_told(self, run):
        ended = run("the left one", "--no-overlays")
        assert ended.code == 0
        assert "note: colours knows no thing in 'the left one'" in ended.err
        assert "weighed by: left\nrank" in ended.out

    def test_the_whole_picture_comes_first_only_where_the_evidence_is_everywhere(self, run):
        def first():
            options = ("--json", "--no-overlays", "--gamma", "0", "--trust", "0", "--proposals")
            (answer,) = run("red", *options, boxes_file([[0, 0, 48, 48], [2, 6, 18, 22]])).answers
            return answer["phrases"][0]["regions"][0]["box"]

        assert first() == [2, 6, 18, 22]
        Image.new("RGB", (SIDE, SIDE), "red").save("squares.png")
        assert first() == [0, 0, 48, 48]


class TestPhrases:
    def test_from_a_file_behind_those_given(self, run):
        Path("phrases.txt").write_text("\ufeffgreen\n\n  a red hat \r\n\t\n", encoding="utf-8")
        ended = run("red", "--phrases", "phrases.txt", "--json", "--no-overlays")
        assert [each["phrase"] for each in ended.answers[0]["phrases"]] == ["red", "green", "a red hat"]
        assert ended.err == "excite: note: blank lines of 'phrases.txt' skipped: 2\n"

    def test_phrases_of_one_name_have_a_picture_each(self, run):
        (answer,) = run("red / ünd?", "red, ünd!", "--json").answers
        files = [each["picture"] for each in answer["phrases"]]
        assert len(set(files)) == 2
        assert all(file.startswith("excite-out/squares.red-ünd.") for file in files)
        assert all(Path(file).is_file() for file in files)


class TestPictures:
    def test_one_by_name(self, run):
        (answer,) = run("red", "--json", "--out", "there/red.PNG").answers
        assert answer["phrases"][0]["picture"] == "there/red.PNG"
        assert Path("there/red.PNG").is_file()

    def test_another_question_leaves_the_pictures_of_the_first(self, run, excite, photo):
        (first,) = run("red?", "--json").answers
        drawn = Path(first["phrases"][0]["picture"])
        assert drawn.name == "squares.red.png"
        before = drawn.read_bytes()
        others = [run("red!", "--json"), run("red?", "--json", "--gamma", 1), run("red?", "--json", "--most", 1)]
        files = {answer["phrases"][0]["picture"] for ended in others for answer in ended.answers}
        (answer,) = excite("attend", photo, "red", "--json").answers
        files.add(answer["maps"][0]["overlay"])
        assert len(files) == 4
        assert drawn.read_bytes() == before
        assert run("red?", "--json").answers == [first]
