"""The guard around everything that is served: who may ask, how much, how slowly, and with which headers.

Requests are refused before the app sees them, each with one line of JSON that arrives also while the client still
sends. Their bodies are read here, with limits of size and time, and kept in memory only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import HTMLResponse

from excite.web.assets import filled_in
from excite.web.errors import LOG, RefusedError, error_response

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from excite.web.uploads import Limits


HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d{0,5})?")  # an address of IPv6, or a name; and a port
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PAGES = frozenset({"/", "/docs"})  # for people: these addresses may hold the token
WITH_IMAGES = frozenset({"/pictures", "/attend", "/ground"})

QUERY, HEADERS = 8 * 1024, 16 * 1024  # bytes
FORM_AROUND = 64 * 1024  # bytes of a form beside its image
LITTLE = 2 * 2**20  # bytes of any other request
BODIES = 6  # the largest bodies that are held at once
PATIENCE = 30.0  # seconds without a byte
ALTOGETHER = 300.0  # seconds for a whole request
LINGER, LINGER_BYTES = 5.0, 64 * 2**20  # seconds and bytes of a refused request that are still read

SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CONTENT = (  # maps come as data: addresses
    "default-src 'self'; img-src 'self' data: blob:; connect-src 'self' data:; frame-ancestors 'self'; "
    "form-action 'self'; base-uri 'none'; object-src 'none'"
)
TOKEN_NEEDED = (
    "a token is needed here: open the address that the server has printed, or send Authorization: Bearer TOKEN"  # noqa: S105 - a message
)


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
        self._hosts = {host.lower().rstrip(".") for host in (*LOOPBACK, *hosts)}
        self._any_address = any_address
        self._token = token
        self._largest = limits.upload + FORM_AROUND
        self._held = 0  # bytes of all bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, with_security_headers(send))
        else:  # nothing here uses web sockets
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await respond_and_drain(refusal, receive, send)
            return
        body = _Body()
        try:
            await self._read(body, receive, self._most(scope["path"]))
            await self._app(scope, body.replayed(receive), send)
        except RefusedError as error:
            await respond_and_drain(error_response(error.status, str(error)), None if body.ended else receive, send)
        except ClientDisconnect:
            pass
        except Exception:  # noqa: BLE001 - the app has answered it, and it is logged
            LOG.exception("unexpected error")
        finally:
            self._held -= len(body.content)

    async def _read(self, body: _Body, receive: Receive, most: int) -> None:
        """Read a whole body; a `RefusedError` if it is too large or too slow, or if too many are held."""
        try:
            async with asyncio.timeout(ALTOGETHER):
                while not body.ended:
                    async with asyncio.timeout(PATIENCE):
                        message = await receive()
                    self._held += body.add(message)
                    if len(body.content) > most:
                        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large(most))
                    if self._held > BODIES * self._largest:
                        raise RefusedError(
                            HTTPStatus.SERVICE_UNAVAILABLE,
                            "too many are sending at the moment: try again in a few seconds",
                        )
        except TimeoutError as error:
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "nothing more came for a while: send it again") from error

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The error of a request that is refused before its body is read."""
        refusal, most = None, self._most(scope["path"])
        if len(scope["query_string"]) > QUERY:
            refusal = error_response(414, f"the address is too long: at most {QUERY} letters after ?")
        elif sum(len(name) + len(value) for name, value in headers.raw) > HEADERS:
            refusal = error_response(431, f"more than {HEADERS} bytes of headers: send fewer")
        elif not self._is_host(headers.get("host", "")):
            refusal = error_response(403, "this server has another name: open the address that it has printed")
        elif self._token is not None and not self._token.is_in(headers):
            return _without_token(scope, headers, self._token)
        elif scope["method"] not in {"GET", "HEAD"} and not _is_same_origin(headers):
            refusal = error_response(403, "another page asks in this browser's name: open this server's own page")
        elif int(headers.get("content-length", 0)) > most:
            refusal = error_response(413, too_large(most))
        return refusal

    def _most(self, path: str) -> int:
        """The largest number of bytes for a path."""
        return self._largest if path in WITH_IMAGES else LITTLE

    def _is_host(self, given: str) -> bool:
        named = HOST.fullmatch(given.lower())
        if named is None:
            return False
        name = (named[1] or named[2]).rstrip(".")
        try:
            return name in self._hosts or (self._any_address and bool(ipaddress.ip_address(name)))
        except ValueError:
            return False


@dataclass
class _Body:
    """The body of a request as far as it has come."""

    content: bytearray = field(default_factory=bytearray)
    ended: bool = False

    def add(self, message: Message) -> int:
        """Take the next part; returns its number of bytes."""
        if message["type"] != "http.request":
            raise ClientDisconnect
        part = message.get("body", b"")
        self.content += part
        self.ended = not message.get("more_body", False)
        return len(part)

    def replayed(self, receive: Receive) -> Receive:
        """A ``receive`` that gives the body at once, and then what comes of the connection."""
        messages: list[Message] = [{"type": "http.request", "body": bytes(self.content), "more_body": False}]

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        return again


def _without_token(scope: Scope, headers: Headers, token: Token) -> Response:
    """The response without the token in the headers; with the token in the address, a redirection with a cookie.

    It redirects from a page of this server, so that the browser sends the cookie wherever the link was clicked.
    """
    path = scope["path"]
    rest = token.without(scope["query_string"].decode("latin-1"))
    if rest is not None and scope["method"] in {"GET", "HEAD"} and path in PAGES:
        to = escape(path + (f"?{rest}" if rest else ""))
        page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={to}">'
        body = f'{page}<title>excite</title><a href="{to}">excite</a>'
        return HTMLResponse(body, headers={"Set-Cookie": token.cookie, "Cache-Control": "no-store"})
    answer: Response
    if path in PAGES and "text/html" in headers.get("accept", ""):
        answer = HTMLResponse(filled_in("notice.html", title="A token is needed", text=TOKEN_NEEDED), 401)
    else:
        answer = error_response(401, TOKEN_NEEDED)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _is_same_origin(headers: Headers) -> bool:
    """Whether a request comes from a page of this server, or from a program, which sends no origin."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:
        return False


def with_security_headers(send: Send) -> Send:
    """A ``send`` that adds the security headers to every response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(SECURITY)
            headers.setdefault("Content-Security-Policy", CONTENT)
        await send(message)

    return send_with_headers


async def respond_and_drain(response: Response, receive: Receive | None, send: Send) -> None:
    """Send a response, and read the rest of the request for a while (``receive``; None when it is complete).

    If the connection were closed while the client sends, the client could not read the response.
    """
    response.headers["Connection"] = "close"
    headers = response.raw_headers
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    if receive is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(_drain(receive), LINGER)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    read, more = 0, True
    while more and read < LINGER_BYTES:
        message = await receive()
        read += len(message.get("body", b""))
        more = bool(message.get("more_body", False))


def too_large(most: int) -> str:
    """The message for a request that is too large.

    Example:
        >>> too_large(26_214_400)
        'more than 26,214,400 bytes: send a smaller image'
    """
    return f"more than {most:,} bytes: send a smaller image"


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
