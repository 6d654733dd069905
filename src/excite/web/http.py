"""Request bodies with limits of size and time, security headers on every response, and refusals that arrive."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import Message, Receive, Send


LINGER, LINGER_BYTES = 5.0, 64 * 2**20  # seconds and bytes of a refused request that are still read
PATIENCE = 30.0  # seconds without a byte
ALTOGETHER = 300.0  # seconds for a whole request
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CONTENT = (  # gradio's components need inline styles and evaluated templates
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'self'; form-action 'self'; "
    "base-uri 'self'; object-src 'none'"
)


class RefusableSend:
    """Sends the response of the app, unless the body of its request is refused before the response begins.

    An error that is not worded as all others are is replaced by the response that ``error`` gives for its status.
    """

    def __init__(self, send: Send, body: RequestBody, error: Callable[[int], Response]) -> None:
        self._send, self._body, self._error = send, body, error
        self._held: list[Message] = []  # of an error, until it is complete
        self.begun = False

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if self._body.refusal is not None and not self.begun:
            return
        messages = [message]
        if self._held or message.get("status", 0) >= HTTPStatus.BAD_REQUEST:
            self._held.append(message)
            if message["type"] == "http.response.start" or message.get("more_body", False):
                return
            messages = self._checked_error()
        self.begun = True
        for one in messages:
            await self._send(one)

    def _checked_error(self) -> list[Message]:
        """An error as the app has worded it, or as all others are."""
        start, *parts = self._held
        with suppress(ValueError, TypeError):
            if list(json.loads(b"".join(part.get("body", b"") for part in parts))) == ["error"]:
                return self._held
        instead = self._error(start["status"])
        start = {"type": "http.response.start", "status": instead.status_code, "headers": instead.raw_headers}
        return [start, {"type": "http.response.body", "body": bytes(instead.body)}]


def with_security_headers(send: Send) -> Send:
    """A ``send`` that adds the security headers to every response, and removes those that open it to other pages."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name in [name for name in headers if name.startswith("access-control-") or name == "server"]:
                del headers[name]
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


class BodyBudget:
    """The bytes that all request bodies may hold together. Used in one event loop only, so it needs no lock."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class RequestBody:
    """The body of a request, limited in size and time.

    Args:
        receive: its source.
        most: the largest number of bytes.
        budget: shared by all bodies.
        closing: set when the server ends, which ends waiting for the client behind the body.

    Attributes:
        ended: whether the body is complete.
        refusal: a status and a message, once the body is refused; the app then sees a broken connection.
    """

    def __init__(self, receive: Receive, most: int, budget: BodyBudget, closing: asyncio.Event) -> None:
        self.refusal: tuple[HTTPStatus, str] | None = None
        self._receive, self._most, self._budget = receive, most, budget
        self._closing = closing
        self._bytes = 0
        self.ended = False
        self._deadline = asyncio.get_running_loop().time() + ALTOGETHER

    async def receive(self) -> Message:
        """The next part of the body; behind its end, a message about the connection."""
        if self.refusal is not None:
            return {"type": "http.disconnect"}
        if self.ended:
            return await self._disconnect()
        left = self._deadline - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(PATIENCE, max(left, 0)))
        except TimeoutError:
            return self._refuse(HTTPStatus.REQUEST_TIMEOUT, "nothing more came for a while: send it again")
        self.ended = message["type"] != "http.request" or not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message if self.refusal is None else {"type": "http.disconnect"}

    async def _disconnect(self) -> Message:
        """Wait until the client leaves or the server ends."""
        left, ending = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((left, ending), return_when=asyncio.FIRST_COMPLETED)
            return left.result() if left.done() else {"type": "http.disconnect"}
        finally:
            left.cancel()
            ending.cancel()

    def _count(self, more: int) -> None:
        self._bytes += more
        self._budget.held += more
        if self._bytes > self._most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large(self._most))
        elif self._budget.held > self._budget.most:
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many are sending at the moment: try again in a few seconds"
            )

    def _refuse(self, status: HTTPStatus, message: str) -> Message:
        self.refusal = status, message
        return {"type": "http.disconnect"}

    def close(self) -> None:
        """Return its bytes to the budget."""
        self._budget.held -= self._bytes
        self._bytes = 0


def too_large(most: int) -> str:
    """The message for a request that is too large.

    Example:
        >>> too_large(26_214_400)
        'more than 26,214,400 bytes: send a smaller image'
    """
    return f"more than {most:,} bytes: send a smaller image"
