"""What can be asked, without any server: images that are kept, turns that are waited for, answers for the page."""

import asyncio
import json
import threading
import warnings

import numpy as np
import pytest
from PIL import Image
from servers import encoded

import excite
from excite.errors import ConceptError, ImageError, LayerError, LostSignalWarning, ModelError
from excite.models import Choice
from excite.web.errors import BusyError, GoneError, warnings_as_notes
from excite.web.page import CompareQuestion, LookQuestion, PageAnswers, find_examples
from excite.web.service import ConcurrencyLimit, Limits, Service, UploadStore

data = pytest.importorskip("skimage.data")
pytest.importorskip("higra")


@pytest.fixture(scope="module")
def service():
    return Service({"words": Choice("words"), "numbers": Choice("efficientnet-lite0")}, Limits(kept_pixels=60_000))


@pytest.fixture(scope="module")
def upload(service):
    return service.uploads.put(Image.fromarray(data.coffee()))


class TestDesk:
    def test_a_large_picture_is_kept_smaller_and_told_in_its_own_pixels(self):
        uploads = UploadStore(Limits(kept_pixels=1000))
        upload = uploads.take(encoded(Image.new("RGB", (400, 100)), "JPEG"))
        assert upload.size == (400, 100)
        assert upload.picture.size == (63, 16)
        assert upload.box((0, 0, 63, 16)) == [0, 0, 400, 100]
        assert upload.point((62, 15)) == [396, 96]
        assert upload.point(None) is upload.box(None) is None

    def test_the_same_picture_has_the_same_key_and_another_has_another(self):
        uploads = UploadStore(Limits())
        one = uploads.put(Image.new("RGB", (8, 8)))
        assert uploads.put(Image.new("RGB", (8, 8))).key == one.key
        assert uploads.put(Image.new("RGB", (4, 16))).key != one.key  # as many pixels, and all black
        assert uploads.find(one.key).picture.size == (8, 8)

    def test_the_oldest_are_forgotten(self):
        uploads = UploadStore(Limits(pictures=300))
        keys = [uploads.put(Image.new("RGB", (10, 5), (n, 0, 0))).key for n in range(3)]
        with pytest.raises(GoneError, match="send it again"):
            uploads.find(keys[0])
        assert uploads.find(keys[2]).size == (10, 5)

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", "empty"),
            (b"text", "not an image"),
            (b"P6 100 100 255 ", r"100 x 100 pixels, more than 9,999: make it smaller"),  # they are not even there
        ],
    )
    def test_what_is_no_picture_is_refused(self, content, why):
        with pytest.raises(ImageError, match=why):
            UploadStore(Limits(pixels=9999)).take(content)


def test_so_many_run_so_many_wait_and_phrases_leave_a_thread_free():
    async def crowd():
        limit, leave, order = ConcurrencyLimit(at_once=2, waiting=2), threading.Event(), []

        async def ask(name, **kind):
            await limit.run(lambda: (leave.wait(10), order.append(name)) if kind else order.append(name), **kind)

        async with asyncio.TaskGroup() as group:
            for name in ("first", "second"):
                group.create_task(ask(name, is_phrase=True))
            await asyncio.sleep(0.05)
            await ask("a word")  # while one phrase runs and the other waits
            assert order == ["a word"]
            group.create_task(ask("third", is_phrase=True))
            group.create_task(ask("fourth", is_phrase=True))
            await asyncio.sleep(0.05)
            with pytest.raises(BusyError, match="try again"):
                await ask("fifth")
            assert await limit.run_short(lambda: "drawn") == "drawn"
            leave.set()
        return order

    assert asyncio.run(crowd()) == ["a word", "first", "second", "third", "fourth"]


class TestService:
    def test_the_network_looks_once(self, service, upload):
        cache = service.served_model().cache
        runs = cache.runs
        found = service.findings(upload, None, 10)
        assert [one.concept for one in service.attend(upload)] == [concept for concept, _ in found[:5]]
        service.attend(upload, ["spoon", "table"])
        assert cache.runs == runs + 1
        assert len({concept for concept, _ in found}) == 10
        assert found[0][0] == "cup"

    def test_the_answers_are_those_of_the_library(self, service, upload):
        (found,) = service.attend(upload, ["spoon"], method="mwp", layer="blocks.10", against=["cup"])
        (made,) = excite.attend(
            service.served_model().classifier, upload.picture, "spoon", method="mwp", layer="blocks.10", against="cup"
        )
        np.testing.assert_array_equal(found.numpy(), made.numpy())
        (phrase,) = service.ground(upload, ["the spoon on the right"])
        (expected,) = excite.ground(service.served_model().classifier, upload.picture, "the spoon on the right")
        assert phrase.to_json() == expected.to_json()
        (again,) = service.ground(upload, ["the spoon on the right"])  # this time nothing is made anew
        assert again.to_json() == expected.to_json()

    @pytest.mark.parametrize(
        ("question", "error", "why"),
        [
            ({"model": "/etc/passwd"}, ModelError, "not offered here: use one of words, numbers"),
            ({"layer": "nowhere"}, LayerError, r"words has no layer 'nowhere': use one of .*blocks\.14"),
            ({"concepts": ["cat"] * 51}, ConceptError, "at most 50"),
            ({"concepts": ["c" * 1001]}, ConceptError, "at most 1000"),
            ({"concepts": ["flurb"]}, ConceptError, "No label is called"),
        ],
    )
    def test_what_cannot_be_answered(self, service, upload, question, error, why):
        with pytest.raises(error, match=why):
            service.attend(upload, **{"concepts": ["cat"], **question})

    def test_the_usual_layer_is_among_the_layers(self, service):
        served_model = service.served_model()
        assert served_model.layer == "blocks.14"
        assert served_model.layers.index("blocks.10") < served_model.layers.index(served_model.layer)
        assert served_model is service.models["words"]


@pytest.fixture(scope="module")
def answers(service):
    return PageAnswers(service, find_examples())


@pytest.fixture(scope="module")
def look(answers, upload):
    """Ask the page a question."""
    asked = {"model": "words", "picture": upload.key}
    return lambda question="", **more: answers.look(LookQuestion(**asked, question=question, **more))


class TestPage:
    @pytest.mark.parametrize(
        ("question", "title", "about"),
        [
            ("spoon", "spoon", ["layer blocks.14", "c-mwp"]),
            ("", "cup", ["layer blocks.14", "c-mwp"]),
            ("the spoon on the right", "the spoon on the right", ["phrase", "layer blocks.14", "excite"]),
            ("umpire", "umpire", ["phrase", "layer blocks.14", "excite"]),  # no label, but words of one
            ("surf board", "surf board", ["phrase", "layer blocks.14", "excite"]),
        ],
    )
    def test_a_word_a_phrase_and_nothing_said(self, look, question, title, about):
        view = look(question)["view"]
        assert view["title"] == title
        assert view["about"][-len(about) :] == about

    def test_places_are_shares_and_numbers_are_pixels_as_sent(self, look, upload):
        assert upload.size != upload.picture.size
        view = look("cup")["view"]
        told = json.loads(view["json"])
        assert told["image_size"] == [600, 400]
        assert np.allclose(np.multiply(view["point"], upload.size), told["point"], atol=2.1)
        assert np.allclose(np.multiply(view["box"], [*upload.size, *upload.size]), told["box"], atol=0.1)
        assert max(view["box"]) <= 1

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({"question": "flurb"}, "No label is called 'flurb'"),
            ({"question": "cat " * 100_000}, "write at most 1000."),
            ({"question": "cat", "against": "dog" * 400}, "write at most 1000."),
            ({"question": "a small spoon", "against": "cup"}, "a single concept"),
            ({"method": "mwq"}, "mwp"),
        ],
    )
    def test_what_cannot_be_answered_is_told_beside_the_picture(self, look, upload, asked, error):
        shown = look(**asked)
        assert (shown["view"], shown["picture"]["key"]) == (None, upload.key)
        assert error in shown["error"]

    def test_the_layer_is_found_by_its_place(self, answers, look):
        told = answers.layers("words")
        assert told["layers"][told["usual"]] == "blocks.14"
        place = told["layers"].index("blocks.10")
        assert look("cup", layer=place)["view"]["about"][1] == "layer blocks.10"
        assert look("cup", layer=999)["view"]["about"][1] == "layer blocks.14"

    def test_maps_side_by_side(self, answers, upload):
        def compare(concepts, methods, layers=()):
            asked = {"concepts": concepts, "methods": methods, "layers": layers}
            return answers.compare(CompareQuestion(**asked, model="words", picture=upload.key))

        assert compare("cat, dog, cup", ["mwp"] * 9)["error"] == "These are 27 maps: choose fewer, at most 24."
        assert compare("cup", [])["error"] == "Choose at least one method."
        rows = compare("cup, spoon", ["mwp", "c-mwp"], [3])["rows"]
        assert [[view["title"] for view in row] for row in rows] == [["cup", "cup"], ["spoon", "spoon"]]

    def test_pictures_by_example_by_key_and_not_at_all(self, answers, upload):
        first = answers.find_upload(LookQuestion(model="words", example="chelsea"))
        assert first.size == (451, 300)
        assert answers.find_upload(LookQuestion(model="words", example="chelsea")) is first  # read once
        assert answers.find_upload(LookQuestion(model="words", picture=upload.key)).key == upload.key
        for other in ({}, {"picture": "../../etc/passwd"}, {"example": "nothing"}):
            assert "send it again" in answers.look(LookQuestion(model="words", **other))["error"]

    def test_warnings_are_told_beside_the_map_and_not_in_the_log(
        self, answers, look, service, upload, monkeypatch, capsys
    ):
        def attend(*asked, **more):
            warnings.warn("hardly anything arrived", LostSignalWarning, stacklevel=1)
            return Service.attend(service, *asked, **more)

        monkeypatch.setattr(service, "attend", attend)
        with warnings_as_notes():
            shown = look("cup", findings=True)
            assert (shown["view"]["notes"], len(shown["findings"])) == (["Hardly anything arrived."], 8)
            asked = CompareQuestion(model="words", picture=upload.key, concepts="cup", methods=["mwp", "c-mwp"])
            told = answers.compare(asked)
            assert (told["error"], len(told["rows"])) == ("Hardly anything arrived.", 1)
        assert capsys.readouterr().err == ""

    def test_an_example_that_cannot_be_read_is_told(self, service, tmp_path):
        Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
        answers = PageAnswers(service, find_examples(tmp_path))
        (tmp_path / "a.png").write_bytes(b"broken")
        shown = answers.look(LookQuestion(model="words", example="a"))
        assert "not an image excite can read" in shown["error"]
