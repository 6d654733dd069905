"""uvicorn, told to be quiet, to end well, and to wait for nobody for ever."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from excite.web.guard_answers import CONTENT, SECURITY

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterator

    from excite.web.guard import Guard

__all__ = ["Server"]

CONNECTIONS = 256  # a browser opens half a dozen
HEAD = 64 * 1024  # bytes of a request before its body; the guard is stricter, and says so better
IDLE = 30.0  # seconds for a whole head
KEEP_ALIVE = 15  # seconds between two questions
LAST_ANSWERS = 5  # seconds for what is being answered when the server ends


class Wire(H11Protocol):
    """A connection: whoever opens one says something soon, and a request that is none is answered like all others."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Somebody is there."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(IDLE, self._leave)

    def data_received(self, data: bytes) -> None:
        """They say something."""
        super().data_received(data)
        if self.cycle is not None and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def connection_lost(self, exc: Exception | None) -> None:
        """They have left."""
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        del msg
        said = "this is no HTTP request that can be read, or its head is too large: send it again"
        headers = {"Content-Type": "application/json", "Connection": "close", "Content-Security-Policy": CONTENT}
        told = [(name.encode(), value.encode()) for name, value in {**headers, **SECURITY}.items()]
        for event in (
            h11.Response(status_code=400, headers=told, reason=b"Bad Request"),
            h11.Data(data=json.dumps({"error": said}).encode()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _leave(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


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
                limit_concurrency=CONNECTIONS,
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
