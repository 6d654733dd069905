"""Around everything that is served: who may ask, how much they may send, and what is never served."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse

from excite.web.errors import UNFORESEEN, RefusedError, problem
from excite.web.guard_body import Intake, Room, too_large
from excite.web.guard_events import EVENTS, checked_event
from excite.web.guard_paths import is_for_programs, is_served, is_small
from excite.web.http import Marked, Mouth, answer_at_once

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from excite.web.guard_token import Token
    from excite.web.limits import Limits

__all__ = ["LOOPBACK", "Guard"]

LOG = logging.getLogger("excite.web")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

QUERY, HEADERS = 8 * 1024, 16 * 1024  # bytes
FORM_AROUND = 64 * 1024  # bytes of a form beside its picture
LITTLE = 2 * 2**20  # bytes to the page
BODIES = 6  # so many of the largest are held at once

KEY_NEEDED = "a token is needed here: open the address that the server has printed, or send Authorization: Bearer TOKEN"


class Guard:
    """Lets through what is meant for the app, and answers the rest with one line.

    Args:
        app: all that is served.
        limits: how much may be sent.
        hosts: the names by which the server is asked; a page elsewhere could give its own name this machine's address.
        any_address: also let through a host that is a number: it is asked at all addresses of the machine.
        token: what everybody needs; None for nobody.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        hosts: Collection[str] = LOOPBACK,
        any_address: bool = False,
        token: Token | None = None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._hosts = {host.lower().rstrip(".") for host in (*LOOPBACK, *hosts)}
        self._any_address = any_address
        self._token = token
        self._closing = asyncio.Event()
        self._room = Room(BODIES * (limits.upload + FORM_AROUND))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, Marked(send).send)
        else:  # nothing here speaks over sockets
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})

    def close(self) -> None:
        """End what would go on for ever: the page listens for news as long as it is open."""
        self._closing.set()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await answer_at_once(refusal, receive, send)
            return
        intake = Intake(receive, self._most(scope["path"]), self._room, self._closing)
        mouth = Mouth(send, intake)
        try:
            instead = await self._passed_on(scope, intake, mouth)
        finally:
            intake.close()
        if intake.refusal is not None:
            instead = problem(*intake.refusal)
        if instead is not None and not mouth.begun:
            await answer_at_once(instead, None if intake.ended else receive, send)

    async def _passed_on(self, scope: Scope, intake: Intake, mouth: Mouth) -> Response | None:
        """Let the app answer; what is to be said instead if it does not."""
        try:
            heard = await checked_event(intake.receive) if scope["path"] == EVENTS else intake.receive
            await self._app(scope, heard, mouth.send)
        except ClientDisconnect:
            pass  # nobody is there to be told
        except RefusedError as error:
            return problem(error.status, str(error))
        except Exception:
            if intake.refusal is None:
                LOG.exception("an error that nobody foresaw, asked for %s %s", scope["method"], scope["path"])
                return problem(HTTPStatus.INTERNAL_SERVER_ERROR, UNFORESEEN)
        return None

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Why a request is not let through; looked at before any of its body is read."""
        return _too_much(scope, headers) or self._stranger(scope, headers) or self._unserved(scope, headers)

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._is_host(headers.get("host", "")):
            return problem(HTTPStatus.FORBIDDEN, "this server has another name: open the address that it has printed")
        if self._token is not None and (refusal := self._unknown(scope, headers, self._token)) is not None:
            return refusal
        if scope["method"] not in {"GET", "HEAD"} and not _is_own_page(headers):
            return problem(
                HTTPStatus.FORBIDDEN, "another page asks in this browser's name: open this server's own page"
            )
        return None

    def _unserved(self, scope: Scope, headers: Headers) -> Response | None:
        path = scope["path"]
        if not is_served(path):
            return problem(HTTPStatus.NOT_FOUND, f"there is nothing at {path[:200]!r}: see /docs")
        if int(headers.get("content-length", 0)) > self._most(path):
            return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large(self._most(path)))
        return None

    def _most(self, path: str) -> int:
        """How many bytes may be sent to a path."""
        return LITTLE if is_small(path) else self._limits.upload + FORM_AROUND

    def _is_host(self, given: str) -> bool:
        name = _name_of(given)
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any_address

    @staticmethod
    def _unknown(scope: Scope, headers: Headers, token: Token) -> Response | None:
        """What somebody without the token is told; whoever has it in the address is sent on with a cookie instead.

        The page that sends on is one of ours, so that the cookie is sent with the next request wherever the address
        was clicked.
        """
        path = scope["path"]
        if token.is_in(headers):
            return None
        rest = token.without(scope["query_string"].decode("latin-1"))
        if rest is not None and scope["method"] in {"GET", "HEAD"} and is_served(path):
            to = escape(quote(path) + (f"?{rest}" if rest else ""))
            page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={to}">'
            body = f'{page}<title>excite</title><a href="{to}">excite</a>'
            return HTMLResponse(body, headers={"Set-Cookie": token.cookie, "Cache-Control": "no-store"})
        if is_for_programs(path) or "text/html" not in headers.get("accept", ""):
            answer: Response = problem(HTTPStatus.UNAUTHORIZED, KEY_NEEDED)
        else:
            answer = HTMLResponse(_page("A token is needed", KEY_NEEDED), HTTPStatus.UNAUTHORIZED)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def _too_much(scope: Scope, headers: Headers) -> Response | None:
    if len(scope["query_string"]) > QUERY:
        return problem(HTTPStatus.REQUEST_URI_TOO_LONG, f"the address is too long: at most {QUERY} letters after ?")
    if sum(len(name) + len(value) for name, value in headers.raw) > HEADERS:
        return problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEADERS} bytes of headers: send fewer")
    return None


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_own_page(headers: Headers) -> bool:
    """Whether a question comes from a page of this server, or from a program, which sends no origin."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:
        return False


def _page(title: str, text: str) -> str:
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    style = (
        "<style>:root{color-scheme:light dark}body{font:1.1rem/1.5 system-ui;max-width:36rem;margin:4rem auto}</style>"
    )
    return (
        f"<!doctype html><html lang=en>{head}<title>{title}</title>{style}<h1>{title}</h1><p>{escape(text)}</p></html>"
    )
