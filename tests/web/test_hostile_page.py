"""The page of a classifier whose labels, layers and name are hostile, with examples and reports called likewise."""

import html
import json
import re

import pytest
from browser import WIDE, Visitor
from hostile_names import HOSTILE, UNUSUAL
from servers import red_square, started

SCRIPT = """
from hostile_names import MODEL, hostile_card
from excite.cli.app import main
from excite.models import MODELS
MODELS[MODEL] = hostile_card()
main(["serve", "--model", MODEL, "--port", "0", "--json", "--examples", "examples", "--reports", "reports"])
"""
EXAMPLES = [
    f"{name}{UNUSUAL.replace('/', '')}" for name in ("one", "<script>alert(1)<script>", "odd\udcff", "${alert(1)}")
]
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    report = folder / "reports" / f"out{UNUSUAL}"
    for made in (folder / "examples", report):
        made.mkdir(parents=True)
    for name in EXAMPLES:
        (folder / "examples" / f"{name}.png").write_bytes(red_square())
    title = html.escape(f"{HOSTILE['script']} {HOSTILE['direction']}")
    (report / "pointing.html").write_text(f"<!doctype html><title>{title}</title><h1>91.3</h1>")
    with started(SCRIPT, folder=folder) as server:
        yield server


@pytest.mark.parametrize("path", ["/", "/page/layers?model=", "/docs", "/models", "/labels", "/openapi.json"])
def test_nothing_raw_is_sent(server, path):
    status, headers, content = server.ask("GET", path)
    text = content.decode()
    assert (status, RAW.search(text)) == (200, None)
    if "html" in headers["Content-Type"]:
        assert not any(hostile in text for hostile in ("<script>alert", "onerror=alert(1)>"))


def test_answers_for_programs_are_exact(server):
    labels = json.loads(server.ask("GET", "/labels")[2])["labels"]
    assert [label["label"] for label in labels] == list(HOSTILE.values())
    key = json.loads(server.ask("POST", "/pictures", red_square())[2])["picture"]
    asked = [text for name, text in HOSTILE.items() if name != "long"]  # which is longer than a concept may be
    body = json.dumps({"concept": asked, "picture": key}).encode()
    status, _, content = server.ask("POST", "/attend", body, {"Content-Type": "application/json"})
    assert status == 200, content
    assert [one["concept"] for one in json.loads(content)["maps"]] == asked
    assert content.isascii()


def test_the_page_shows_text(server, browser):
    visitor = Visitor(browser, server.url, WIDE)
    page = visitor.page
    visitor.drop(red_square(), name=f"red{HOSTILE['direction']}<b>.png")
    visitor.says(".drop-told", r"red\u202egpj.exe\u2066<b>.png, 96 ")
    page.wait_for_selector("#findings button")
    visitor.wait_for("() => !document.querySelector('.stage.is-busy')")
    seen = visitor.findings()
    for number, name in enumerate(seen):
        if len(name) < 900 and "udcff" not in name:  # neither what is too long nor what cannot be sent
            page.locator("#findings button").nth(number).click()
            visitor.shows(name)
    for tab in ("Side by side", "Reports", "Look"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(300)
    assert not RAW.search(page.content())
    assert page.locator("#findings script, #findings img, .stage-caption *[onerror]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert (visitor.faults, visitor.dialogs) == ([], [])
    page.context.close()
    shown = {text for text in HOSTILE.values() if text.isprintable()} | {r"\x1b[31mred\x1b[0m", r"lf\n!BREAK"}
    assert len(shown & set(seen)) >= 4
