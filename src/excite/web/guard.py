"""Around everything that is served: who may ask, how much they may send, and what is never served."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import re
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import HTMLResponse

from excite.web.errors import UNFORESEEN, RefusedError, problem
from excite.web.http import Intake, Marked, Mouth, Room, answer_at_once, too_large

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from excite.web.uploads import Limits


# Which paths are served: a list of those that are needed, so that nothing else is served by mistake.
#
# gradio can do much more than this page needs. It serves files of the machine, takes files, fetches addresses for
# others and edits its own program; each of these has a path, new ones come with new versions, and none of them is
# here.

PROGRAMS = frozenset(
    "/attend /ground /pictures /models /methods /labels /health /openapi.json /docs".split()  # see ``api``
)
PICTURE = re.compile(r"/pictures/[0-9A-Za-z]{1,64}")
REPORT = re.compile(r"/reports/[\w.-]{1,200}/[\w .()-]{1,200}(/[\w .()-]{1,200}){0,3}")
PAGE = frozenset(
    (
        "/ /config /theme.css /favicon.ico /robots.txt "
        "/gradio_api/queue/join /gradio_api/queue/data /gradio_api/cancel /gradio_api/reset /gradio_api/app_id"
    ).split()
)
PARTS_OF_PAGE = re.compile(
    r"/(assets|static)/[\w./@+-]{1,300}"  # gradio's own scripts, styles and fonts
    r"|/gradio_api/heartbeat/\w{1,64}"  # whether the page is still open
)


def is_served(path: str) -> bool:
    """Whether there may be anything at a path.

    Example:
        >>> is_served("/attend"), is_served("/assets/index.js"), is_served("/gradio_api/file=/etc/passwd")
        (True, True, False)
    """
    if ".." in path or "//" in path or not path.isprintable():
        return False
    return is_for_programs(path) or path in PAGE or bool(PARTS_OF_PAGE.fullmatch(path) or REPORT.fullmatch(path))


def is_for_programs(path: str) -> bool:
    """Whether errors there are told in JSON.

    Example:
        >>> is_for_programs("/pictures/1a2b"), is_for_programs("/")
        (True, False)
    """
    return path in PROGRAMS or PICTURE.fullmatch(path) is not None


def is_small(path: str) -> bool:
    """Whether only little is ever sent there: images go elsewhere.

    Example:
        >>> is_small("/gradio_api/queue/join"), is_small("/pictures")
        (True, False)
    """
    return not is_for_programs(path)


# What the page tells gradio: values of controls, and never a file.
#
# Before a control sees its value, gradio copies each file that the value names into a folder of its own, or fetches
# it if it is an address. In an app that is mounted, as ours is, it does not ask whether the file was uploaded. So
# whoever can ask could have any file of the machine copied, or any address fetched. Nothing that names a file gets
# there.

EVENTS = "/gradio_api/queue/join"
FILE = "path"
"""What every form of a file has, that gradio has ever known."""


async def checked_event(receive: Receive) -> Receive:
    """Hear the whole event, look at it, and give what is to be heard instead.

    gradio hears what was looked at, written anew: two readers could understand the same bytes in two ways.

    Raises:
        RefusedError: it names a file, or is no JSON.
    """
    messages: list[Message] = [{"type": "http.request", "body": _checked(await _whole(receive)), "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _whole(receive: Receive) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = bool(message.get("more_body", False))
    return bytes(body)


def _checked(body: bytes) -> bytes:
    try:
        event = json.loads(body)
        written = json.dumps(event).encode()
    except (ValueError, RecursionError) as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "this is nothing that the page sends: load it again") from error
    waiting = [event]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if FILE in one:
                raise RefusedError(HTTPStatus.BAD_REQUEST, "no files are taken here: send an image to POST /pictures")
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return written


# Around everything that is served: who may ask, how much they may send, and what is never served.

LOG = logging.getLogger("excite.web")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

QUERY, HEADERS = 8 * 1024, 16 * 1024  # bytes
FORM_AROUND = 64 * 1024  # bytes of a form beside its image
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


# A secret that everybody needs who asks, when others than this machine's own user can reach the server.


class Token:
    """Knows whether somebody has the token.

    Args:
        secret: the token itself.

    Example:
        >>> token = Token("correct horse battery")
        >>> token.is_in({"authorization": "Bearer correct horse battery"}), token.is_in({})
        (True, False)
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # a browser sends a cookie to all ports of a host: neither the name nor the value tells the token to another
        self._value = hmac.new(self._secret, b"cookie", hashlib.sha256).hexdigest()
        self._name = "excite-" + hashlib.sha256(self._value.encode()).hexdigest()[:12]

    def is_in(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers has the token, as a program sends it or as a cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is(given.strip()):
            return True
        cookies = cookie_parser(headers.get("cookie", ""))  # whatever other servers of the host have put there
        kept = cookies.get(self._name, "")
        return hmac.compare_digest(kept.encode("utf-8", "replace"), self._value.encode())

    def without(self, query: str) -> str | None:
        """The query without the token, if it has it.

        Example:
            >>> Token("correct horse battery").without("model=words&token=correct+horse+battery")
            'model=words'
        """
        pairs = parse_qsl(query, keep_blank_values=True)
        if not any(name == "token" and self._is(given) for name, given in pairs):
            return None
        return urlencode([(name, value) for name, value in pairs if name != "token"])

    @property
    def cookie(self) -> str:
        """What a browser is told to keep until it is closed."""
        return f"{self._name}={self._value}; Path=/; HttpOnly; SameSite=Strict"

    def _is(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._secret)
