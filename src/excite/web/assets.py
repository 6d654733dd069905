"""The files of the page: templates that are filled in, and the few files that a browser fetches as they are."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse
from jinja2 import Environment, Undefined

from excite import __version__
from excite.io.text import templates_of

FOLDER = Path(__file__).parent / "assets"
STATIC = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}


def filled_in(template: str, **values: Any) -> str:
    """A page from its template. Texts stay texts: escaped, and with nothing that is not printable.

    Example:
        >>> "&lt;b&gt;" in filled_in("notice.html", title="<b>", text="")
        True
    """
    return _templates().get_template(template).render(version=__version__, **values)


@cache
def _templates() -> Environment:
    templates = templates_of("excite.web", FOLDER.name).overlay(undefined=Undefined)  # a schema has what applies to it
    templates.policies = {**templates.policies, "json.dumps_kwargs": {"sort_keys": False}}
    return templates


def static_routes() -> APIRouter:
    """The script, the style and the icon: these files, and no others of their folder."""
    router = APIRouter(include_in_schema=False)
    for name, kind in STATIC.items():
        router.add_api_route(f"/static/{name}", _sender(FOLDER / name, kind), methods=["GET", "HEAD"])
    return router


def _sender(path: Path, kind: str) -> Any:
    async def send() -> FileResponse:
        return FileResponse(path, media_type=kind, headers={"Cache-Control": "max-age=86400"})

    return send
