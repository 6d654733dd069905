"""Starts and stops the page and the HTTP interface, on uvicorn."""

import asyncio
import errno
import ipaddress
import logging
import re
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from excite.errors import ExciteError, visible
from excite.web.api import create_api
from excite.web.errors import LOG, bounded_log, error_response, warnings_as_notes
from excite.web.guard import CONTENT, SECURITY, Guard, Token, respond_and_drain, with_security_headers
from excite.web.page import find_examples, find_reports, page_routes, report_routes
from excite.web.service import Service

ANY = {"0.0.0.0", "::", ""}  # noqa: S104 - all addresses
REASONS = {
    errno.EADDRINUSE: "something else listens there; end it, or choose another with --port, 0 for any that is free",
    errno.EACCES: "it needs rights that you do not have; choose one above 1023",
    errno.EADDRNOTAVAIL: "it is no address of this machine; use 127.0.0.1, or 0.0.0.0",
}
CONNECTIONS = 256  # a browser opens half a dozen
IDLE = 30.0  # seconds for a whole head


def serve(  # noqa: PLR0913 - all but one may be left out
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    token: str | None = None,
    reports: Path | None = None,
    examples: Path | None = None,
    open_browser: bool = False,
    announce: Callable[[str, str | None], None] | None = None,
) -> None:
    """Serve the page and the HTTP interface until Ctrl-C or SIGTERM, with the options of `excite serve`.

    ``announce`` is called with the address and the token when the server is ready; without it, one line is printed.
    """
    token = _checked_token(host, token)
    with _listening_socket(host, port) as listening:
        url = _url(host, listening.getsockname()[1], token)

        def started() -> None:
            (announce or _print_address)(url, token)
            if open_browser:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()  # some browsers take long

        found = find_reports(reports) if reports is not None else []
        app = create_api(service)
        app.include_router(report_routes(found))
        app.include_router(page_routes(service, found, find_examples(examples)))
        needed = Token(token) if token else None
        guard = Guard(app, limits=service.limits, hosts=_names(host), any_address=host in ANY, token=needed)
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # a broken form is reported to the client
        loading = threading.Thread(target=_load, args=(service,), name="loading", daemon=True)
        loading.start()
        with bounded_log(), warnings_as_notes():
            server = Server(guard, started)
            server.run(sockets=[listening])
        loading.join(timeout=10)
        if not server.started:
            raise ExciteError("the server could not start: the lines above say why")


def _load(service: Service) -> None:
    """Load the first classifier before the first request; an error is reported to each request, too."""
    try:
        served_model = service.served_model()
        served_model.classifier, served_model.layers  # noqa: B018 - both are kept
    except ExciteError as error:
        LOG.warning(f"{service.default} cannot be used: {error}")


def _print_address(url: str, token: str | None) -> None:
    secret = " (anyone with this address has access)" if token else ""
    sys.stdout.write(f"excite: open {visible(url)}{secret}; Ctrl-C ends it\n")
    sys.stdout.flush()


def _checked_token(host: str, token: str | None) -> str | None:
    """The token, generated if other machines have access and none is given."""
    if token is None:
        return None if _is_loopback(host) else secrets.token_urlsafe(24)
    if re.fullmatch(r"[!-~]{16,200}", token) is None:
        raise ExciteError("the token is too short or has odd letters: give 16 to 200 of ASCII, without spaces")
    return token


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


def _names(host: str) -> list[str]:
    """The names of the server, beside those of the loopback address."""
    own = socket.gethostname()
    return [host] if _is_loopback(host) else [host, own, f"{own}.local"]


def _listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket, before anything heavy is loaded."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except (socket.gaierror, UnicodeError) as error:
        raise ExciteError(f"{host!r} is no name or address of this machine: use 127.0.0.1, or 0.0.0.0") from error
    except OSError as error:
        reason = REASONS.get(error.errno or 0, error.strerror or type(error).__name__)
        raise ExciteError(f"port {port} of {host or 'this machine'} cannot be used: {reason}") from error


def _url(host: str, port: int, token: str | None) -> str:
    """The address to open in a browser."""
    name = socket.gethostname() if host in ANY else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?{urlencode({'token': token})}" if token else "")


# uvicorn: quiet, with timeouts, and with errors as one line of JSON.


class Connection(H11Protocol):
    """A connection with a timeout for the head of a request, and with JSON for what is no HTTP."""

    _waiting: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self.app = _crowded
        self._wait_for_head(is_needed=True)

    def data_received(self, data: bytes) -> None:
        """A part of a request has arrived."""
        if not self._refused:
            super().data_received(data)
            self._wait_for_head(is_needed=self.conn.their_state is h11.IDLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        self._wait_for_head(is_needed=False)
        super().connection_lost(exc)

    def _wait_for_head(self, *, is_needed: bool) -> None:
        """Start the timeout for a whole head, or stop it."""
        if is_needed and self._waiting is None:
            self._waiting = self.loop.call_later(IDLE, self.transport.close)
        elif not is_needed and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP. The rest is discarded for a moment, so that the client can read the answer."""
        del msg
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:  # in the middle of another answer
            self.transport.close()
            return
        answer = error_response(400, "this is no HTTP request that can be read, or its head is too large")
        answer.headers.update({**SECURITY, "Content-Security-Policy": CONTENT, "Connection": "close"})
        for event in (
            h11.Response(status_code=400, headers=answer.raw_headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self._refused = True
        self.loop.call_later(1.0, self.transport.close)  # seconds to read the reason


async def _crowded(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a client beyond the limit of connections; uvicorn would give no reason."""
    answer = error_response(503, "too many are connected at the moment: try again in a few seconds")
    await respond_and_drain(answer, receive, with_security_headers(send))


class Server(uvicorn.Server):
    """Serves an app until a signal; ``started`` is called when it is ready."""

    def __init__(self, app: Guard, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=15,  # seconds between two requests
                timeout_graceful_shutdown=5,  # seconds for pending requests when the server ends
                h11_max_incomplete_event_size=64 * 1024,  # bytes of a head; the guard is stricter
            )
        )
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started:
            self._on_start()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End with exit code 0; uvicorn would raise the signal again, which is an error to a shell."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
