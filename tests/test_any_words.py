"""Any words from end to end: a stand-in dual encoder in every place that takes a classifier."""

import json

import numpy as np
import pytest
from annotated import COLOURS, SIDE, make_voc, picture, scenes
from described import Said, write_proposals
from PIL import Image
from standin import open_classifier

import excite
from excite.cli import main
from excite.datasets import open_dataset
from excite.datasets.base import Phrase
from excite.experiments.grounding.run import Grounding
from excite.experiments.pointing.run import PointingGame
from excite.grounding.ground import GroundingSession
from excite.grounding.proposals import Proposals
from excite.models import Choice
from excite.search import PhotoIndex
from excite.vocabulary import read_phrase

pytest.importorskip("higra")
pytest.importorskip("fastapi")


RED, GREEN = (4, 4, 14, 14), (30, 30, 40, 40)
pytestmark = pytest.mark.filterwarnings("ignore::excite.errors.LostSignalWarning")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path / "home"))


@pytest.fixture
def photo(tmp_path):
    picture(tmp_path / "photos" / "both.png", [("red", RED), ("green", GREEN)])
    return tmp_path / "photos" / "both.png"


def inside(point, box):
    return box[0] <= point[0] < box[2] and box[1] <= point[1] < box[3]


@pytest.mark.parametrize("bias", [None, -2.0])
def test_phrases_point_at_what_they_say(photo, bias):
    red, green = excite.attend(open_classifier(bias=bias), photo, ["my red lantern", "some green paint"])
    assert inside(red.point(), RED)
    assert inside(green.point(), GREEN)
    (less,) = excite.attend(open_classifier(bias=bias), photo, "my red lantern", against="some green paint")
    assert less.concept == "my red lantern, not some green paint"
    assert inside(less.point(), RED)


def test_a_phrase_is_grounded_as_a_whole(photo):
    classifier, found = open_classifier(), Image.open(photo).convert("RGB")
    proposals = Proposals(found.size, np.array([RED, GREEN], np.float32), np.array([0.5, 0.6], np.float32))
    session = GroundingSession(classifier, found, proposals)
    first, second = session.ground(["a lantern in red paint", "the green one on the left"])
    assert [first.regions[0].box, second.regions[0].box] == [RED, GREEN]
    assert first.to_json()["words"][0]["concept"] == "a lantern in red paint"
    assert first.to_json()["skipped"] == second.to_json()["skipped"] == []
    assert second.to_json()["hints"] == ["left"]
    assert session.ground(["another green thing"])[0].regions[0].box == GREEN  # the forward pass is made again
    reading = read_phrase("the left dog next to a cat", classifier.labels)
    assert [(word.concept.name, word.start, word.end) for word in reading.words] == [(reading.text, 0, 26)]
    assert not read_phrase(" ", classifier.labels).words


@pytest.mark.parametrize("bias", [None, -2.0])
def test_photos_are_found_by_words_that_came_after_the_index(tmp_path, bias):
    folder = tmp_path / "photos"
    for name in COLOURS:
        picture(folder / f"{name}.png", [(name, (4, 4, 40, 40))])
    index = PhotoIndex(folder, open_classifier(bias=bias))
    index.update()
    for name in COLOURS:
        answer = index.query(f"a thing that is {name}")
        assert answer.matches[0].path.stem == name
        for match in answer.matches:
            (wanted,) = excite.attend(open_classifier(bias=bias), match.path, f"a thing that is {name}")
            assert match.probability == pytest.approx(wanted.probability, rel=2e-3)
    (best, *_) = index.query("red and green -green").matches
    assert best.path.stem == "red"
    again = PhotoIndex(folder, open_classifier(bias=bias))  # with what is in the file
    assert again.update().added == 0
    assert again.query("blue").matches[0].path.stem == "blue"


def test_the_pointing_game_takes_any_categories(tmp_path):
    dataset = open_dataset(make_voc(tmp_path / "voc", scenes(4)))
    game = PointingGame(open_classifier(labels=["cat", "dog"]), dataset, ["c-mwp"])
    records = list(game.records(tmp_path / "out"))
    (row,) = game.rows(records)
    assert row.all.value == 100


def test_phrases_are_ranked_in_the_experiment_on_grounding(tmp_path):
    phrases = [Phrase("my red lantern", (RED,), "warm"), Phrase("some green paint", (GREEN,), "warm")]
    squares = [("red", RED), ("green", GREEN)]
    dataset = Said(tmp_path / "said", {"a.png": (squares, phrases)}, ("warm",))
    path = write_proposals(tmp_path / "boxes.json", {"a.png": [(0, 0, SIDE, SIDE), RED, GREEN]})
    asking = Grounding(open_classifier(), dataset, ["c-mwp"], proposals=str(path), side=SIDE, gamma=1.0, trust=0.0)
    (record,) = asking.records(tmp_path / "out", asking.choose(list(asking.choosing(tmp_path / "out"))))
    assert [phrase["known"] for phrase in record["phrases"]] == [True, True]
    assert [phrase["found"][0]["hits"]["union"] for phrase in record["phrases"]] == [1, 1]


@pytest.fixture
def offered(monkeypatch):
    """`excite.load` gives the stand-in."""
    monkeypatch.setattr(Choice, "load", lambda _self: open_classifier())


def test_a_server_answers_for_any_words(photo, offered):
    from starlette.testclient import TestClient

    from excite.web.api import create_api
    from excite.web.service import Service

    with (
        TestClient(create_api(Service({"stand-in": Choice()})), "http://localhost") as client,
        photo.open("rb") as file,
    ):
        answer = client.post("/attend", files={"image": file}, data={"concept": ["my red lantern", "green"]})
        assert answer.status_code == 200, answer.text
    red, green = answer.json()["maps"]
    assert inside(red["point"], RED)
    assert inside(green["point"], GREEN)


def test_commands_take_it(photo, tmp_path, offered, capsys):
    def said(*words):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words), "--json"])
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    (found,) = said("attend", photo, "my red lantern", "--out", tmp_path)["maps"]
    assert inside(found["point"], RED)
    (found,) = said("ground", photo, "some green paint", "--out", tmp_path)["phrases"]
    assert inside(found["point"], GREEN)
    (match,) = said("find", photo.parent, "some green paint")["matches"]
    assert match["concepts"].keys() == {"some green paint"}
