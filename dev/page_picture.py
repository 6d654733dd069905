"""Draws docs/pictures/page.jpg: the page of `excite serve` with a phrase, as a browser shows it (`make pictures`)."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from excite.io.files import atomic_write

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "page.jpg"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PHRASE = "a woman in an orange suit"
VIEW = {"width": 1280, "height": 860}


def photographed(url: str) -> Image.Image:
    """The page, once it shows the phrase."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport=VIEW)
        page.goto(f"{url}?example=astronaut&question={PHRASE}&show=point,regions")
        page.wait_for_selector(f"#stage canvas[data-shows='{PHRASE}']", timeout=60_000)
        page.wait_for_timeout(500)
        taken = page.screenshot()
        browser.close()
    return Image.open(io.BytesIO(taken)).convert("RGB")


def main() -> None:
    """Start the server, look at it, end it."""
    command = [sys.executable, "-m", "excite", "serve", "--port", "0", "--json", "--model", "words"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - ours
        assert server.stdout is not None  # noqa: S101 - it was asked for
        try:
            picture = photographed(json.loads(server.stdout.readline())["url"])
        finally:
            server.terminate()
    print(atomic_write(PICTURE, lambda file: picture.save(file, "JPEG", quality=85, optimize=True)))


if __name__ == "__main__":
    main()
