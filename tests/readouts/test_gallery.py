"""The page of thumbnails: its text stays text, it holds all it needs, and it sorts and filters in a browser."""

import os
import sys
import tracemalloc
from pathlib import Path

import pytest
from hostile_names import HOSTILE
from pages import Page
from PIL import Image

from excite.errors import ExciteError
from excite.readouts.gallery import Card, file_link, gallery, gallery_chunks, write_gallery

sys.path.append(str(Path(__file__).parents[1] / "web"))
from browser import NARROW, chromium

CARDS = [("b.jpg", {"dog": 0.9, "cat": 0.2}), ("a10.jpg", {"cat": 0.8}), ("a9.jpg", {}), ("c.jpg", {"ant": 0.3})]


def card(name, facts, link=None):
    return Card(Image.new("RGB", (640, 480), "teal"), name, link, facts)


def test_texts_stay_texts_and_nothing_comes_from_elsewhere():
    names = [text for text in HOSTILE.values() if text.isprintable()] + [os.fsdecode(b"odd\xff")]
    page = Page(gallery("<i>", [card(text, {text: 0.5}, file_link(Path(text), Path("x"))) for text in names]))
    tags = [tag for tag, _ in page.tags]
    assert (tags.count("script"), tags.count("img"), "i" in tags) == (1, len(names), False)
    addresses = [about[key] for _, about in page.tags for key in ("src", "href") if key in about]
    assert all(one.startswith("data:image/jpeg;base64,") or ":" not in one for one in addresses)
    with pytest.raises(ExciteError, match="no address of a page or a file"):
        card("a", {}, "javascript:alert(1)")


def test_memory_does_not_grow_with_the_number_of_cards():
    tracemalloc.start()
    size = sum(map(len, gallery_chunks("many", (card(f"{k}.jpg", {"dog": 0.5}) for k in range(400)))))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 400_000 > most / 5


def test_only_own_pages_are_replaced(tmp_path):
    path = tmp_path / "index.html"
    for count in (1, 2):
        write_gallery(path, "mine", [card("a.jpg", {})] * count)
        assert path.read_text().count("<img") == count
    path.write_text("<html>a page of somebody else</html>")
    with pytest.raises(ExciteError, match="not written by excite"):
        write_gallery(path, "mine", [])
    assert "somebody" in path.read_text()


def test_it_sorts_and_filters_with_the_keyboard(tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    path = write_gallery(tmp_path / "index.html", "Photos", [card(*each) for each in CARDS])
    with chromium() as browser:
        page = browser.new_page(viewport=NARROW)
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text))
        page.goto(path.as_uri())
        found = {}
        for order in ("", "name", "concept", "probability", "of cat"):
            page.select_option("#order", order)
            found[order] = page.locator("#cards > li .name").all_text_contents()
        page.keyboard.press("/")
        page.keyboard.type("CAT jpg")
        shown = page.locator("#cards > li:not([hidden]) .name").all_text_contents()
        assert page.inner_text("#count") == "2 of 4"
        page.keyboard.press("Escape")
        assert page.inner_text("#count") == "4 of 4"
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert axe.run(page).response["violations"] == []
    assert found == {
        "": ["b.jpg", "a10.jpg", "a9.jpg", "c.jpg"],
        "name": ["a9.jpg", "a10.jpg", "b.jpg", "c.jpg"],
        "concept": ["c.jpg", "a10.jpg", "b.jpg", "a9.jpg"],
        "probability": ["b.jpg", "a10.jpg", "c.jpg", "a9.jpg"],
        "of cat": ["a10.jpg", "b.jpg", "a9.jpg", "c.jpg"],
    }
    assert (shown, faults) == (["a10.jpg", "b.jpg"], [])
