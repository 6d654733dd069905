"""The documentation: it builds without a warning, loads nothing from elsewhere, and says what the code does."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import excite

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LOADED = {  # what a browser fetches by itself, by tag
    "script": ["src"],
    "img": ["src", "srcset"],
    "source": ["src", "srcset"],
    "iframe": ["src"],
    "video": ["src", "poster"],
    "audio": ["src"],
    "embed": ["src"],
    "object": ["data"],
    "input": ["src"],
    "image": ["href", "xlink:href"],
    "use": ["href", "xlink:href"],
}
LINKED = {"canonical", "prev", "next", "alternate", "license", "author"}  # <link>s that are not fetched
KNOWN_IN_SCRIPTS = {  # addresses in the theme's scripts, and when they are fetched
    "https://unpkg.com/mermaid@11/dist/mermaid.min.js",  # by pages with a diagram: there is none, which is tested
    "https://unpkg.com/resize-observer-polyfill",  # by browsers without ResizeObserver, which all have since 2020
    "https://api.github.com/repos/",  # where mkdocs.yml names a repository: it does not
    "https://api.github.com/users/",
    "https://clipboardjs.com/",  # comments
    "https://bit.ly/2s3ChXG",
    "http://lunrjs.com",
    "http://tartarus.org/~martin/PorterStemmer/js.txt",
    "http://www.w3.org/",  # names of languages
}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The whole site, built once, warnings as errors (--quiet would hide them from --strict).

    What the tutorial's cells give is the matter of tests/test_tutorial.py: here they are shown and not run.
    """
    folder = tmp_path_factory.mktemp("docs") / "site"
    environment = {**os.environ, "EXCITE_DOCS_NOTEBOOK": "as-is", "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(  # noqa: S603 - our own command
        command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert built.returncode == 0, built.stderr
    return folder


class Loads(HTMLParser):
    """What a page makes a browser fetch, and the names of its places."""

    def __init__(self, text):
        super().__init__()
        self.found, self.places, self.classes = [], set(), set()
        self.feed(text)
        self.found += re.findall(r"@import\s+[\"']([^\"']+)|url\([\"']?([^\"')]+)", "".join(self.styles), re.IGNORECASE)
        self.found = ["".join(one) if isinstance(one, tuple) else one for one in self.found]

    def reset(self):
        super().reset()
        self.styles, self.inside = [], ""

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.inside = tag
        self.places.add(values.get("id"))
        self.classes |= set((values.get("class") or "").split())
        self.styles.append(values.get("style") or "")
        for name in LOADED.get(tag, []):
            if values.get(name):
                texts = values[name].split(",") if name == "srcset" else [values[name]]
                self.found += [text.split()[0] for text in texts if text.strip()]
        if tag == "link" and not set((values.get("rel") or "").split()) & LINKED:
            self.found.append(values.get("href") or "")
        if tag == "meta" and (values.get("http-equiv") or "").lower() == "refresh":
            self.found.append((values.get("content") or "").partition("url=")[2])

    def handle_data(self, data):
        if self.inside == "style":
            self.styles.append(data)


@pytest.fixture(scope="session")
def pages(site):
    return {path: Loads(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def outside(address):
    return bool(urlsplit(address).netloc)


def test_the_finder_of_addresses_finds_them():
    text = """<link rel="stylesheet" href="https://a/1.css"><link rel=canonical href="https://a/">
    <script src=//a/2.js></script><img srcset="https://a/3.png 2x, 4.png" src=5.png><p style="background: url('https://a/6.png')">
    <style>@import "https://a/7.css"; p { src: url(https://a/8.woff) }</style><a href="https://a/9">"""
    assert [one for one in Loads(text).found if outside(one)] == [
        "https://a/1.css",
        "//a/2.js",
        "https://a/3.png",
        "https://a/6.png",
        "https://a/7.css",
        "https://a/8.woff",
    ]


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert len(pages) > 20
    for path, page in pages.items():
        assert page.found, path
        assert [address for address in page.found if outside(address)] == [], path
        assert "mermaid" not in page.classes, path
    styles = list(site.rglob("*.css"))
    assert styles
    for path in styles:
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"@import[^;]*//[^;]*|url\([\"']?(?:https?:)?//[^)]*", text, re.IGNORECASE) == [], path


def test_the_scripts_of_the_theme_know_no_new_addresses(site):
    scripts = [path for path in site.rglob("*.js") if path.parent.name != "search" and "lunr" not in path.parts]
    assert len(scripts) >= 3
    for path in scripts:
        for address in re.findall(r"https?://[\w.-]+\.[\w./@~-]*", path.read_text(encoding="utf-8")):
            assert address.startswith(tuple(KNOWN_IN_SCRIPTS)), (path, address)


def test_what_pages_load_is_there(pages):
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses begin at the root of a server
            continue
        for address in page.found:
            parts = urlsplit(address)
            if parts.scheme != "data":
                assert (path.parent / unquote(parts.path)).is_file(), (path, address)


def test_every_public_name_is_in_the_reference(site, pages):
    places = set().union(*(page.places for path, page in pages.items() if path.parent.name == "reference"))
    assert [name for name in excite.__all__ if f"excite.{name}" not in places] == []
    text = "".join(path.read_text(encoding="utf-8") for path in site.glob("reference/*.html"))
    kinds = dict(re.findall(r'<h\d id="(excite\.\w+)"[^>]*>\s*<code class="[^"]*doc-symbol-(\w+)"></code>', text))
    assert (kinds["excite.mwp"], kinds["excite.ground"]) == ("function", "function")  # not their modules


def test_examples_of_docstrings_are_shown_as_code(site):
    text = (site / "reference" / "winning.html").read_text(encoding="utf-8")
    assert text.count("Examples:") >= 4
    assert "<blockquote>" not in text
    assert "doctest:" not in re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)


def test_it_can_be_searched_from_the_disk(site):
    """Without a server and without a network; the theme alone would fetch a script from elsewhere for it."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium here: apt install chromium")
    asked = []
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "reference" / "maps.html").as_uri())
        page.locator("input.md-search__input").focus()
        page.keyboard.type("fundamental matrix")
        page.locator(".md-search-result__link").first.wait_for(timeout=20_000)
        shown = page.inner_text(".md-search-result__list")
        browser.close()
    assert "absorbing" in shown.lower()
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def test_every_page_is_in_the_navigation():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def leaves(nav):
        for entry in nav:
            value = next(iter(entry.values())) if isinstance(entry, dict) else entry
            yield from [value] if isinstance(value, str) else leaves(value)

    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    made = {"overview.md", "changelog.md", "contributing.md", "maintaining.md", "tutorial.md"}
    named = list(leaves(config["nav"]))
    assert set(named) == written | made
    assert len(named) == len(set(named))
    assert {level for kind in config["validation"].values() for level in kind.values()} == {"warn"}  # strict: errors


def test_pictures_are_small_and_used():
    texts = "".join(path.read_text(encoding="utf-8") for path in (*DOCS.rglob("*.md"), ROOT / "README.md"))
    pictures = sorted((DOCS / "pictures").iterdir())
    assert [path.name for path in pictures if f"pictures/{path.name}" not in texts] == []
    theory = [path.stat().st_size for path in pictures if path.name.startswith("theory-")]
    assert len(theory) >= 5
    assert max(theory) < 150_000
    assert sum(theory) < 600_000


@pytest.fixture(scope="module")
def notebook_hook():
    spec = importlib.util.spec_from_file_location("site_notebook", ROOT / "dev" / "site_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_missing_kernel_is_one_clear_line(notebook_hook, tmp_path, monkeypatch):
    from mkdocs.exceptions import PluginError

    monkeypatch.delenv("EXCITE_DOCS_NOTEBOOK", raising=False)
    notebook = tmp_path / "tutorial.ipynb"
    notebook.write_text(
        '{"cells": [], "metadata": {"kernelspec": {"name": "nobody", "display_name": "x", "language": "x"}}, '
        '"nbformat": 4, "nbformat_minor": 5}'
    )
    with pytest.raises(PluginError, match=r"^there is no kernel 'nobody' to run tutorial.ipynb with: pip install"):
        notebook_hook._read(notebook)
