"""The log of a real server with its page: whatever is sent, it holds no text of a user and stays small."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from itertools import cycle, islice, product
from urllib.parse import quote

import pytest
from servers import PATIENCE, TESTS, Running, multipart, red_square

pytest.importorskip("gradio")

SCRIPT = """
import json, sys
sys.path[:0] = {folders!r}
from servers import colour_service
from excite.web.server import serve
serve(colour_service(), port=0, announce=lambda url, token: print(json.dumps([url, token]), flush=True))
"""
REQUESTS = 1000
SECRET = "SeCrEt"  # noqa: S105 - a mark
JSON = {"Content-Type": "application/json"}
HOSTILE = [
    SECRET,
    f"\x1b[31m{SECRET}\x1b]0;title\x07",
    f"{SECRET}\r\n{SECRET}\u202e\u2028",
    f"<script>{SECRET}</script>",
    SECRET * 40_000,
    [SECRET] * 300,
    {SECRET: {"a": [SECRET, None]}},
    -1,
    1e300,
    True,
    None,
]
EVENTS = 23  # of the page; one more has no function


def as_json(value):
    return json.dumps(value).encode()


def of_programs():
    """Bad questions to the HTTP interface."""
    fields = ("concept", "against", "phrase", "model", "method", "layer", "picture", "image", "overlay", "most", SECRET)
    for path, field, value in product(("/attend", "/ground"), fields, HOSTILE):
        yield "POST", path, as_json({field: value}), JSON
    bodies = (b"", b"{" * 5000, b"\xff\xfe" + SECRET.encode(), b"[1]", b'"' + SECRET.encode(), b"NaN", b"9" * 6000)
    for path, body in product(("/attend", "/ground", "/pictures"), bodies):
        yield "POST", path, body, JSON
        yield "POST", path, body, {"Content-Type": f"text/{SECRET}"}
        yield "POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"}
        yield "POST", path, body, {"Content-Type": f"multipart/form-data; boundary={SECRET}"}
        yield "POST", path, body, {"Content-Type": "multipart/form-data"}
    for path, name in product(("/attend", "/ground", "/pictures"), ("image", SECRET, f"a;{SECRET}")):
        yield ("POST", path, *multipart((name, f"{SECRET}.png", SECRET.encode())))
        yield ("POST", path, *multipart((name, SECRET), (name, SECRET * 10_000)))
        yield ("POST", path, *multipart(*[(name, SECRET)] * 300))
    for value in (SECRET, quote(HOSTILE[1]), quote(HOSTILE[2]), SECRET * 100, SECRET * 2000):
        for path in (f"/labels?model={value}", f"/labels?search={value}", f"/pictures/{SECRET}?side={value}"):
            yield "GET", path, None, {}
        yield "GET", f"/pictures/{value}", None, {}


def of_the_page():
    """Bad events, and other requests to gradio's paths."""
    for number, value in product(range(EVENTS + 1), HOSTILE[:6]):
        event = {"data": [value] * (number % 10), "fn_index": number, "session_hash": SECRET, "event_data": value}
        yield "POST", "/gradio_api/queue/join", as_json(event), JSON
    for value in HOSTILE:
        long = [{"picture": SECRET}, value, value, value, value, value]
        for data in ([value], long, long[:5]):
            for number in (1, 5, 9, 13):
                event = {"data": data, "fn_index": number, "session_hash": SECRET}
                yield "POST", "/gradio_api/queue/join", as_json(event), JSON
        for path in ("queue/join", "cancel", "reset"):
            yield "POST", f"/gradio_api/{path}", as_json(value), JSON
            yield (
                "POST",
                f"/gradio_api/{path}",
                as_json({"session_hash": value, "fn_index": value, "data": value}),
                JSON,
            )
    big = {"data": [None, "x" * 1_900_000, SECRET, "", "", 0], "fn_index": 1, "session_hash": SECRET}
    yield "POST", "/gradio_api/queue/join", as_json(big), JSON
    yield "POST", "/gradio_api/queue/join", as_json({"data": [{"path": f"/etc/{SECRET}"}], "fn_index": 0}), JSON
    for query in (f"page={SECRET}", f"deep_link={SECRET}", f"__theme={SECRET}", f"x=%3Cscript%3E{SECRET}"):
        yield "GET", f"/config?{query}", None, {}
        yield "GET", f"/?{query}", None, {}


def of_anybody():
    """Wrong methods, paths that are not served, and odd heads."""
    paths = [
        "/",
        "/config",
        "/attend",
        "/health",
        "/pictures",
        "/labels",
        f"/gradio_api/heartbeat/{SECRET}",
        f"/{SECRET}",
    ]
    for method, path in product(("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", SECRET.upper()), paths):
        yield method, path, None, {}
    for path in ("..", "%2e%2e", "..%2f..", ".%00.", "%1b%5b31m", "%e2%80%ae", "%ff", "x" * 3000):
        for start in ("", "/assets", "/static", "/reports/a", "/gradio_api", "/gradio_api/file="):
            yield "GET", f"{start}/{path}/{SECRET}", None, {}
    for name in ("X-Forwarded-Host", "X-Gradio-Server", "Forwarded", "X-Forwarded-Proto"):
        yield "GET", "/", None, {name: f"https://{SECRET}.example"}
    for host in (SECRET, f"{SECRET}@localhost", f"localhost:{SECRET}", f"<{SECRET}>"):
        yield "GET", "/", None, {"Host": host}
    yield "POST", "/attend", None, {"Content-Length": SECRET}
    yield "GET", "/health", None, {"X-Long": SECRET * 5000}
    yield "POST", "/attend", b"{}", {"Origin": f"https://{SECRET}.example"}


@contextmanager
def served(log):
    script = SCRIPT.format(folders=[str(TESTS), str(TESTS / "web")])
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - ours
    try:
        url, token = json.loads(process.stdout.readline())
        host, port = re.fullmatch(r"http://(.+):(\d+)/", url).groups()
        yield Running(process, host, int(port), token)
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (0, "")
    finally:
        process.kill()
        process.wait()


def test_a_thousand_bad_requests(tmp_path):
    requests = [*of_anybody(), *of_the_page(), *of_programs()]
    assert len(requests) > 500
    statuses = set()
    with (tmp_path / "log").open("w") as log, served(log) as server:
        key = json.loads(server.ask("POST", "/pictures", red_square())[2])["picture"]
        for method, path, body, headers in islice(cycle(requests), REQUESTS):
            status, told, content = server.ask(method, path, body, headers)
            statuses.add(status)
            assert status in {200, 503} or status in range(400, 501), (status, path)
            if status >= 400:
                assert told["Content-Type"] == "application/json", path
                (error,) = json.loads(content).items()
                assert error[0] == "error"
                assert error[1].isprintable()
                assert len(error[1]) < 1000
            elif method == "GET":
                assert SECRET not in content.decode(), path
                assert SECRET.lower() not in content.decode(), path
        assert server.ask("POST", "/attend", as_json({"picture": key, "concept": "red"}), JSON)[0] == 200
    assert statuses >= {200, 400, 403, 404, 405, 413, 414, 415, 422, 431, 500}
    text = (tmp_path / "log").read_text()
    assert SECRET.lower() not in text.lower()
    assert "xxxx" not in text
    assert len(text) < 100_000
    assert all(line.startswith("excite: ") and len(line) < 1100 and line.isprintable() for line in text.splitlines())
    assert "unexpected error" in text  # the log is really this one
