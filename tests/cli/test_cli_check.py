"""``excite check``: on a classifier of colours, and on the embedded one."""

import json

import pytest
from annotated import picture, scenes


@pytest.fixture
def photos(here):
    for name, squares in scenes(6):
        picture(here / "photos" / f"{name}.png", squares)
    return "photos"


def test_it_says_in_plain_words_what_holds(excite, model, photos, here):
    ended = excite("check", model, photos)
    lines = ended.out.splitlines()
    assert [
        line.split()[1] for line in lines if not line.startswith((" ", "With", "No", "Yes", "left", "written"))
    ] == [*("mass", "values", "response", "randomisation", "classes", "removal", "stability")]
    assert lines[-1].startswith("written: excite-out/check-colours/check.json")
    assert any("the maps of c-mwp" in line and "on 6 images" in line for line in lines)
    assert sorted(path.name for path in (here / "excite-out/check-colours").iterdir()) == [
        *("check.json", "check.md", "check.png", "index.html", "records.jsonl")
    ]


def test_the_json_says_the_same_as_the_file(excite, model, photos, here):
    (answer,) = excite("check", model, photos, "--json", "--no-page", "--only", "values,classes").answers
    assert list(answer["checks"]) == ["values", "classes"]
    assert answer["pictures"] == 6
    written = json.loads((here / "excite-out/check-colours/check.json").read_text())
    assert written.pop("command") == "excite check colours photos --json --no-page --only values,classes"
    assert written == answer


def test_a_method_that_fails_ends_with_1(excite, model, photos):
    ended = excite("check", model, photos, "--no-page", "--only", "randomisation,classes", "--method", "center")
    assert ended.code == 1
    assert "No: the maps of center" in ended.out


def test_started_again_nothing_is_measured_again(excite, model, photos, monkeypatch):
    first = excite("check", model, photos, "--no-page", "--only", "values", "--json")
    monkeypatch.setattr("excite.experiments.checks.run.CheckMeasurement.__call__", None)
    assert excite("check", model, photos, "--no-page", "--only", "values", "--json").answers == first.answers


def test_a_picture_that_cannot_be_read_is_told(excite, model, photos, here):
    (here / photos / "broken.png").write_bytes(b"no image")
    ended = excite("check", model, photos, "--no-page", "--only", "values")
    assert ended.code == 1
    assert "broken.png" in ended.err
    assert "1 of 7 images could not be read" in ended.err
    assert "on 6 images" in ended.out


def test_without_pictures_those_of_scikit_image_are_taken(excite, model):
    (answer,) = excite("check", model, "--limit", 2, "--no-page", "--only", "values", "--json").answers
    assert answer["pictures"] == 2
    assert "So few images say little" in answer["summary"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "luck"], "there is no check 'luck': use some of mass,values"),
        (["--method", "luck"], "there is no method 'luck'"),
        (["--layer", "luck"], "luck"),
        (["nowhere"], "no images found for 'nowhere'"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(excite, model, photos, arguments, words):
    assert words in excite("check", model, *([photos] if arguments != ["nowhere"] else []), *arguments).complaint


def test_all_pictures_broken(excite, model, here):
    (here / "broken.png").write_bytes(b"no image")
    assert "none of the 1 images could be read" in excite("check", model, "broken.png", "--no-page").complaint
