"""The page as a person meets it: a real server, a real browser, real images."""

import io
import json
from itertools import product
from urllib.parse import urlsplit

import numpy as np
import pytest
from browser import NARROW, WIDE, Visitor
from PIL import Image
from processes import Forked
from servers import encoded, started

import excite

data = pytest.importorskip("skimage.data")

REPORT = """<!doctype html><html lang=en><title>The Pointing Game</title><h1>91.3</h1>
<script>document.querySelector("h1").textContent = "ran"</script>"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    report = folder / "excite-out" / "pointing"
    report.mkdir(parents=True)
    (report / "pointing.html").write_text(REPORT)
    with started(Forked.COMMAND, "serve", "--port", "0", "--json", folder=folder) as server:
        yield server.url


@pytest.fixture
def visit(browser, url):
    """Open the page, at first with an example; in the end nothing has failed, or was asked of anybody else."""
    visitors = []

    def visit(viewport=WIDE, query="", **more):
        visitors.append(Visitor(browser, url + query, viewport, **more))
        if not query:
            visitors[-1].shows("cat")
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.page.context.close()
        asked = [address for address in visitor.requests if not address.startswith(("data:", "blob:"))]
        assert {urlsplit(address).hostname for address in asked} == {"127.0.0.1"}
        assert (visitor.faults, visitor.dialogs) == ([], [])


FIRST = "dining table"  # what the classifier is surest of


@pytest.fixture(scope="module")
def photograph():
    return encoded(Image.fromarray(data.coffee()), "JPEG", quality=90)


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_from_a_dropped_photograph_to_its_files(visit, photograph, viewport, tmp_path):
    visitor = visit(viewport)
    visitor.drop(photograph, "coffee.jpg")
    visitor.says(".drop-told", "coffee.jpg, 600 \u00d7 400")
    visitor.shows(FIRST)
    found = visitor.findings()
    assert found[0] == FIRST
    assert len(found) == 8

    before = visitor.drawn()
    other = visitor.page.locator(f"#findings button[data-concept='{found[1]}']")
    other.hover()
    visitor.shows(found[1])  # at a glance
    visitor.page.mouse.move(0, 0)
    visitor.shows(FIRST)
    other.click()
    visitor.page.mouse.move(0, 0)
    visitor.page.evaluate("document.activeElement.blur()")  # neither pointed at nor focused: it was chosen
    visitor.page.wait_for_selector(f"#findings button[data-concept='{found[1]}'][aria-pressed=true]")
    visitor.shows(found[1])
    chosen = visitor.drawn()
    assert chosen != before

    visitor.page.locator("#layer input[type=range]").focus()
    for _ in range(2):
        visitor.page.keyboard.press("ArrowLeft")
    visitor.says(".stage-about", "layer blocks.12")
    visitor.wait_for("() => document.querySelector('#layer').textContent.includes('Layer blocks.12')")
    visitor.redrawn(chosen)
    assert not visitor.page.locator("#layer input[type=number], #layer .reset-button").first.is_visible()

    visitor.ask("the spoon on the right")
    visitor.shows("the spoon on the right")
    assert visitor.page.locator(".stage-words button").all_inner_texts() == ["spoon"]
    assert len(visitor.page.locator(".stage-regions button").all()) == 5
    assert "right" in visitor.page.inner_text(".stage-notes")
    told = json.loads(visitor.download("json", tmp_path).read_text())
    assert [word["word"] for word in told["words"]] == ["spoon"]

    visitor.ask("spoon")
    visitor.shows("spoon")
    visitor.ask("cup", "against")
    visitor.shows("spoon, not cup")
    for kind in ("overlay", "map"):
        with Image.open(visitor.download(kind, tmp_path)) as picture:
            assert picture.size == (600, 400)
    loaded = excite.AttentionMap.load(visitor.download("json", tmp_path))
    assert (loaded.concept, loaded.layer, loaded.image_size) == ("spoon, not cup", "blocks.12", (600, 400))
    np.testing.assert_allclose(np.load(visitor.download("npy", tmp_path)), loaded.numpy(), rtol=1e-4, atol=1e-9)
    with Image.open(io.BytesIO(photograph)) as picture:  # the library says the same
        (made,) = excite.attend(excite.load("words"), picture, "spoon", against="cup", layer="blocks.12")
    np.testing.assert_allclose(loaded.numpy(), made.numpy(), rtol=1e-4, atol=1e-7)
    across = visitor.page.evaluate("document.documentElement.scrollWidth")
    assert across <= viewport["width"]  # nothing sticks out


def test_opacity_and_colours_follow_without_asking(visit):
    visitor = visit()
    seen = [visitor.drawn()]
    asked = [address for address in visitor.requests if address.startswith("http")]
    visitor.page.locator("#opacity input[type=range]").focus()
    visitor.page.keyboard.press("End")
    seen.append(visitor.redrawn(*seen))
    visitor.page.select_option("#colours select", "ember")
    seen.append(visitor.redrawn(*seen))
    visitor.page.get_by_label("box").click()
    visitor.redrawn(*seen)
    assert [address for address in visitor.requests if address.startswith("http")] == asked


def test_with_the_keyboard_alone(visit):
    visitor = visit()
    visitor.page.locator("[data-example=coffee]").focus()
    visitor.page.keyboard.press("Enter")
    visitor.shows(FIRST)
    visitor.page.locator("#findings button").first.focus()
    visitor.page.keyboard.press("Tab")
    second = visitor.findings()[1]
    visitor.shows(second)
    visitor.page.keyboard.press("Enter")
    visitor.says(".stage-title", second)
    assert visitor.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_a_link_brings_the_settings_back(visit, photograph):
    visitor = visit()
    visitor.drop(photograph)
    visitor.shows(FIRST)
    visitor.ask("spoon")
    visitor.shows("spoon")
    seen = [visitor.drawn()]
    visitor.page.select_option("#method select", "mwp")
    visitor.says(".stage-about", "· mwp")
    seen.append(visitor.redrawn(*seen))
    for mark in ("point", "box"):
        visitor.page.get_by_label(mark).click()
        seen.append(visitor.redrawn(*seen))
    visitor.page.get_by_label("regions").click()  # a word has none
    visitor.page.click("#share")
    visitor.wait_for("() => location.search.includes('question=spoon')")
    other = visit(query="?" + visitor.page.url.split("?")[1])
    other.shows("spoon")
    other.says(".stage-about", "· mwp")
    assert other.redrawn(*seen[:-1]) == seen[-1]
    assert other.page.input_value("#question textarea, #question input") == "spoon"
    assert not any(other.page.get_by_label(mark).is_checked() for mark in ("point", "box", "regions"))


def test_what_was_dropped_last_is_shown(visit, photograph):
    """Also if an earlier image takes longer to be sent."""
    visitor, held = visit(), []
    visitor.page.route("**/pictures", lambda route: route.continue_() if held else held.append(route))
    visitor.drop(photograph, "slow.jpg")
    visitor.says(".drop-told", "Sending")
    while not held:
        visitor.page.wait_for_timeout(20)
    visitor.drop(photograph, "quick.jpg")
    visitor.shows(FIRST)
    with visitor.page.expect_response("**/pictures"):
        held[0].continue_()
    visitor.page.wait_for_timeout(100)
    assert visitor.page.inner_text(".drop-told") == "quick.jpg, 600 \u00d7 400"


def test_what_cannot_be_answered_is_told(visit):
    visitor = visit()
    visitor.page.route("**/page/look", lambda route: route.fulfill(status=503, body='{"detail": "full"}'))
    visitor.ask("dog")
    visitor.says(".stage-error", "The server gave no answer")
    assert visitor.page.locator(".stage.is-busy").count() == 0
    visitor.page.unroute("**/page/look")
    visitor.ask("dog")
    visitor.shows("dog")
    assert visitor.page.inner_text(".stage-error") == ""
    visitor.drop(b"<svg onload='alert(1)'>", "evil.svg", "image/svg+xml")
    visitor.says(".drop-told", "This image was not taken: the image is not an image excite can read")
    visitor.faults.clear()  # the browser notes that there was no answer, and that the server has refused
    visitor.ask("<img src=x onerror=zork(1)> flurb")
    visitor.says(".stage-error", "No label is called")
    assert visitor.page.locator("#stage img").count() == 0
    visitor.ask("cat")
    visitor.shows("cat")
    gone = visit(query="?picture=0123&question=cat")
    gone.says(".stage-error", "This image is no longer kept here: send it again.")


def test_maps_side_by_side_and_a_report_that_runs_nothing(visit):
    visitor = visit()
    visitor.page.get_by_role("tab", name="Side by side").click()
    visitor.page.wait_for_selector(".grid canvas[data-shows]")
    visitor.page.locator("#concepts textarea, #concepts input").first.fill("cat, dog")
    visitor.page.click("#compare")
    visitor.page.wait_for_selector(".grid canvas[data-shows=dog]")
    captions = [caption.split() for caption in visitor.page.locator(".grid figcaption").all_inner_texts()]
    assert [(words[0], words[-1]) for words in captions] == [*product(("cat", "dog"), ("mwp", "c-mwp"))]
    visitor.page.get_by_role("tab", name="Reports").click()
    assert visitor.page.frame_locator("iframe.report").locator("h1").inner_text() == "91.3"
    visitor.faults.clear()  # the browser notes that a script was not run


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_for_people_with_disabilities(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    visitor = visit(color_scheme=scheme)
    visitor.ask("a cat on the left")
    visitor.shows("a cat on the left")
    for tab in ("Look", "Side by side", "Reports"):
        visitor.page.get_by_role("tab", name=tab).click()
        if tab == "Side by side":
            visitor.page.wait_for_selector(".grid canvas[data-shows]")  # shown without being asked
        for viewport in (WIDE, NARROW):
            visitor.page.set_viewport_size(viewport)
            found = axe.run(visitor.page).response["violations"]
            assert [one for one in found if one["impact"] in {"serious", "critical"}] == [], (tab, viewport)
    visitor.faults.clear()  # scripts of the report are not run, and the browser says so
