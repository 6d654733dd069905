"""The guard around everything that is served: access by host, origin and token, limits, and a list of allowed paths.

gradio can do much more than this page needs: it serves and takes files, fetches addresses and edits its own program.
Each of these has a path, new ones come with new versions, and none of them is on the list.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import re
from functools import partial
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import HTMLResponse

from excite.web.errors import UNEXPECTED, RefusedError, error_response, plain_error
from excite.web.http import BodyBudget, RefusableSend, RequestBody, respond_and_drain, too_large, with_security_headers
from excite.web.log import LOG

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from excite.web.uploads import Limits


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
    """Whether a path is on the list.

    Example:
        >>> is_served("/attend"), is_served("/assets/index.js"), is_served("/gradio_api/file=/etc/passwd")
        (True, True, False)
    """
    if ".." in path or "//" in path or not path.isprintable():
        return False
    return is_for_programs(path) or path in PAGE or bool(PARTS_OF_PAGE.fullmatch(path) or REPORT.fullmatch(path))


def is_for_programs(path: str) -> bool:
    """Whether a path belongs to the HTTP interface, whose errors are JSON and whose requests hold images.

    Example:
        >>> is_for_programs("/pictures/1a2b"), is_for_programs("/")
        (True, False)
    """
    return path in PROGRAMS or PICTURE.fullmatch(path) is not None


# Events of the page: values of controls, and never a file.
#
# Before a control gets its value, gradio copies each file that the value names into a folder of its own, or fetches it
# if it is an address. In a mounted app, as here, it does not check whether the file was uploaded, so that a request
# could have any file of the machine copied, or any address fetched. So events that name a file are refused.

EVENTS = "/gradio_api/queue/join"
FILE = "path"
"""The field that every version of gradio has in a file."""


async def checked_event(receive: Receive) -> Receive:
    """Read and check a whole event; returns a ``receive`` that gives it again.

    gradio gets the checked value, serialised anew: two parsers could understand the same bytes in two ways.

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


HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d{0,5})?")  # an address of IPv6, or a name; and a port
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

QUERY, HEADERS = 8 * 1024, 16 * 1024  # bytes
FORM_AROUND = 64 * 1024  # bytes of a form beside its image
LITTLE = 2 * 2**20  # bytes of an event of the page
BODIES = 6  # the largest bodies that are held at once

KEY_NEEDED = "a token is needed here: open the address that the server has printed, or send Authorization: Bearer TOKEN"


class Guard:
    """Passes allowed requests to the app, and answers the others with one line.

    Args:
        app: everything that is served.
        limits: the size of requests.
        hosts: the allowed names in the Host header: another site could point its own name to this machine's address.
        any_address: also allow an IP address as Host: the server listens at all addresses of the machine.
        token: needed for every request; None if it is not.
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
        self._budget = BodyBudget(BODIES * (limits.upload + FORM_AROUND))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, with_security_headers(send))
        else:  # nothing here uses web sockets
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})

    def close(self) -> None:
        """End connections that would stay: an open page waits for events."""
        self._closing.set()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "headers": [one for one in scope["headers"] if not _is_forwarded(*one)]}
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await respond_and_drain(refusal, receive, send)
            return
        body = RequestBody(receive, self._most(scope["path"]), self._budget, self._closing)
        guarded = RefusableSend(send, body, partial(self._error, scope))
        try:
            instead = await self._run_app(scope, body, guarded)
        finally:
            body.close()
        if body.refusal is not None:
            instead = error_response(*body.refusal)
        if instead is not None and not guarded.begun:
            await respond_and_drain(instead, None if body.ended else receive, send)

    async def _run_app(self, scope: Scope, body: RequestBody, guarded: RefusableSend) -> Response | None:
        """Run the app; the response to send instead if it fails."""
        try:
            receive = await checked_event(body.receive) if scope["path"] == EVENTS else body.receive
            await self._app(scope, receive, guarded.send)
        except ClientDisconnect:
            pass
        except RefusedError as error:
            return error_response(error.status, str(error))
        except Exception:  # noqa: BLE001 - logged
            if body.refusal is None:
                LOG.exception("unexpected error")
                return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, UNEXPECTED)
        return None

    @staticmethod
    def _error(scope: Scope, status: int) -> Response:
        """In place of an error that gradio has worded."""
        if status == HTTPStatus.NOT_FOUND and is_for_programs(scope["path"]):
            status = HTTPStatus.METHOD_NOT_ALLOWED  # the path is there, but not for this method
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            status = HTTPStatus.BAD_REQUEST
        return plain_error(status, scope["method"], scope["path"])

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The error of a request that is refused before its body is read."""
        path, refusal = scope["path"], None
        if len(scope["query_string"]) > QUERY:
            refusal = error_response(414, f"the address is too long: at most {QUERY} letters after ?")
        elif sum(len(name) + len(value) for name, value in headers.raw) > HEADERS:
            refusal = error_response(431, f"more than {HEADERS} bytes of headers: send fewer")
        elif not self._is_host(headers.get("host", "")):
            refusal = error_response(403, "this server has another name: open the address that it has printed")
        elif self._token is not None and (answer := self._without_token(scope, headers, self._token)) is not None:
            return answer
        elif scope["method"] not in {"GET", "HEAD"} and not _is_same_origin(headers):
            refusal = error_response(403, "another page asks in this browser's name: open this server's own page")
        elif not is_served(path):
            refusal = plain_error(404, scope["method"], path)
        elif int(headers.get("content-length", 0)) > self._most(path):
            refusal = error_response(413, too_large(self._most(path)))
        return refusal

    def _most(self, path: str) -> int:
        """The largest number of bytes for a path."""
        return self._limits.upload + FORM_AROUND if is_for_programs(path) else LITTLE

    def _is_host(self, given: str) -> bool:
        named = HOST.fullmatch(given.lower())
        if named is None:
            return False
        name = (named[1] or named[2]).rstrip(".")
        try:
            return name in self._hosts or (self._any_address and bool(ipaddress.ip_address(name)))
        except ValueError:
            return False

    @staticmethod
    def _without_token(scope: Scope, headers: Headers, token: Token) -> Response | None:
        """The response without the token in the headers; with the token in the address, a redirection with a cookie.

        It redirects from a page of this server, so that the browser sends the cookie wherever the link was clicked.
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
            answer: Response = error_response(HTTPStatus.UNAUTHORIZED, KEY_NEEDED)
        else:
            answer = HTMLResponse(_page("A token is needed", KEY_NEEDED), HTTPStatus.UNAUTHORIZED)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def _is_forwarded(name: bytes, value: bytes) -> bool:
    """Whether a header would have the page believe in another address; a proxy may say that its own has TLS."""
    is_other = name == b"forwarded" or name.startswith((b"x-forwarded-", b"x-gradio-", b"x-original-"))
    return is_other and (name, value) != (b"x-forwarded-proto", b"https")


def _is_same_origin(headers: Headers) -> bool:
    """Whether a request comes from a page of this server, or from a program, which sends no origin."""
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


class Token:
    """The secret that requests need when other users can reach the server.

    Example:
        >>> token = Token("correct horse battery")
        >>> token.is_in({"authorization": "Bearer correct horse battery"}), token.is_in({})
        (True, False)
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # a browser sends cookies to all ports of a host: neither name nor value reveals the token to other servers
        self._value = hmac.new(self._secret, b"cookie", hashlib.sha256).hexdigest()
        self._name = "excite-" + hashlib.sha256(self._value.encode()).hexdigest()[:12]

    def is_in(self, headers: Mapping[str, str]) -> bool:
        """Whether headers hold the token, as a bearer token or as the cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is(given.strip()):
            return True
        cookies = cookie_parser(headers.get("cookie", ""))  # also those of other servers of the host
        kept = cookies.get(self._name, "")
        return hmac.compare_digest(kept.encode("utf-8", "replace"), self._value.encode())

    def without(self, query: str) -> str | None:
        """The query without the token; None if it has not the token.

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
        """The Set-Cookie header, until the browser is closed."""
        return f"{self._name}={self._value}; Path=/; HttpOnly; SameSite=Strict"

    def _is(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._secret)
