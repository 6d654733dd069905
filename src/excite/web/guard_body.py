"""What people send is counted while it comes: no more than the limit, and not for ever."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Message, Receive

__all__ = ["Intake", "Room"]

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
        'more than 26,214,400 bytes: send a smaller picture'
    """
    return f"more than {most:,} bytes: send a smaller picture"
