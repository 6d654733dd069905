"""Servers for tests: in this process, or in one of their own, with a classifier that needs no time."""

import http.client
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from annotated import colour_classifier
from PIL import Image
from processes import PATIENCE, Forked

from excite.web.service import Limits, Service


class Instant:
    """In place of a choice of classifier: one that is there at once, and needs so long to look at an image."""

    def __init__(self, *, seconds=0):
        self.seconds = seconds

    def load(self):
        classifier = colour_classifier()

        def slowly(picture):
            time.sleep(self.seconds)
            return classifier.preprocess(picture)

        return replace(classifier, preprocess=slowly) if self.seconds else classifier


def colour_service(second="again", seconds=0, **limits):
    return Service({"colours": Instant(), second: Instant(seconds=seconds)}, Limits(**limits))


def encoded(picture, kind="PNG", **options):
    """An image as the bytes of a file."""
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def red_square(size=(96, 48), box=(60, 6, 84, 30)):
    """A red square on black, and a smaller green one at the left: as a file."""
    picture = Image.new("RGB", size)
    picture.paste((255, 0, 0), box)
    picture.paste((0, 255, 0), (4, 4, size[0] // 8, size[1] // 4))
    return encoded(picture)


def multipart(*parts, boundary="edge"):
    """A form: each part is a name and a text, or a name, a file's name and its content."""
    body = b""
    for name, *rest in parts:
        named = f'; filename="{rest[0]}"' if len(rest) == 2 else ""
        content = rest[-1] if isinstance(rest[-1], bytes) else rest[-1].encode()
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + content
        body += b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def refused(answer, status):
    """The one line of an answer that refuses."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    line = answer.json()["error"]
    assert "\n" not in line
    return line


@dataclass
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen
    url: str
    token: str | None

    def __post_init__(self):
        self.host, self.port = urlsplit(self.url).hostname, urlsplit(self.url).port

    def ask(self, method, path, body=None, headers=None):
        """The code, the headers and the content of an answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def seconds(self):
        """Of the processor, which the process has used."""
        used = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Bytes that the process holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


@contextmanager
def started(program, *arguments, folder=None, log=subprocess.PIPE, new=False, **environment):
    """A real server by a program that prints its address and token as JSON, and has to end well.

    In a copy of a process that has imported excite, or in a new one.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    streams = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
    begin = partial(subprocess.Popen, [sys.executable, "-c", program, *arguments])  # ours
    if not new:
        begin = partial(Forked, program, arguments)
    with begin(cwd=folder, env=environment, **streams) as process:
        try:
            told = json.loads(process.stdout.readline() or process.stderr.read())  # the address and the token
            yield Running(process, *(told.values() if isinstance(told, dict) else told))
            check_ends_well(process)
        finally:
            process.kill()


def check_ends_well(process, number=signal.SIGTERM):
    """It ends when it is told to, soon, and without a word but that somebody has sent what is no HTTP."""
    if process.poll() is None:
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out == ""
    lines = {line.partition(" (")[0] for line in (err or "").splitlines()}
    assert lines <= {"excite: warning: Invalid HTTP request received."}, err


def run_impatient(**limits):
    """In that process: a server of colours with little patience, until it is told to end."""
    from excite.web import guard as limited
    from excite.web import server

    limited.PATIENCE, limited.LINGER, server.IDLE = 1.5, 0.5, 1.5
    server.CONNECTIONS = 20
    service = colour_service("slow", seconds=1, **limits)
    server.serve(service, port=0, announce=lambda *told: print(json.dumps(told), flush=True))
