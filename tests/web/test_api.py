"""The HTTP interface, asked in this process."""

import base64
import html
import io
import json
import re
import threading
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from servers import colour_service, encoded, multipart, red_square, refused
from starlette.testclient import TestClient

from excite.errors import LostSignalWarning
from excite.web.api import create_api
from excite.web.errors import collected_notes, warnings_as_notes


@pytest.fixture(scope="module")
def service():
    return colour_service(upload=200_000, pixels=1_000_000, kept_pixels=5_000)


@pytest.fixture(scope="module")
def asked(service):
    with TestClient(create_api(service), "http://localhost", raise_server_exceptions=False) as client:
        yield client


def sent(asked, content=None):
    return asked.post("/pictures", content=red_square() if content is None else content).json()["picture"]


def test_a_picture_is_sent_once_and_asked_for_often(asked):
    told = asked.post("/pictures", content=red_square(), headers={"Content-Type": "image/png"}).json()
    assert (told["width"], told["height"]) == (96, 48)
    body, headers = multipart(("image", "x.png", red_square()))
    assert asked.post("/pictures", content=body, headers=headers).json() == told
    for _ in range(2):
        answer = asked.post("/attend", data={"picture": told["picture"], "concept": "red"}).json()
        assert (answer["picture"], len(answer["maps"])) == (told["picture"], 1)


def test_points_and_boxes_are_those_of_the_picture_that_was_sent(asked, service):
    """An image that is kept smaller answers in its own pixels."""
    large = red_square((960, 480), (600, 60, 840, 300))
    answer = asked.post("/attend", files={"image": large}, data={"concept": "red"}).json()
    upload = service.uploads.find(answer["picture"])
    assert (upload.picture.width < 200, upload.point(None), upload.box(None)) == (True, None, None)
    (found,) = answer["maps"]
    (x, y), (left, _, right, _) = found["point"], found["box"]
    assert 600 <= x < 840
    assert 60 <= y < 300
    assert 480 < left < right <= 960
    assert (answer["width"], answer["height"]) == (960, 480)


@pytest.mark.parametrize("kind", ["form", "fields", "json"])
def test_forms_and_json_ask_the_same(asked, kind):
    key = sent(asked)
    fields = {"picture": key, "concept": ["red", "green"], "method": "mwp", "layer": "1", "values": True}
    pairs = [("picture", key), ("concept", "red"), ("concept", "green"), ("method", "mwp"), ("layer", "1")]
    body, headers = multipart(*pairs, ("values", "true"), ("model", ""))
    how = {"json": {"json": fields}, "fields": {"data": fields}, "form": {"content": body, "headers": headers}}
    answer = asked.post("/attend", **how[kind])
    assert answer.status_code == 200, answer.text
    maps = answer.json()["maps"]
    assert [one["concept"] for one in maps] == ["red", "green"]
    assert {(one["method"], one["layer"]) for one in maps} == {("mwp", "1")}
    values = np.array(maps[0]["values"])
    assert values.shape == (24, 48)
    assert np.unravel_index(values.argmax(), values.shape)[1] > 24
    assert values.sum() == pytest.approx(maps[0]["mass"], rel=1e-3)


def test_an_image_in_json_and_its_overlay(asked):
    image = base64.b64encode(red_square()).decode()
    for text in (image, f"data:image/png;base64,{image}"):
        answer = asked.post("/attend", json={"image": text, "concept": "red", "overlay": True}).json()
        drawn = Image.open(io.BytesIO(base64.b64decode(answer["maps"][0]["overlay"])))
        assert (drawn.format, drawn.size) == ("PNG", (96, 48))
        assert "values" not in answer["maps"][0]


def test_findings_against_and_model(asked):
    maps = asked.post("/attend", data={"picture": sent(asked)}).json()["maps"]
    assert [one["concept"] for one in maps] == ["red", "green"]
    assert maps[0]["probability"] > maps[1]["probability"]
    with_rival = {"picture": sent(asked), "concept": "red", "against": "green", "model": "again"}
    assert asked.post("/attend", data=with_rival).json()["model"] == "again"
    assert "blue" in refused(asked.post("/attend", data={**with_rival, "against": "blue"}), 400)


def test_phrases_are_grounded(asked):
    key = sent(asked)
    answer = asked.post("/ground", json={"picture": key, "phrase": ["a red thing", "green"], "most": 2, "figure": True})
    assert answer.status_code == 200, answer.text
    red, green = answer.json()["phrases"]
    assert [word["word"] for word in red["words"]] == ["red"]
    assert 1 <= len(red["regions"]) <= 2
    x0, y0, x1, y1 = red["regions"][0]["box"]
    assert x0 <= 72 <= x1
    assert y0 <= 18 <= y1
    assert green["phrase"] == "green"
    assert base64.b64decode(red["figure"]).startswith(b"\x89PNG")


def test_a_kept_picture_is_shown_small_as_jpeg(asked):
    key = sent(asked)
    answer = asked.get(f"/pictures/{key}", params={"side": 32})
    shown = Image.open(io.BytesIO(answer.content))
    assert (answer.headers["content-type"], shown.format, shown.size) == ("image/jpeg", "JPEG", (32, 16))
    assert {"private", "immutable"} <= set(answer.headers["cache-control"].split(", "))
    assert Image.open(io.BytesIO(asked.get(f"/pictures/{key}").content)).size == (96, 48)  # never larger
    assert "2048" in refused(asked.get(f"/pictures/{key}?side=2049"), 400)
    refused(asked.get(f"/pictures/{key}?side=-1"), 400)


def test_facts(asked):
    assert [one["name"] for one in asked.get("/models").json()["models"]] == ["colours", "again"]
    (red,) = asked.get("/labels?search=RED&model=again").json()["labels"]
    assert red == {"index": 0, "label": "red", "synonyms": []}
    assert [asked.get(path).status_code for path in ("/methods", "/health", "/nothing")] == [200, 200, 404]


WRONG = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text())["questions"] | {
    "too many concepts": ["50", {"concept": ["red"] * 51}],
    "a long concept": ["1000", {"concept": "red " * 300}],
    "too many drawings": ["10", {"concept": ["red"] * 11, "overlay": True}],
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_questions_are_told_in_one_line(asked, case):
    word, fields = WRONG[case]
    question = fields if case.startswith("without") else {"picture": sent(asked), **fields}
    answer = asked.post("/ground" if "phrase" in fields else "/attend", json=question)
    assert word in refused(answer, 404 if {"model", "picture"} & set(fields) else 400)


def test_what_is_no_image_is_told_in_one_line(asked):
    for content, word in {b"": "empty", b"text": "not an image", b"P6 9999 1000 255 ": "more than 1,000,000"}.items():
        assert word in refused(asked.post("/pictures", content=content), 422)


def test_an_error_that_nobody_foresaw_tells_nothing_of_the_machine(asked, service, monkeypatch):
    monkeypatch.setattr(service, "attend", None)
    assert "NoneType" not in refused(asked.post("/attend", data={"picture": sent(asked)}), 500)


def test_too_many_at_once_are_told_when_to_come_again(asked, service):
    key = sent(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.concurrency, "_most", 0)
        answer = asked.post("/attend", data={"picture": key})
        assert "try again" in refused(answer, 503)
        assert int(answer.headers["retry-after"]) >= 1
        refused(asked.post("/pictures", content=red_square()), 503)
    assert asked.post("/attend", data={"picture": key}).status_code == 200


def test_a_large_file_of_a_form_is_not_written_to_the_disk(monkeypatch):
    import tempfile

    def disk(*_, **__):
        raise AssertionError("an image was written to the disk")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", disk)
    content = encoded(Image.effect_noise((700, 2500), 90))
    assert len(content) > 1.5e6  # starlette's own limit is one megabyte
    with TestClient(create_api(colour_service()), "http://localhost") as client:
        assert client.post("/pictures", files={"image": content}).json()["width"] == 700


def test_the_description_is_complete_and_the_page_for_people_made_from_it(asked):
    document = asked.get("/openapi.json").json()
    for path in ("/attend", "/ground"):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        assert set(content) == {"multipart/form-data", "application/json"}
        for kind in content.values():
            assert all(field["description"] for field in kind["schema"]["properties"].values())
    assert {"400", "410", "413", "422", "503"} <= set(document["paths"]["/attend"]["post"]["responses"])
    references = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert references == set(document["components"]["schemas"])
    page = asked.get("/docs").text
    assert "<script" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert all(path in page for path in document["paths"])
    assert "curl -F image=@photo.jpg -F concept='cat' 'http://localhost/attend'" in html.unescape(page)
    assert asked.get("/docs").headers["content-type"].startswith("text/html")


def test_headers_about_another_address_are_left_out(asked):
    """But a proxy may say that it has TLS."""
    for name in ("Forwarded", "X-Forwarded-Host", "X-Forwarded-For", "X-Forwarded-Prefix", "X-Forwarded-Proto"):
        assert "evil" not in asked.get("/docs", headers={name: "https://evil.example"}).text
    assert "https://localhost/attend" in asked.get("/docs", headers={"X-Forwarded-Proto": "https"}).text


class TestNotes:
    def test_each_thread_has_its_own(self):
        """Two threads warn at the same time; each finds its own in its answer, every time."""
        found, meet = {}, threading.Barrier(2, timeout=10)

        def answer(name):
            for turn in range(5):
                with collected_notes() as notes:
                    meet.wait()
                    warnings.warn(f"of {name}", LostSignalWarning, stacklevel=1)
                    warnings.warn(f"of {name}", LostSignalWarning, stacklevel=1)
                    meet.wait()
                    found[name, turn] = list(notes)

        with warnings_as_notes(), ThreadPoolExecutor(2) as pool:
            list(pool.map(answer, "ab"))
        assert found == {(name, turn): [f"of {name}"] for name in "ab" for turn in range(5)}

    def test_a_warning_is_told_in_the_answer(self, asked, service, monkeypatch):
        attend = service.attend

        def faint(*arguments, **options):
            warnings.warn("hardly anything\narrived", LostSignalWarning, stacklevel=1)
            return attend(*arguments, **options)

        monkeypatch.setattr(service, "attend", faint)
        with warnings_as_notes():
            for _ in range(2):
                answer = asked.post("/attend", data={"picture": sent(asked), "concept": "red"})
                assert answer.json()["notes"] == ["hardly anything arrived"]

    def test_of_what_belongs_to_nobody_the_log_gets_the_place(self, caplog):
        with warnings_as_notes():
            warnings.warn("to all", UserWarning, stacklevel=1)
            warnings.warn("of excite itself", LostSignalWarning, stacklevel=1)
        foreign, own = (record.getMessage() for record in caplog.records)
        assert re.fullmatch(r"UserWarning: test_api.py:\d+", foreign)
        assert own == "LostSignalWarning: of excite itself"
