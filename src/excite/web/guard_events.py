"""What the page tells gradio: values of controls, and never a file.

Before a control sees its value, gradio copies each file that the value names into a folder of its own, or fetches it
if it is an address. In an app that is mounted, as ours is, it does not ask whether the file was uploaded. So whoever
can ask could have any file of the machine copied, or any address fetched. Nothing that names a file gets there.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from excite.web.errors import RefusedError

if TYPE_CHECKING:
    from starlette.types import Message, Receive

__all__ = ["EVENTS", "checked_event"]

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
                raise RefusedError(HTTPStatus.BAD_REQUEST, "no files are taken here: send a picture to POST /pictures")
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return written
