"""A server in this process, that can be told to be as bad as real ones."""

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """What the server does, and what it was asked for: the Range of each request, None without one."""

    content: bytes
    url: str = ""
    files: dict = field(default_factory=dict)  # the content for some paths
    knows_ranges: bool = True
    cut_after: int | None = None
    chunked: bool = False
    status: int = 200
    asked: list = field(default_factory=list)


def handler(state):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked = self.headers.get("Range")
            state.asked.append(asked)
            content = state.files.get(self.path, state.content)
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and state.knows_ranges else 0
            if state.status != 200:
                return self.send_error(state.status)
            if start and start >= len(content):
                return self.send_error(416)
            return self.answer(content[start:], 206 if start else 200)

        def answer(self, content, status):
            self.send_response(status)
            self.send_header(*(("Transfer-Encoding", "chunked") if state.chunked else ("Content-Length", len(content))))
            self.end_headers()
            if state.chunked:
                self.wfile.write(f"{len(content):x}\r\n".encode())
            self.wfile.write(content[: state.cut_after])
            if state.chunked and state.cut_after is None:
                self.wfile.write(b"\r\n0\r\n\r\n")
            self.close_connection = True

        def log_message(self, *_):
            pass

    return Handler


@contextmanager
def serving(content):
    """Serve this content, whatever is asked for."""
    state = Server(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(state))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/net.bin"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
