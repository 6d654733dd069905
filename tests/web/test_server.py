"""`excite serve` as a process: it starts, answers, ends when it is told to, and leaves nothing behind."""

import http.client
import signal
import socket
import time
from itertools import chain

import pytest
from servers import PATIENCE, check_ends_well, colour_service, started
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from excite.cli import main
from excite.errors import ExciteError
from excite.web import server as module
from excite.web.guard import Guard
from excite.web.server import serve
from excite.web.service import Limits

SCRIPT = """
import sys, time, torch
print(time.process_time(), file=sys.stderr, flush=True)
from excite.cli import main
main(["serve", *sys.argv[1:]])
"""
START = 3.0  # seconds of the processor between torch and the first answer
TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
SOON = 15.0  # seconds; machines may be busy
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_the_command_from_its_start_to_its_end():
    """One test, and not one for each thing: the page takes seconds to start."""
    arguments = ("--model", "efficientnet-lite0", "--port", "0", "--json")
    with started(SCRIPT, *arguments, new=True, EXCITE_TOKEN=TOKEN) as server:
        torch = float(server.process.stderr.readline())
        assert server.seconds() - torch < START
        assert (server.url, server.token) == (f"http://127.0.0.1:{server.port}/?token={TOKEN}", TOKEN)
        for path in ("/", "/health", "/page/layers", "/static/page.js", "/docs"):
            assert server.ask("GET", path)[0] == 401
        cookie = server.ask("GET", f"/?token={TOKEN}")[1]["Set-Cookie"].partition(";")[0]
        status, headers, page = server.ask("GET", "/", headers={"Cookie": cookie})
        assert (status, headers["Server"], b"static/page.js" in page) == (200, None, True)
        check_ends_though_a_page_is_open(server)


def check_ends_though_a_page_is_open(server):
    """A browser keeps its connection."""
    open_page = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    open_page.request("GET", "/static/page.js", headers=BEARER)
    answer = open_page.getresponse()
    assert (answer.status, b"fetch" in answer.read()) == (200, True)
    begun = time.monotonic()
    check_ends_well(server.process, signal.SIGTERM)
    assert time.monotonic() - begun < SOON
    open_page.close()
    socket.create_server(("127.0.0.1", server.port)).close()  # the port is free again


def test_a_port_in_use_a_host_that_is_another_machine_and_a_token_that_is_none():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ExciteError, match=f"port {port} of 127.0.0.1 .* --port"):
            serve(colour_service(), port=port)
    for host in ("203.0.113.7", "no.such.host.invalid", "999.1.1.1"):
        with pytest.raises(ExciteError, match=r"127\.0\.0\.1"):
            serve(colour_service(), host=host, port=0)
    for token in ("short", "fifteen-letters", "with spaces in between", "é" * 20, ""):
        with pytest.raises(ExciteError, match="16"):
            serve(colour_service(), port=0, token=token)


def test_a_token_is_made_where_others_can_ask():
    for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"):
        assert module._checked_token(host, None) is None
    made = {module._checked_token(host, None) for host in (EVERYWHERE, "::", "lab.example", "lab.example")}
    assert (len(made), min(map(len, made)) >= 16) == (4, True)


async def page(scope, receive, send):
    await PlainTextResponse("the page")(scope, receive, send)


def test_the_address_that_is_told_can_be_asked():
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "lab.example"):
        guard = Guard(page, limits=Limits(), hosts=module._names(host))
        assert TestClient(guard).get(module._url(host, 7860, None)).text == "the page"
    assert module._url("127.0.0.1", 80, "a+b/c=d&") == "http://127.0.0.1:80/?token=a%2Bb%2Fc%3Dd%26"
    assert module._url(EVERYWHERE, 80, None) == f"http://{socket.gethostname()}:80/"


@pytest.fixture
def told(monkeypatch):
    """What the command would serve."""
    found = {}
    monkeypatch.setattr(module, "serve", lambda service, **options: found.update(options, service=service))
    return found


def run(*arguments):
    with pytest.raises(SystemExit, match="0"):
        main(["serve", *arguments])


def test_what_is_offered_if_nothing_is_said(told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXCITE_TOKEN", raising=False)
    run()
    assert list(told["service"].models) == ["words", "everyday", "efficientnet-lite0"]
    assert (told["host"], told["port"], told["token"], told["reports"]) == ("127.0.0.1", 7860, None, None)
    (tmp_path / "excite-out").mkdir()
    run("--max-upload", "2", "--max-pixels", "1000", "--waiting", "0")
    limits = told["service"].limits
    assert (limits.upload, limits.pixels, limits.waiting) == (2 * 2**20, 1000, 0)
    assert str(told["reports"]) == "excite-out"


def test_a_classifier_from_a_file_has_the_files_name(told, monkeypatch):
    monkeypatch.setattr("excite.models.Choice.load", lambda choice: choice)
    monkeypatch.setattr(
        "excite.web.service.SessionCache", lambda classifier, **_: type("", (), {"classifier": classifier})
    )
    run("--model", "nets/mine.safetensors", "--labels", "names.txt", "--size", "99")
    (choice,) = [served_model.classifier for served_model in told["service"].models.values()]
    assert list(told["service"].models) == ["mine"]
    assert (choice.model, choice.labels, choice.size) == ("nets/mine.safetensors", "names.txt", 99)
    named = ["torchvision:vgg16", "words", "timm:resnet50.a1_in1k", "timm:resnet50.a2_in1k"]
    run(*chain.from_iterable(("--model", name) for name in named))
    assert list(told["service"].models) == named
