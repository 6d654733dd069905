"""What can be asked, without any server: images that are kept, turns that are waited for, answers for the page."""

import asyncio
import io
import json
import threading
import warnings

import numpy as np
import pytest
from PIL import Image

import excite
from excite.errors import ConceptError, ImageError, LayerError, LostSignalWarning, ModelError
from excite.models import Choice
from excite.web.errors import warnings_as_notes
from excite.web.handlers import PageAnswers, Settings
from excite.web.service import BusyError, ConcurrencyLimit, Service
from excite.web.uploads import GoneError, Limits, UploadStore, find_examples

data = pytest.importorskip("skimage.data")
pytest.importorskip("higra")


def jpeg(picture, **more):
    file = io.BytesIO()
    picture.save(file, "JPEG", **more)
    return file.getvalue()


@pytest.fixture(scope="module")
def service():
    return Service({"words": Choice("words"), "numbers": Choice("efficientnet-lite0")}, Limits(kept_pixels=60_000))


@pytest.fixture(scope="module")
def upload(service):
    return service.uploads.put(Image.fromarray(data.coffee()))


@pytest.fixture(scope="module")
def answers(service):
    return PageAnswers(service, find_examples())


class TestDesk:
    def test_a_large_picture_is_kept_smaller_and_told_in_its_own_pixels(self):
        uploads = UploadStore(Limits(kept_pixels=1000))
        upload = uploads.take(jpeg(Image.new("RGB", (400, 100))))
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
        [(b"", "empty"), (b"x" * 2000, "more than 1,000 bytes"), (b"text", "not an image")],
    )
    def test_what_is_no_picture_is_refused(self, content, why):
        with pytest.raises(ImageError, match=why):
            UploadStore(Limits(upload=1000)).take(content)

    def test_too_many_pixels_are_refused_before_they_are_decoded(self):
        with pytest.raises(ImageError, match=r"100 x 100 pixels, more than 9,999: make it smaller"):
            UploadStore(Limits(pixels=9999)).take(b"P6 100 100 255 ")  # its pixels are not even there


def test_a_gate_lets_so_many_through_and_has_so_many_wait():
    concurrency = ConcurrencyLimit(at_once=1, waiting=1)
    inside, leave, order = threading.Event(), threading.Event(), []

    def first():
        with concurrency.slot():
            inside.set()
            leave.wait(10)
            order.append("first")

    def second():
        with concurrency.slot():
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    while concurrency._admitted._value:  # until the second waits
        pass
    with pytest.raises(BusyError, match="try again"), concurrency.slot():
        pass
    leave.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "second"]
    with concurrency.slot(), concurrency.slot():  # everybody has left, and who is inside may ask again
        pass


class TestService:
    def test_the_network_looks_once(self, service, upload):
        cache = service.served_model().cache
        runs = cache.runs
        found = service.findings(upload)
        service.attend(upload, [found[0].concept])
        service.attend(upload, ["spoon", "table"])
        assert cache.runs == runs + 1
        assert len({one.concept for one in found}) == 10
        assert found[0].concept == "cup"

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

    def test_without_concepts_the_findings_are_shown(self, service, upload):
        assert [one.concept for one in service.attend(upload)] == [
            one.concept for one in service.findings(upload, most=5)
        ]

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


class TestAnswers:
    def test_a_word_a_phrase_and_nothing_said(self, answers, upload):
        word = answers.view(upload, Settings("words", "spoon"))
        assert (word["title"], word["about"][1:]) == ("spoon", ["layer blocks.14", "c-mwp"])
        phrase = answers.view(upload, Settings("words", "the spoon on the right"))
        assert phrase["about"] == ["phrase", "layer blocks.14", "excite"]
        assert [word["word"] for word in phrase["words"]] == ["spoon"]
        nothing = answers.view(upload, Settings("words"))
        assert nothing["title"] == "cup"

    def test_places_are_shares_and_numbers_are_pixels_as_sent(self, answers, upload):
        assert upload.size != upload.picture.size
        view = answers.view(upload, Settings("words", "cup"))
        told = json.loads(view["json"])
        assert told["image_size"] == [600, 400]
        assert np.allclose(np.multiply(view["point"], upload.size), told["point"], atol=2.1)
        assert np.allclose(np.multiply(view["box"], [*upload.size, *upload.size]), told["box"], atol=0.1)
        assert max(view["box"]) <= 1

    def test_an_unknown_word_is_told_beside_the_picture(self, answers, upload):
        shown = answers.stage(upload, Settings("words", "flurb"))
        assert shown["view"] is None
        assert shown["picture"]["key"] == upload.key
        assert shown["error"].startswith("No label is called 'flurb'")

    @pytest.mark.parametrize("text", ["umpire", "surf board"])
    def test_words_that_are_no_labels_are_phrases(self, answers, upload, text):
        assert answers.view(upload, Settings("words", text))["about"][0] == "phrase"

    def test_endless_text_is_refused_before_it_is_read(self, answers, upload):
        assert answers.stage(upload, Settings("words", "cat " * 100_000))["error"].endswith("write at most 1000.")
        assert answers.stage(upload, Settings("words", "cat", "dog" * 400))["error"].endswith("write at most 1000.")

    def test_an_example_is_read_once(self, answers):
        first = answers.find_upload({"example": "rocket"})
        assert answers.find_upload({"example": "rocket"}) is first

    def test_a_phrase_has_no_contrast(self, answers, upload):
        assert "a single concept" in answers.stage(upload, Settings("words", "a small spoon", "cup"))["error"]

    def test_the_layer_is_found_by_its_place(self, answers, service, upload):
        place = service.served_model().layers.index("blocks.10")
        assert answers.view(upload, Settings("words", "cup", layer=place))["about"][1] == "layer blocks.10"
        for odd in (-1, 999):
            assert answers.layer(Settings("words", layer=odd)) is None

    def test_too_many_maps_side_by_side_are_refused(self, answers, upload):
        told = answers.grid(upload, "words", "cat, dog, cup", ["mwp"] * 9, [])
        assert told["error"] == "These are 27 maps: choose fewer, at most 24."
        assert answers.grid(upload, "words", "cup", [], [])["error"] == "Choose at least one method."
        rows = answers.grid(upload, "words", "cup, spoon", ["mwp", "c-mwp"], ["blocks.10"])["rows"]
        assert [[view["title"] for view in row] for row in rows] == [["cup", "cup"], ["spoon", "spoon"]]

    def test_pictures_by_example_by_key_and_not_at_all(self, answers, upload):
        assert answers.find_upload({"example": "chelsea"}).size == (451, 300)
        assert answers.find_upload({"picture": upload.key}).key == upload.key
        assert answers.find_upload(None) is answers.find_upload({}) is None
        with pytest.raises(GoneError):
            answers.find_upload({"picture": "../../etc/passwd"})

    def test_warnings_are_told_beside_the_map_and_not_in_the_log(self, answers, service, upload, monkeypatch, capsys):
        def attend(*asked, **more):
            warnings.warn("hardly anything arrived", LostSignalWarning, stacklevel=1)
            return Service.attend(service, *asked, **more)

        monkeypatch.setattr(service, "attend", attend)
        with warnings_as_notes():
            assert answers.stage(upload, Settings("words", "cup"))["view"]["notes"] == ["Hardly anything arrived."]
            told = answers.grid(upload, "words", "cup", ["mwp", "c-mwp"], [])
            assert (told["error"], len(told["rows"])) == ("Hardly anything arrived.", 1)
            assert len(answers.findings(upload, Settings("words"))["findings"]) == 8
        assert capsys.readouterr().err == ""

    def test_an_example_that_cannot_be_read_is_told(self, service, tmp_path):
        Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
        handlers = pytest.importorskip("excite.web.handlers").Handlers(
            PageAnswers(service, find_examples(tmp_path)), ()
        )
        (tmp_path / "a.png").write_bytes(b"broken")
        _, _, shown = handlers.show_image({"example": "a", "turn": 3}, "words", "", "", "usual", None)
        assert "not an image excite can read" in shown["error"]
        assert shown["turn"] == 3

    def test_gradio_forgets_what_pages_have_shown(self, service, monkeypatch):
        page = pytest.importorskip("excite.web.page")
        monkeypatch.setattr(page.gr, "mount_gradio_app", lambda app, blocks, **_: blocks)

        async def mounted():  # gradio wants a loop, and would leave one of its own open
            return page.mount_page(None, service)

        assert asyncio.run(mounted()).state_session_capacity == page.SESSIONS


def test_examples_of_ones_own(tmp_path):
    Image.new("RGB", (300, 100), "red").save(tmp_path / "mine.png")
    (example,) = find_examples(tmp_path).values()
    assert (example.name, example.read().size) == ("mine", (300, 100))
    assert example.thumbnail().startswith("data:image/jpeg;base64,")


def test_examples_of_the_same_name_and_of_odd_names(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("cat.jpg", "cat.png", "b/cat.png", "${alert(1)}.png", "{{#each}}.png", "\udcff.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    found = find_examples(tmp_path)
    assert sorted(found) == ["${alert(1)}", "\\udcff", "cat", "cat (2)", "cat (3)", "{{#each}}"]
    drop = pytest.importorskip("excite.web.page").drop_area(found)
    assert "{{" not in drop.html_template  # gradio would run it
    assert "${" not in drop.html_template
