"""The log of a real server with its page: whatever is sent, it holds no text of a user and stays small."""

import json
from itertools import cycle, islice, product
from urllib.parse import quote

import pytest
from servers import multipart, red_square, started

pytest.importorskip("fastapi")

SCRIPT = """
from servers import announce, colour_service
from excite.web.server import serve
def broken(*_, **__):
    raise KeyError("SeCrEt")
service = colour_service()
service.ground = broken
serve(service, port=0, announce=announce)
"""
REQUESTS = 1000
SECRET = "SeCrEt"  # noqa: S105 - a mark
JSON = {"Content-Type": "application/json"}
FORM = "multipart/form-data"
HOSTILE = [
    *(SECRET, f"\x1b[31m{SECRET}\x1b]0;title\x07", f"{SECRET}\r\n{SECRET}\u202e\u2028", f"<script>{SECRET}</script>"),
    *(SECRET * 40_000, [SECRET] * 300, {SECRET: {"a": [SECRET, None]}}, -1, 1e300, True, None),
]


def of_programs():
    """Bad questions to the HTTP interface."""
    fields = ("concept", "against", "phrase", "model", "method", "layer", "picture", "image", "overlay", "most", SECRET)
    for path, field, value in product(("/attend", "/ground"), fields, HOSTILE):
        yield "POST", path, json.dumps({field: value}), JSON
    bodies = (b"", b"{" * 5000, b"\xff\xfe" + SECRET.encode(), b"[1]", b'"' + SECRET.encode(), b"NaN", b"9" * 6000)
    for path, body in product(("/attend", "/ground", "/pictures"), bodies):
        for kind in (f"text/{SECRET}", "application/x-www-form-urlencoded", f"{FORM}; boundary={SECRET}", FORM):
            yield "POST", path, body, {"Content-Type": kind}
        yield "POST", path, body, JSON
    for path, name in product(("/attend", "/ground", "/pictures"), ("image", SECRET, f"a;{SECRET}")):
        yield ("POST", path, *multipart((name, f"{SECRET}.png", SECRET.encode())))
        yield ("POST", path, *multipart((name, SECRET), (name, SECRET * 10_000)))
        yield ("POST", path, *multipart(*[(name, SECRET)] * 300))
    for value in (SECRET, quote(HOSTILE[1]), quote(HOSTILE[2]), SECRET * 100, SECRET * 2000):
        for path in (f"/labels?model={value}", f"/labels?search={value}", f"/pictures/{SECRET}?side={value}"):
            yield "GET", path, None, {}
        yield "GET", f"/pictures/{value}", None, {}


def of_the_page():
    """Bad questions of the page's script, and odd links."""
    fields = ("model", "picture", "example", "question", "against", "method", "layer", "concepts", "methods", SECRET)
    for path, field, value in product(("/page/look", "/page/compare"), fields, HOSTILE):
        yield "POST", path, json.dumps({"model": "colours", "picture": SECRET, field: value}), JSON
    for path, body in product(("/page/look", "/page/compare"), (b"", b"{" * 5000, b"\xff" + SECRET.encode(), b"[1]")):
        yield "POST", path, body, JSON
        yield "POST", path, body, {"Content-Type": f"text/{SECRET}"}
    yield "POST", "/page/look", json.dumps({"model": "colours", "question": "x" * 1_900_000}), JSON
    yield "POST", "/page/look", json.dumps({"model": "colours", "question": "x" * 2_100_000}), JSON
    for value in (SECRET, quote(HOSTILE[1]), SECRET * 300):
        yield "GET", f"/page/layers?model={value}", None, {}
        yield "GET", f"/?question={value}&model={value}&picture={value}", None, {}


def of_anybody():
    """Wrong methods, paths that are not served, and odd heads."""
    paths = ("/", "/docs", "/attend", "/health", "/pictures", "/labels", "/page/look", f"/{SECRET}")
    for method, path in product(("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", SECRET.upper()), paths):
        yield method, path, None, {}
    for path in ("..", "%2e%2e", "..%2f..", ".%00.", "%1b%5b31m", "%e2%80%ae", "%ff", "x" * 3000):
        for start in ("", "/assets", "/static", "/reports/a", "/page", "/file="):
            yield "GET", f"{start}/{path}/{SECRET}", None, {}
    for name in ("X-Forwarded-Host", "X-Original-Host", "Forwarded", "X-Forwarded-Proto"):
        yield "GET", "/", None, {name: f"https://{SECRET}.example"}
    for host in (SECRET, f"{SECRET}@localhost", f"localhost:{SECRET}", f"<{SECRET}>"):
        yield "GET", "/", None, {"Host": host}
    yield "POST", "/attend", None, {"Content-Length": SECRET}
    yield "GET", "/health", None, {"X-Long": SECRET * 5000}
    yield "POST", "/attend", b"{}", {"Origin": f"https://{SECRET}.example"}


def test_a_thousand_bad_requests(tmp_path):
    requests = [*of_anybody(), *of_the_page(), *of_programs()]
    assert len(requests) > 500
    statuses = set()
    with (tmp_path / "log").open("w") as log, started("-c", SCRIPT, log=log) as server:
        key = json.loads(server.ask("POST", "/pictures", red_square())[2])["picture"]
        for method, path, body, headers in islice(cycle(requests), REQUESTS):
            status, told, content = server.ask(method, path, body, headers)
            statuses.add(status)
            assert status in {200, 503} or status in range(400, 501), (status, path)
            if status >= 400:
                assert told["Content-Type"] == "application/json", path
                ((name, line),) = json.loads(content).items()
                assert (name, line.isprintable(), len(line) < 1000) == ("error", True, True)
            elif method == "GET":
                assert SECRET.lower() not in content.decode().lower(), path
        assert server.ask("POST", "/attend", json.dumps({"picture": key, "concept": "red"}), JSON)[0] == 200
        assert server.ask("POST", "/ground", json.dumps({"picture": key, "phrase": SECRET}), JSON)[0] == 500
    assert statuses >= {200, 400, 403, 404, 405, 413, 414, 415, 422, 431}
    text = (tmp_path / "log").read_text()
    assert SECRET.lower() not in text.lower()
    assert "xxxx" not in text
    assert len(text) < 100_000
    assert all(line.startswith("excite: ") and len(line) < 1100 and line.isprintable() for line in text.splitlines())
    assert "unexpected error: KeyError < " in text  # the log is really this one
