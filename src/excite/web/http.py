"""Answers on their way out: what every browser must know, and refusals that are heard."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Message, Receive, Send

    from excite.web.guard_body import Intake

__all__ = ["Marked", "Mouth", "answer_at_once"]

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
