"""uvicorn, told to be quiet, to end well, and to wait for nobody for ever."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from excite.web.errors import problem
from excite.web.http import CONTENT, SECURITY, Marked, answer_at_once

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from excite.web.guard import Guard

__all__ = ["Server"]

CONNECTIONS = 256  # a browser opens half a dozen
HEAD = 64 * 1024  # bytes of a request before its body; the guard is stricter, and says so better
IDLE = 30.0  # seconds for a whole head
LAST_WORDS = 1.0  # seconds to read why a connection is closed
KEEP_ALIVE = 15  # seconds between two questions
LAST_ANSWERS = 5  # seconds for what is being answered when the server ends


class Wire(H11Protocol):
    """A connection: whoever opens one says something soon, and a request that is none is answered like all others."""

    _waiting: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Somebody is there."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self.app = _crowded
        self._wait()

    def data_received(self, data: bytes) -> None:
        """They say something."""
        if self._refused:
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # a part of a head
            self._wait()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """They have left."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """For a whole head, from its first byte on."""
        if self._waiting is None:
            self._waiting = self.loop.call_later(IDLE, self._leave)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP.

        What still comes is thrown away for a moment: closed at once, the connection is broken before anybody has read
        the answer.
        """
        del msg
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:  # in the middle of another answer
            self._leave()
            return
        body = json.dumps({"error": "this is no HTTP request that can be read, or its head is too large"}).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
        told = {**headers, **SECURITY, "Content-Security-Policy": CONTENT}
        for event in (
            h11.Response(status_code=400, headers=[*told.items()], reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self._refused = True
        self.loop.call_later(LAST_WORDS, self._leave)

    def _leave(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


async def _crowded(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answer whoever comes when there is no connection left for them; uvicorn's own way tells them nothing."""
    answer = problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many are connected at the moment: try again in a few seconds")
    await answer_at_once(answer, receive, Marked(send).send)


class Server(uvicorn.Server):
    """Serves an app until it is told to end.

    Args:
        app: what is served.
        started: called once when it can be asked.
    """

    def __init__(self, app: Guard, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Wire,
                ws="none",
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=LAST_ANSWERS,
                h11_max_incomplete_event_size=HEAD,
            )
        )
        self._guard, self._told = app, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            self._told()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has been asked, and end what would never end by itself."""
        self._guard.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End well when told to; uvicorn's own way ends with the signal once more, which is an error to a shell."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
