"""What can be asked, without any server: images that are kept, turns that are waited for, answers for the page."""

import asyncio
import json
import threading
import warnings

import numpy as np
import pytest
from PIL import Image

import excite
from excite.errors import LostSignalWarning
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


def test_images_have_a_key_each_and_the_oldest_are_forgotten():
    uploads = UploadStore(Limits(pictures=300))
    keys = [uploads.put(Image.new("RGB", size)).key for size in ((10, 5), (10, 5), (5, 10), (2, 25))]
    assert len(set(keys)) == 3  # they have as many pixels, and all are black
    assert uploads.find(keys[3]).size == (2, 25)
    with pytest.raises(GoneError, match="send it again"):
        uploads.find(keys[0])


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
        assert cache.runs == runs + 2  # once for the maps, once for the extent of objects
        assert len({concept for concept, _ in found}) == 10
        assert found[0][0] == "dining table"

    def test_phrases_are_those_of_the_library(self, service, upload):
        (expected,) = excite.ground(service.served_model().classifier, upload.picture, "the spoon on the right")
        for _ in range(2):  # the second time nothing is made anew
            (phrase,) = service.ground(upload, ["the spoon on the right"])
            assert phrase.to_json() == expected.to_json()


@pytest.fixture(scope="module")
def answers(service):
    return PageAnswers(service, find_examples())


@pytest.fixture(scope="module")
def look(answers, upload):
    """Ask the page a question."""
    asked = {"model": "words", "picture": upload.key}
    return lambda question="", **more: answers.look(LookQuestion(**asked, question=question, **more))


@pytest.fixture(scope="module")
def compare(answers, upload):
    asked = {"model": "words", "picture": upload.key}
    return lambda concepts, methods, layers=(): answers.compare(
        CompareQuestion(**asked, concepts=concepts, methods=methods, layers=layers)
    )


class TestPage:
    def test_a_word_a_phrase_and_nothing_said(self, look):
        for question in ("spoon", "the spoon on the right", "sheriff", "surf board", ""):  # some are words of a label
            view = look(question)["view"]
            how = ["layer blocks.14", "c-mwp"] if question in {"spoon", ""} else ["phrase", "layer blocks.14", "excite"]
            assert (view["title"], view["about"][-len(how) :]) == (question or "dining table", how)

    def test_places_are_shares_and_numbers_are_pixels_as_sent(self, look, upload):
        assert upload.size != upload.picture.size
        view = look("cup")["view"]
        told = json.loads(view["json"])
        assert told["image_size"] == [600, 400]
        assert np.allclose(np.multiply(view["point"], upload.size), told["point"], atol=2.1)
        assert np.allclose(np.multiply(view["boxes"][0], [*upload.size, *upload.size]), told["box"], atol=0.1)
        assert max(view["boxes"][0]) <= 1
        assert told["box"] == told["boxes"][0]

    def test_what_cannot_be_answered_is_told_beside_the_picture(self, look, upload):
        for error, asked in {
            "No label is called 'flurb'": {"question": "flurb"},
            "write at most 1000.": {"question": "cat", "against": "dog" * 400},
            "a single concept": {"question": "a small spoon", "against": "cup"},
            "mwp": {"method": "mwq"},
        }.items():
            shown = look(**asked)
            assert (shown["view"], shown["picture"]["key"]) == (None, upload.key)
            assert error in shown["error"]

    def test_the_layer_is_found_by_its_place(self, answers, look):
        told = answers.layers("words")
        assert told["layers"][told["usual"]] == "blocks.14"
        place = told["layers"].index("blocks.10")
        assert look("cup", layer=place)["view"]["about"][1] == "layer blocks.10"
        assert look("cup", layer=999)["view"]["about"][1] == "layer blocks.14"

    def test_maps_side_by_side(self, compare):
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

    def test_warnings_are_told_beside_the_map_and_not_in_the_log(self, look, compare, service, monkeypatch, capsys):
        def attend(*asked, **more):
            warnings.warn("hardly anything arrived", LostSignalWarning, stacklevel=1)
            return Service.attend(service, *asked, **more)

        monkeypatch.setattr(service, "attend", attend)
        with warnings_as_notes():
            shown = look("cup", findings=True)
            assert (shown["view"]["notes"], len(shown["findings"])) == (["Hardly anything arrived."], 8)
            told = compare("cup", ["mwp", "c-mwp"])
            assert (told["error"], len(told["rows"])) == ("Hardly anything arrived.", 1)
        assert capsys.readouterr().err == ""

    def test_an_example_that_cannot_be_read_is_told(self, service, tmp_path):
        Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
        answers = PageAnswers(service, find_examples(tmp_path))
        (tmp_path / "a.png").write_bytes(b"broken")
        shown = answers.look(LookQuestion(model="words", example="a"))
        assert "not an image excite can read" in shown["error"]
