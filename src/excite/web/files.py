"""What is served from files: filled-in templates, example images, and the pages of experiments with their own files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.responses import FileResponse
from jinja2 import Environment, Undefined

from excite import __version__
from excite.errors import visible
from excite.images import find_images, read_image
from excite.io.text import templates_of
from excite.readouts.notebook import data_address, jpeg
from excite.web.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def filled_in(template: str, **values: Any) -> str:
    """A page from its template. Texts stay texts: escaped, and with nothing that is not printable."""
    return _templates().get_template(template).render(version=__version__, **values)


@cache
def _templates() -> Environment:
    templates = templates_of("excite.web").overlay(undefined=Undefined)  # a schema has what applies to it
    templates.policies = {**templates.policies, "json.dumps_kwargs": {"sort_keys": False}}
    return templates


MOST_EXAMPLES, THUMBNAIL = 12, 128  # images, and pixels of each
PHOTOGRAPHS = {  # of scikit-image: those with free licences that need no download
    "chelsea.png": "a cat",
    "coffee.png": "a cup of coffee",
    "astronaut.png": "an astronaut",
    "rocket.jpg": "a rocket",
}


@dataclass(frozen=True)
class Example:
    """An image to try, with its name in links and its title."""

    name: str
    title: str
    path: Path

    def thumbnail(self) -> str:
        """The image, small, as a data: URL."""
        picture = read_image(self.path)
        picture.thumbnail((THUMBNAIL * 2, THUMBNAIL))
        return data_address("image/jpeg", jpeg(picture, quality=80))


def find_examples(folder: Path | None = None) -> Mapping[str, Example]:
    """The examples by unique, visible names: the images in a folder, or those of scikit-image if that is installed."""
    package = find_spec("skimage")  # not imported, which takes a second
    titles: dict[Path, str] = {}
    if folder is not None:
        titles = dict.fromkeys(find_images(str(folder))[:MOST_EXAMPLES], "")
    elif package is not None and package.origin is not None:
        titles = {Path(package.origin).parent / "data" / name: title for name, title in PHOTOGRAPHS.items()}
    found: dict[str, Example] = {}
    for path, title in titles.items():
        stem = name = visible(path.stem)
        number = 1
        while name in found:
            number += 1
            name = f"{stem} ({number})"
        found[name] = Example(name, title or name, path)
    return found


PAGES = ("pointing.html", "localization.html", "grounding.html")  # the names that `excite bench` gives them
KINDS = {".html", ".png", ".jpg", ".svg", ".csv", ".json", ".md", ".txt"}
DEPTH, MOST_REPORTS, FOLDERS = 3, 50, 2000
TITLE = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)

# a report holds no scripts and fetches nothing; whatever a file there holds, it can do neither
ALONE = (
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'self'"
)


@dataclass(frozen=True)
class Report:
    """A page of an experiment at /reports/NAME/FILE; the files beside it belong to it."""

    name: str
    title: str
    path: Path

    @property
    def url(self) -> str:
        """Where the page is served."""
        return f"/reports/{self.name}/{self.path.name}"


def find_reports(folder: Path) -> list[Report]:
    """The pages of experiments in a folder and a few folders deep, by their names."""
    found: list[Report] = []
    for seen, (place, folders, files) in enumerate(os.walk(folder)):
        inside = Path(place).relative_to(folder).parts
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if len(inside) < DEPTH else []
        for path in [Path(place, name) for name in PAGES if name in files]:
            readable = "-".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part).strip(".-") for part in (*inside, path.stem))
            found.append(Report(f"{len(found) + 1}-{readable.strip('-') or 'report'}"[:120], _title(path), path))
        if len(found) >= MOST_REPORTS or seen >= FOLDERS:
            break
    return found[:MOST_REPORTS]


def _title(path: Path) -> str:
    """The title of a page, or its file name."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            named = TITLE.search(file.read(4096))
    except OSError:
        named = None
    return visible(unescape(named[1]).strip() if named else path.stem)


def report_routes(reports: Sequence[Report]) -> APIRouter:
    """The routes of these reports."""
    folders = {report.name: report.path.parent for report in reports}
    router = APIRouter(include_in_schema=False)

    @router.get("/reports/{name}/{file:path}")
    def report(name: str, file: str) -> FileResponse:
        path = _file_of(folders.get(name), file)
        headers = {"Content-Security-Policy": ALONE, "Cache-Control": "no-cache"}
        kind = "text/plain" if path.suffix.lower() == ".md" else None  # the others are guessed
        return FileResponse(path, media_type=kind, headers=headers)

    return router


def _file_of(folder: Path | None, file: str) -> Path:
    """A file of a report, inside of its folder after all links are resolved."""
    nothing = RefusedError(404, "there is no such file of a report")
    if folder is None or Path(file).suffix.lower() not in KINDS:
        raise nothing
    try:
        path = (folder / file).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # for example a circle of links, or a zero in the name
        raise nothing from error
    if not path.is_relative_to(folder.resolve()) or not path.is_file() or path.suffix.lower() not in KINDS:
        raise nothing
    return path
