"""The guard around everything that is served: who may ask, how much, how slowly, and with which headers.

Bodies are read here, with limits of size and time, and kept in memory only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from excite.web.answers import filled_in
from excite.web.errors import LOG, RefusedError, error_response
from excite.web.service import Limits

PAGES = frozenset({"/", "/docs"})  # for people: these addresses may hold the token

QUERY, HEADERS = 8 * 1024, 16 * 1024  # bytes
FORM_AROUND = 64 * 1024  # bytes of a form beside its image
BODIES = 6  # the largest bodies that are held at once
PATIENCE = 30.0  # seconds without a byte
ALTOGETHER = 300.0  # seconds for a whole request
LINGER = 5.0  # seconds in which a refused request is still read

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
TOO_LARGE = "more than {:,} bytes: send a smaller image"
TOKEN_NEEDED = (
    "a token is needed here: open the address that the server has printed, or send Authorization: Bearer TOKEN"  # noqa: S105 - a message
)


class Guard:
    """Passes allowed requests to the app, and answers the others with one line."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        hosts: Collection[str] = (),  # other sites could point their own name to this machine's address
        any_address: bool = False,  # an IP address is a name too: the server listens at all those of the machine
        token: Token | None = None,
    ) -> None:
        self._app, self._any_address, self._token = app, any_address, token
        self._hosts = {host.lower().rstrip(".") for host in ("localhost", "127.0.0.1", "::1", *hosts)}
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
        body, with_image = bytearray(), scope["path"] in {"/pictures", "/attend", "/ground"}
        most = self._largest if with_image else 2 * 2**20  # bytes
        try:
            refusal = self._refusal(scope, Headers(scope=scope), most)
            if refusal is None:
                await self._read(body, receive, most)
                await self._app(scope, _replayed(bytes(body), receive), send)
        except RefusedError as error:
            refusal = error_response(error.status_code, error.detail)
        except ClientDisconnect:
            return
        except Exception:  # noqa: BLE001 - the app has answered it, and it is logged
            LOG.exception("unexpected error")
            return
        finally:
            self._held -= len(body)
        if refusal is not None:
            await respond_and_drain(refusal, receive, send)

    async def _read(self, body: bytearray, receive: Receive, most: int) -> None:
        """Read a whole body; a `RefusedError` if it is too large or too slow, or if too many are held."""
        more = True
        try:
            async with asyncio.timeout(ALTOGETHER):
                while more:
                    async with asyncio.timeout(PATIENCE):
                        message = await receive()
                    if message["type"] != "http.request":
                        raise ClientDisconnect
                    part, more = message.get("body", b""), message.get("more_body", False)
                    body += part
                    self._held += len(part)
                    if len(body) > most:
                        raise RefusedError(413, TOO_LARGE.format(most))
                    if self._held > BODIES * self._largest:
                        raise RefusedError(503, "too many are sending at the moment: try again in a few seconds")
        except TimeoutError as error:
            raise RefusedError(408, "nothing more came for a while: send it again") from error

    def _refusal(self, scope: Scope, headers: Headers, most: int) -> Response | None:
        """Refuse what can be refused before the body is read; a response where the token is missing."""
        if len(scope["query_string"]) > QUERY:
            raise RefusedError(414, f"the address is too long: at most {QUERY} letters after ?")
        if sum(len(name) + len(value) for name, value in headers.raw) > HEADERS:
            raise RefusedError(431, f"more than {HEADERS} bytes of headers: send fewer")
        if not self._is_host(headers.get("host", "")):
            raise RefusedError(403, "this server has another name: open the address that it has printed")
        if self._token is not None and not self._token.is_in(headers):
            return _without_token(scope, headers, self._token)
        if scope["method"] not in {"GET", "HEAD"} and not _is_same_origin(headers):
            raise RefusedError(403, "another page asks in this browser's name: open this server's own page")
        if int(headers.get("content-length", 0)) > most:
            raise RefusedError(413, TOO_LARGE.format(most))
        return None

    def _is_host(self, given: str) -> bool:
        # an address of IPv6, or a name; and a port
        if named := re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d{0,5})?", given.lower()):
            name = (named[1] or named[2]).rstrip(".")
            with suppress(ValueError):
                return name in self._hosts or (self._any_address and bool(ipaddress.ip_address(name)))
        return False


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body at once, and then what comes of the connection."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _without_token(scope: Scope, headers: Headers, token: Token) -> Response:
    """The response without the token in the headers; with the token in the address, a cookie and a redirection."""
    path, rest = scope["path"], token.without(scope["query_string"].decode("latin-1"))
    answer: Response = error_response(401, TOKEN_NEEDED)
    # from a page of this server, so that the browser sends the cookie wherever the link was clicked
    if rest is not None and scope["method"] in {"GET", "HEAD"} and path in PAGES:
        page = filled_in("redirect.html", to=f"{path}?{rest}" if rest else path)
        return HTMLResponse(page, headers={"Set-Cookie": token.cookie, "Cache-Control": "no-store"})
    if path in PAGES and "text/html" in headers.get("accept", ""):
        answer = HTMLResponse(filled_in("notice.html", title="A token is needed", text=TOKEN_NEEDED), 401)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _is_same_origin(headers: Headers) -> bool:
    """Whether a request comes from a page of this server, or from a program, which sends no origin."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    with suppress(ValueError):
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
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


async def respond_and_drain(response: Response, receive: Receive, send: Send) -> None:
    """Send a response, and read the rest of the request for a while: a client that still sends could not read it."""
    response.headers["Connection"] = "close"
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Token:
    """The secret that requests need when other users can reach the server."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # a browser sends cookies to all ports of a host: neither name nor value reveals the token to other servers
        self._value = hmac.new(self._secret, b"cookie", hashlib.sha256).hexdigest()
        self._name = "excite-" + hashlib.sha256(self._value.encode()).hexdigest()[:12]
        self.cookie = f"{self._name}={self._value}; Path=/; HttpOnly; SameSite=Strict"  # until the browser is closed

    def is_in(self, headers: Mapping[str, str]) -> bool:
        """Whether headers hold the token, as a bearer token or as the cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        kept = cookie_parser(headers.get("cookie", "")).get(self._name, "")  # beside those of other servers of the host
        is_kept = hmac.compare_digest(kept.encode("utf-8", "replace"), self._value.encode())
        return is_kept or (kind.lower() == "bearer" and self._is(given.strip()))

    def without(self, query: str) -> str | None:
        """The query without the token; None if it has not the token."""
        pairs = parse_qsl(query, keep_blank_values=True)
        if not any(name == "token" and self._is(given) for name, given in pairs):
            return None
        return urlencode([(name, value) for name, value in pairs if name != "token"])

    def _is(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._secret)
