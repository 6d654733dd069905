"""A real Chromium for the tests of the page."""

import base64
import shutil
from contextlib import contextmanager

import pytest

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 30_000  # milliseconds; the machine may be busy with other tests
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --disable-domain-reliability"
).split()
FILES = """async ([content, name, kind, selector]) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type: kind }));
  const place = document.querySelector(selector);
  for (const event of ["dragenter", "dragover", "drop"]) {
    place.dispatchEvent(new DragEvent(event, { dataTransfer: carried, bubbles: true, cancelable: true }));
  }
}"""


@contextmanager
def chromium():
    """The browser; without one the test is skipped."""
    api = pytest.importorskip("playwright.sync_api", reason="the page is driven with playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium to look at the page with: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Visitor:
    """A page in the browser, with what was asked for and what went wrong in it."""

    def __init__(self, browser, url, viewport, **more):
        self.requests, self.faults, self.dialogs = [], [], []
        still = {"reduced_motion": "reduce"}  # or the browser draws all the time while it waits
        self.page = browser.new_context(viewport=viewport, **still, **more).new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.goto(url)
        self.page.wait_for_selector(".drop")

    def drop(self, content, name="photo.jpg", kind="image/jpeg"):
        self.page.evaluate(FILES, [base64.b64encode(content).decode(), name, kind, ".drop"])

    def shows(self, title):
        """Wait until the stage shows this."""
        self.wait_for("title => document.querySelector('#stage canvas')?.dataset.shows === title", title)

    def drawn(self):
        """What is on the stage, pixel by pixel."""
        return self.page.evaluate("document.querySelector('#stage canvas').toDataURL()")

    def redrawn(self, *before):
        """Wait until something else is on the stage."""
        changed = "before => !before.includes(document.querySelector('#stage canvas').toDataURL())"
        self.wait_for(changed, before)
        return self.drawn()

    def wait_for(self, condition, arg=None):
        """Look now and then, not at each frame, for which the browser would draw all the time."""
        self.page.wait_for_function(condition, arg=arg, polling=100)

    def says(self, selector, text):
        said = "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)"
        self.wait_for(said, [selector, text])

    def ask(self, text, field="question"):
        entry = self.page.locator(f"#{field} textarea, #{field} input").first
        entry.fill(text)
        entry.press("Enter")

    def findings(self):
        return [one.get_attribute("data-concept") for one in self.page.locator("#findings button").all()]

    def download(self, kind, folder):
        with self.page.expect_download() as download:
            self.page.click(f"[data-file={kind}]")
        return download.value.path().rename(folder / download.value.suggested_filename)
