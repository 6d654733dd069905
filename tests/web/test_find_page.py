"""Photos that are searched: over HTTP, and on the page."""

import pytest
from annotated import picture, scenes
from browser import NARROW, WIDE, Visitor
from PIL import Image
from processes import Forked
from servers import colour_service, refused, started
from starlette.testclient import TestClient

from excite.search import PhotoIndex
from excite.web.api import create_api
from excite.web.page import EvidenceQuestion, LookQuestion, PageAnswers, page_html, page_routes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "photos"
    for name, squares in scenes(6):
        picture(folder / "inside" / f"{name}.png", squares)
    return folder


@pytest.fixture(scope="module")
def service(folder):
    service = colour_service()
    service.photos = PhotoIndex(folder, service.served_model().classifier, file=folder.parent / "index.sqlite")
    service.photos.update()
    return service


@pytest.fixture(scope="module")
def asked(service):
    app = create_api(service)
    app.include_router(page_routes(service, [], {}))
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        yield client


def test_photos_are_found_by_words_and_shown_by_number(asked, service):
    answer = asked.get("/find", params={"words": "red -green", "most": 2}).json()
    assert (answer["concepts"], answer["without"], answer["shows"], answer["photos"]) == (["red"], ["green"], "red", 6)
    first, second = answer["matches"]
    assert first["photo"] == "inside/000001.png"
    assert first["probability"] >= second["probability"]
    shown = asked.get(f"/find/{first['number']}")
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/jpeg")
    assert asked.get(f"/find/{first['number']}", params={"side": 20}).content  # from the thumbnail that is kept
    assert "/find" in asked.get("/openapi.json").json()["paths"]
    assert 'id="tab-find"' in asked.get("/").text


def test_what_cannot_be_found(asked):
    assert "No label is called 'blue'" in refused(asked.get("/find", params={"words": "blue"}), 400)
    assert "no photo 99" in refused(asked.get("/find/99"), 422)
    assert refused(asked.get("/find/-1"), 422)
    for number in ("..%2f..%2fetc%2fpasswd", "1.5", "inside/000001.png", "9" * 30):
        assert asked.get(f"/find/{number}").status_code in {400, 404, 422}
    assert refused(asked.get("/find", params={"words": "a" * 2000}), 400)
    assert refused(asked.post("/page/evidence", json={"photo": 99, "words": "red"}), 422)


def test_without_photos_there_is_nothing_to_find():
    service = colour_service()
    with TestClient(create_api(service), "http://localhost", raise_server_exceptions=False) as client:
        assert client.get("/find", params={"words": "red"}).status_code == 404
        assert "/find" not in client.get("/openapi.json").json()["paths"]
    assert 'id="tab-find"' not in page_html(service, [], {})
    answers = PageAnswers(service, {})
    assert "No photos can be searched" in answers.look(LookQuestion(model="colours", photo=1))["error"]


def test_a_photo_that_was_found_is_looked_at(service):
    answers = PageAnswers(service, {})
    (match,) = service.photos.query("green", most=1).matches
    view = answers.evidence(EvidenceQuestion(photo=match.number, words="green -red"))
    assert view["strength"].startswith("data:image/png")
    assert len(view["point"]) == 2
    looked = answers.look(LookQuestion(model="colours", photo=match.number, question="green"))
    assert looked["error"] is None
    assert looked["view"]["title"] == "green"
    assert looked["picture"]["width"] == 48


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    data = pytest.importorskip("skimage.data")
    folder = tmp_path_factory.mktemp("photos")
    for name in ("chelsea", "coffee", "astronaut", "rocket"):
        Image.fromarray(getattr(data, name)()).reduce(2).save(folder / f"{name}.jpg")
    options = ("--port", "0", "--json", "--photos", "photos")
    with started(Forked.COMMAND, "serve", *options, folder=folder.rename(folder.with_name("photos")).parent) as server:
        yield server.url


@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (NARROW, "dark")], ids=["wide", "narrow"])
def test_on_the_page(browser, url, viewport, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    visitor = Visitor(browser, url, viewport, color_scheme=scheme)
    page = visitor.page
    visitor.shows("cat")
    page.focus("#tab-look")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.fill("#words input", "zork")
    page.keyboard.press("Enter")
    page.wait_for_selector(".find-told.is-fault")
    page.fill("#words input", "a cat -dog")
    page.keyboard.press("Enter")
    page.wait_for_selector(".matches li:nth-child(4) canvas")
    assert "chelsea.jpg" in page.text_content(".matches li:first-child")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    found = axe.run(page).response["violations"]
    assert [one for one in found if one["impact"] in {"serious", "critical"}] == []
    page.focus(".matches li:first-child button")
    page.keyboard.press("Enter")
    visitor.shows("a cat")
    assert "chelsea.jpg" in page.text_content(".drop-told")
    page.click("#share")
    assert "photo=" in page.input_value("#address input")
    page.goto(page.input_value("#address input"))
    visitor.shows("a cat")
    assert visitor.faults == ["Failed to load resource: the server responded with a status of 400 (Bad Request)"]
    page.context.close()
