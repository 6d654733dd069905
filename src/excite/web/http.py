"""Answers on their way out: what every browser must know, and refusals that are heard."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Message, Receive, Send


LINGER, LINGER_BYTES = 5.0, 64 * 2**20  # how long, and how much, is listened to that nobody wants
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CONTENT = (  # gradio's own components are made of inline styles and evaluated templates
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'self'; form-action 'self'; "
    "base-uri 'self'; object-src 'none'"
)


class Mouth:
    """Passes on what the app answers, unless its question is refused in the meantime."""

    def __init__(self, send: Send, intake: Intake) -> None:
        self._send, self._intake = send, intake
        self.begun = False

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer."""
        if self._intake.refusal is not None and not self.begun:
            return
        self.begun = True
        await self._send(message)


class Marked:
    """Puts onto every answer what the browser must know."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer, its head with all that belongs there."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name in [name for name in headers if name.startswith("access-control-") or name == "server"]:
                del headers[name]  # no other page is to read anything here
            for name, value in SECURITY.items():
                headers[name] = value
            headers.setdefault("Content-Security-Policy", CONTENT)
        await self._send(message)


async def answer_at_once(response: Response, receive: Receive | None, send: Send) -> None:
    """Answer, and listen for a while to what is still being sent.

    A connection that is closed while somebody sends is broken before they have read why.

    Args:
        response: the answer.
        receive: what may still come; None when everything has.
        send: where to answer.
    """
    response.headers["Connection"] = "close"
    headers = response.raw_headers
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    if receive is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(_listen(receive), LINGER)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _listen(receive: Receive) -> None:
    heard, more = 0, True
    while more and heard < LINGER_BYTES:
        message = await receive()
        heard += len(message.get("body", b""))
        more = bool(message.get("more_body", False))


# What people send is counted while it comes: no more than the limit, and not for ever.

PATIENCE = 30.0  # seconds without a byte
ALTOGETHER = 300.0  # seconds for a whole request


class Room:
    """How many bytes all that is being sent may hold together. Used in one loop only, so that it needs no lock."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class Intake:
    """The body of one request on its way in.

    Args:
        receive: where it comes from.
        most: how many bytes it may have.
        room: what all bodies share.
        closing: set when the server ends; whoever listens on behind the body is told so.

    Attributes:
        ended: whether all of it has come.
        refusal: a code and a sentence, once the body cannot be taken; whoever reads it then sees a broken connection.
    """

    def __init__(self, receive: Receive, most: int, room: Room, closing: asyncio.Event) -> None:
        self.refusal: tuple[HTTPStatus, str] | None = None
        self._receive, self._most, self._room = receive, most, room
        self._closing = closing
        self._bytes = 0
        self.ended = False
        self._deadline = asyncio.get_running_loop().time() + ALTOGETHER

    async def receive(self) -> Message:
        """The next part of the body; behind its end, what the server has to say of the connection."""
        if self.refusal is not None:
            return {"type": "http.disconnect"}
        if self.ended:
            return await self._listened()
        left = self._deadline - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(PATIENCE, max(left, 0)))
        except TimeoutError:
            return self._refuse(HTTPStatus.REQUEST_TIMEOUT, "nothing more came for a while: send it again")
        self.ended = message["type"] != "http.request" or not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message if self.refusal is None else {"type": "http.disconnect"}

    async def _listened(self) -> Message:
        """What comes behind the body, which is that somebody has left, or that the server ends."""
        heard, ending = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((heard, ending), return_when=asyncio.FIRST_COMPLETED)
            return heard.result() if heard.done() else {"type": "http.disconnect"}
        finally:
            heard.cancel()
            ending.cancel()

    def _count(self, more: int) -> None:
        self._bytes += more
        self._room.held += more
        if self._bytes > self._most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large(self._most))
        elif self._room.held > self._room.most:
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many are sending at the moment: try again in a few seconds"
            )

    def _refuse(self, status: HTTPStatus, message: str) -> Message:
        self.refusal = status, message
        return {"type": "http.disconnect"}

    def close(self) -> None:
        """Give its room back."""
        self._room.held -= self._bytes
        self._bytes = 0


def too_large(most: int) -> str:
    """What is said to whoever sends too much.

    Example:
        >>> too_large(26_214_400)
        'more than 26,214,400 bytes: send a smaller image'
    """
    return f"more than {most:,} bytes: send a smaller image"
