"""What ``excite serve`` answers over HTTP, from a process of its own."""

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import excite

__all__ = ["served_answers"]

TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
PATIENCE = 120  # seconds; machines may be busy
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def server(folder):
    """The port of a server with the embedded classifier, and what it told of itself."""
    source = str(Path(excite.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "EXCITE_TOKEN": TOKEN, "PYTHONPATH": source}
    words = ["serve", "--model", "efficientnet-lite0", "--port", "0", "--json"]
    process = subprocess.Popen(  # noqa: S603 - ours
        [sys.executable, "-m", "excite", *words],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        told = process.stdout.readline()
        yield int(re.search(r"127\.0\.0\.1:(\d+)", told)[1]), json.loads(re.sub(r":\d+/", ":<port>/", told))
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.communicate()


def ask(port, method, path, body=None, headers=BEARER):
    """The code of an answer, its kind, and its content if that is JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {"Content-Type": "image/png" if isinstance(body, bytes) else "application/json"}
        connection.request(method, path, content, {**headers, **(kind if body is not None else {})})
        answer = connection.getresponse()
        read, said = answer.read(), answer.headers.get_content_type()
        return {"status": answer.status, "kind": said, "answer": json.loads(read) if said.endswith("json") else None}
    finally:
        connection.close()


def served_answers(folder):
    """By what was asked."""
    cat = (folder / "cat.png").read_bytes()
    with server(folder) as (port, told):
        picture = ask(port, "POST", "/pictures", cat)
        key = picture["answer"]["picture"]
        attend = {"picture": key, "concept": ["tabby", "lynx"], "method": "mwp", "layer": "blocks.14"}
        image = {"image": base64.b64encode(cat).decode(), "concept": "tabby", "against": "lynx", "values": True}
        openapi = ask(port, "GET", "/openapi.json")["answer"]
        return {
            "told": told,
            "no token": ask(port, "GET", "/health", headers={}),
            "health": sorted(ask(port, "GET", "/health")["answer"]),
            "page": ask(port, "GET", "/"),
            "docs": ask(port, "GET", "/docs"),
            "models": ask(port, "GET", "/models"),
            "methods": ask(port, "GET", "/methods"),
            "labels": ask(port, "GET", "/labels?search=lynx"),
            "picture": picture,
            "small picture": ask(port, "GET", f"/pictures/{key}?side=32"),
            "attend": ask(port, "POST", "/attend", attend),
            "attend image": ask(port, "POST", "/attend", image),
            "ground": ask(port, "POST", "/ground", {"picture": key, "phrase": ["the tabby on the left"], "most": 2}),
            "refused": [
                ask(port, "GET", "/nothing"),
                ask(port, "POST", "/attend", {"picture": key, "concept": "xyzzy"}),
                ask(port, "POST", "/attend", {"picture": key, "method": "nothing"}),
                ask(port, "POST", "/attend", {"picture": "0" * 32}),
                ask(port, "POST", "/ground", {"picture": key}),
                ask(port, "POST", "/pictures", b"no picture"),
            ],
            "paths": {path: sorted(ways) for path, ways in sorted(openapi["paths"].items())},
            "fields": {
                name: {field: _kind(about) for field, about in sorted(schema.get("properties", {}).items())}
                for name, schema in sorted(openapi["components"]["schemas"].items())
            },
        }


def _kind(about):
    """The type and the default of a field, without its description."""
    return {key: value for key, value in about.items() if key in {"type", "default", "enum", "minimum", "maximum"}}
