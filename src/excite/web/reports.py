"""The pages of experiments, served beside the page: only those, and only their own files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from html import unescape
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.responses import FileResponse

from excite.errors import visible
from excite.web.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGES = ("pointing.html", "localization.html", "grounding.html")
"""The file names of the pages of `excite bench`."""

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
DEPTH, MOST, FOLDERS = 3, 50, 2000
TITLE = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)

# a report holds no scripts and fetches nothing; whatever a file there holds, it can do neither
ALONE = (
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'self'"
)


@dataclass(frozen=True)
class Report:
    """A page of an experiment.

    Attributes:
        name: in its address, /reports/NAME/FILE.
        title: for people.
        path: the page itself; the files beside it belong to it.
    """

    name: str
    title: str
    path: Path

    @property
    def url(self) -> str:
        """Where the page is served."""
        return f"/reports/{self.name}/{self.path.name}"


def find_reports(folder: Path) -> list[Report]:
    """The pages of experiments in a folder and a few folders deep, by their names.

    Example:
        >>> find_reports(Path("no/such/folder"))
        []
    """
    found: list[Report] = []
    for seen, (place, folders, files) in enumerate(os.walk(folder)):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < DEPTH else []
        found += [_report(folder, Path(place) / name, len(found)) for name in PAGES if name in files]
        if len(found) >= MOST or seen >= FOLDERS:
            break
    return found[:MOST]


def report_routes(reports: Sequence[Report]) -> APIRouter:
    """The routes of these reports."""
    known = {report.name: report for report in reports}
    router = APIRouter(include_in_schema=False)

    @router.get("/reports/{name}/{file:path}")
    def report(name: str, file: str) -> FileResponse:
        path = _file_of(known.get(name), file)
        headers = {"Content-Security-Policy": ALONE, "Cache-Control": "no-cache"}
        return FileResponse(path, media_type=KINDS[path.suffix.lower()], headers=headers)

    return router


def _report(folder: Path, path: Path, number: int) -> Report:
    inside = path.parent.relative_to(folder).parts
    readable = "-".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part).strip(".-") for part in (*inside, path.stem))
    return Report(f"{number + 1}-{readable.strip('-') or 'report'}"[:120], _title(path), path)


def _title(path: Path) -> str:
    """The title of a page, or its file name."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            named = TITLE.search(file.read(4096))
    except OSError:
        named = None
    return visible(unescape(named[1]).strip() if named else path.stem)


def _file_of(report: Report | None, file: str) -> Path:
    """A file of a report, inside of its folder after all links are resolved."""
    nothing = RefusedError(HTTPStatus.NOT_FOUND, "there is no such file of a report")
    if report is None or "\0" in file or Path(file).suffix.lower() not in KINDS:
        raise nothing
    folder = report.path.parent.resolve()
    try:
        path = (folder / file).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # for example a circle of links
        raise nothing from error
    if not path.is_relative_to(folder) or not path.is_file() or path.suffix.lower() not in KINDS:
        raise nothing
    return path
