"""``excite find``, as it is typed; and what it draws."""

import csv
import json
import re
import sqlite3
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from annotated import colour_classifier, picture, scenes
from PIL import Image

from excite.cli import main
from excite.search import PhotoIndex
from excite.search.query import read_question
from excite.vocabulary import Labels


@pytest.fixture
def photos(here):
    for name, squares in scenes(6):
        picture(here / "photos" / f"{name}.png", squares)
    return "photos"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("excite.models.Choice.load", lambda _choice: colour_classifier())
    return tmp_path


@pytest.fixture
def find(capsys):
    """Run ``excite find``; the exit code, the lines of standard output and those of standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["find", *map(str, arguments)])
        said = capsys.readouterr()
        return ended.value.code, said.out.splitlines(), said.err.splitlines()

    return run


def test_a_list_for_people_and_for_programs(find, photos):
    code, out, err = find(photos, "red -green", "--most", 2)
    assert code == 0
    assert out[0].split() == ["probability", "red", "green", "photo"]
    assert [line.split()[-1] for line in out[1:]] == ["photos/000001.png", "photos/000005.png"]
    assert err == ["excite: note: the 2 most probable of 6 photos"]
    code, (line,), err = find(photos, "red -green", "--most", 2, "--json", "--no-update")
    answer = json.loads(line)
    assert (code, err) == (0, [])
    assert [one["photo"] for one in answer["matches"]] == ["photos/000001.png", "photos/000005.png"]
    assert {"concepts": ["red"], "without": ["green"], "photos": 6, "unreadable": []}.items() <= answer.items()


def test_files(find, photos, here):
    code, _, _ = find(photos, "red", "--most", 4, "--csv", "a.csv", "--page", "a.html", "--sheet", "a.jpg")
    assert code == 0
    with (here / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    page = (here / "a.html").read_text()
    assert "photos/000001.png" in page
    drawings = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    assert len(drawings) == 4
    drawn = np.asarray(Image.open(BytesIO(b64decode(drawings[0]))), dtype=int)
    assert np.ptp(drawn, axis=2).max() > 30  # evidence is in colours on a dimmed photo
    with Image.open(here / "a.jpg") as sheet:
        assert sheet.width > 1000
    (here / "mine.html").write_text("precious")
    code, out, err = find(photos, "red", "--page", "mine.html")
    assert (code, out, len(err)) == (1, [], 1)
    assert (here / "mine.html").read_text() == "precious"


def test_photos_that_fail_are_told_once(find, photos, here):
    (here / photos / "broken.jpg").write_bytes(b"no image")
    code, out, err = find(photos, "red")
    assert (code, len(out)) == (1, 7)
    assert sum("broken.jpg" in line for line in err) == 1
    code, out, err = find(photos, "red")
    assert (code, len(out)) == (0, 7)
    assert "could not be read before, and have not changed: 1" in err[-1]


REFUSED = {
    ("gone", "red"): "no folder 'gone'",
    ("empty", "red"): "no images found",
    ("photos", "blue"): "No label is called 'blue'",
    ("photos", "red -blue"): "No label is called 'blue'",
    ("photos", "reed"): "Did you mean 'red'",
    ("photos", "red", "--sheet", "a.txt"): "--sheet",
    ("photos", "red", "--at-least", "2"): "--at-least",
    ("photos", "red", "--index", "/proc/index.sqlite"): "--index",
    ("photos", "red", "--index", "notes.txt"): "damaged",
    ("photos", "red", "--index", "other.sqlite"): "no index of excite",
    ("photos", "red", "--index", "other.sqlite", "--fresh"): "not removed",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_refused_in_one_line(find, photos, here, arguments):
    (here / "empty").mkdir()
    (here / "notes.txt").write_text("these are my notes, and no database " * 50)
    with sqlite3.connect(here / "other.sqlite") as connection:
        connection.execute("CREATE TABLE mine (a)")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    code, out, (line,) = find(*arguments)
    assert code in {1, 2}
    assert out == []
    assert REFUSED[arguments] in line
    assert {path: path.read_bytes() for path in before} == before


def test_unknown_words_have_a_reason_in_json(find, photos):
    code, (line,), _ = find(photos, "blue", "--json")
    assert code == 1
    assert json.loads(line)["matches"] == []
    assert "No label is called 'blue'" in json.loads(line)["error"]


def test_questions():
    pytest.importorskip("simplemma")
    labels = Labels(["surfboard", "person", "dog", "yellow", "traffic light"])
    question = read_question("a person on a yellow surfboard with zorks -traffic_light", labels)
    assert question.names == ("person", "surfboard", "traffic light")
    assert (question.hints, question.unused) == (("yellow",), ("zorks",))
    assert read_question("yellow", labels).names == ("yellow",)
    assert read_question("a yellow dog", labels, hints=False).hints == ()


def test_colours_and_positions_rank_again(tmp_path):
    """Two equal things, one in another place: only the evidence tells them apart."""
    pytest.importorskip("simplemma")
    for name, x in {"a": 36, "b": 4}.items():
        picture(tmp_path / f"{name}.png", [("red", (x, 16, x + 8, 24))])
    index = PhotoIndex(tmp_path, colour_classifier())
    index.update()
    assert [one.path.stem for one in index.query("red").matches] == ["a", "b"]
    assert [one.path.stem for one in index.query("red on the left").matches] == ["b", "a"]
    assert [one.weight for one in index.query("red on the left", hints=False).matches] == [None, None]
