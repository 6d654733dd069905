"""Who may ask, how much they may send, and what is never served."""

import asyncio
import logging
import sys

import pytest
from servers import refused
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from excite.web import guard
from excite.web.errors import LOG, bounded_log
from excite.web.guard import FORM_AROUND, Guard, Token
from excite.web.service import Limits

SECRET = "correct-horse-battery"  # noqa: S105 - nobody's
LIMITS = Limits(upload=1000)
MOST = LIMITS.upload + FORM_AROUND


async def count(request):
    return JSONResponse({"bytes": len(await request.body())})


async def page(request):
    return PlainTextResponse("the page")


async def broken(request):
    raise RuntimeError("/home/somebody")


def guarded(**options):
    routes = [Route("/", page), Route("/health", broken)]
    routes += [Route(path, count, methods=["POST"]) for path in ("/pictures", "/page/look")]
    return Guard(Starlette(routes=routes), limits=LIMITS, **options)


def asked(base="http://localhost:7860", **options):
    return TestClient(guarded(**options), base, raise_server_exceptions=False, follow_redirects=False)


OWN = "localhost LOCALHOST:1 127.0.0.1:7860 [::1]:7860 localhost.".split()
OTHER = (
    "evil.example|localhost.evil.example|127.0.0.1.evil.example||192.168.1.2|[::1|a:b:c|user@localhost|localhost:80x|"
    "localhost/evil.example|localhost evil.example|<b>"
).split("|")


def test_own_names_and_those_that_somebody_else_gave_this_machine():
    for host in OWN:
        assert asked().get("/", headers={"Host": host}).status_code == 200, host
    for host in OTHER:
        assert "another name" in refused(asked().get("/", headers={"Host": host}), 403), host
    client = asked(hosts=["Lab.example"], any_address=True)
    for host, status in {"lab.example:80": 200, "192.168.1.2:80": 200, "evil.example": 403}.items():
        assert client.get("/", headers={"Host": host}).status_code == status


def test_the_own_page_may_ask_and_another_may_not():
    for origin in ("http://localhost:7860", "http://LOCALHOST:7860"):
        assert asked().post("/pictures", content=b"x", headers={"Origin": origin}).status_code == 200
    for origin in ("http://evil.example", "http://localhost:1", "null", "", "http://[", "file://"):
        assert "own page" in refused(asked().post("/pictures", content=b"x", headers={"Origin": origin}), 403)
        preflight = asked().options("/pictures", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
        assert preflight.status_code == 403
        assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_a_browser_says_where_a_question_comes_from():
    headers = {"Sec-Fetch-Site": "cross-site"}
    refused(asked().post("/pictures", content=b"x", headers=headers), 403)
    assert asked().get("/", headers=headers).status_code == 200  # a link may lead here


class TestToken:
    def test_nobody_without_it_but_a_program_with_it(self):
        client = asked(token=Token(SECRET))
        assert "Bearer" in refused(client.get("/health"), 401)
        page = client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 401
        assert "open the address" in page.text
        for wrong in (f"Bearer {SECRET}x", "Bearer", "Bearer é", f"Basic {SECRET}", SECRET, ""):
            assert client.get("/", headers={"Authorization": wrong.encode()}).status_code == 401
        for path in (f"/?token={SECRET}x", "/?token=%ff%00", "/etc/passwd"):  # nor what there is
            assert client.get(path).status_code == 401
        assert client.post(f"/pictures?token={SECRET}").status_code == 401
        assert client.get("/", headers={"Cookie": f"excite={SECRET}; =; \x7f"}).status_code == 401
        assert client.get("/", headers={"Authorization": f"bearer {SECRET}"}).text == "the page"

    def test_a_browser_with_it_keeps_a_cookie_and_loses_the_address(self):
        client = asked(token=Token(SECRET))
        first = client.get(f"/?model=words&token={SECRET}&question=a+%3Ccat%3E")
        assert first.status_code == 200
        assert 'content="0;url=/?model=words&amp;question=a+%3Ccat%3E"' in first.text
        cookie = first.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
        assert SECRET not in first.text + cookie
        assert client.get("/?model=words").text == "the page"
        client.cookies.clear()
        assert client.get("/?model=words").status_code == 401
        for path in ("//evil.example/", "/%2fevil.example", "/nothing"):
            assert "refresh" not in client.get(f"http://localhost:7860{path}?token={SECRET}").text

    def test_cookies_that_other_servers_of_the_host_have_set(self):
        """A browser sends them to all ports, and they may be as odd as they like."""
        own, second = (Token(secret).cookie.partition(";")[0] for secret in (SECRET, SECRET + "2"))
        for other in ('theme={"dark": true}', "name=a b c", "flag", "map[x]=1", "name=\xe9", "a b=1", second):
            told = {f"{other}; {own}": True, f"{own}; {other}": True, other: False}
            assert {cookie: Token(SECRET).is_in({"cookie": cookie}) for cookie in told} == told

    def test_no_sockets(self):
        with pytest.raises(WebSocketDisconnect), asked().websocket_connect("/"):
            pass


def test_every_answer_says_what_the_browser_must_know():
    client = asked()
    for answer in (client.get("/"), client.get("/health"), client.get("/", headers={"Host": "evil.example"})):
        assert dict(answer.headers).items() >= {name.lower(): value for name, value in guard.SECURITY.items()}.items()
        assert answer.headers["x-content-type-options"] == "nosniff"
        allowed = answer.headers["content-security-policy"]
        assert "default-src 'self'" in allowed
        assert not any(word in allowed for word in ("http", "unsafe"))


class TestLog:
    def test_an_error_that_nobody_foresaw_is_logged_once(self, capsys):
        with bounded_log():
            answer = asked().get("/health")
        assert answer.status_code == 500
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("excite: error: unexpected error: RuntimeError < test_guard.py:")
        assert "somebody" not in line + answer.text

    def test_values_are_left_out(self, capsys):
        with bounded_log():
            logging.getLogger("some.package").warning("user said %s", "SECRET")
            logging.getLogger("some.package").error("SECRET " * 10_000)
            logging.getLogger("uvicorn.error").warning("a constant text %s", "SECRET")
            sys.stderr.write("Traceback ... SECRET")
        err = capsys.readouterr().err
        assert "SECRET" not in err
        assert [len(line) < 1100 for line in err.splitlines()] == [True] * 4
        assert "some.package at test_guard.py:" in err
        assert "excite: warning: a constant text" in err

    def test_what_comes_again_is_counted(self, capsys):
        with bounded_log():
            for _ in range(1234):
                LOG.warning("too much")
        assert capsys.readouterr().err.splitlines() == [
            f"excite: warning: too much{times}" for times in ("", " (10 times)", " (100 times)", " (1000 times)")
        ]


def test_long_addresses_and_heads():
    assert "address" in refused(asked().get("/?q=" + "x" * 9000), 414)
    assert "headers" in refused(asked().get("/", headers={"X-Long": "x" * 17_000}), 431)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE", 0.2)
    monkeypatch.setattr(guard, "LINGER", 0.02)


def exchange(app, messages, path="/pictures", headers=()):
    """What a request is answered, and how much of it was not read; after the last message nothing comes any more."""
    all_headers = [(b"host", b"localhost"), *headers]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": all_headers}
    waiting, answer = list(messages), []

    async def receive():
        if not waiting:
            await asyncio.sleep(3600)
        return {"type": "http.request", **waiting.pop(0)}

    async def send(message):
        answer.append((message, len(waiting)))

    asyncio.run(app(scope, receive, send))
    (start, unread), *rest = answer
    return start["status"], b"".join(message.get("body", b"") for message, _ in rest), unread


def parts(count, size, more=False):
    return [{"body": b"x" * size, "more_body": more or k < count - 1} for k in range(count)]


def test_what_is_too_large_is_not_read():
    status, body, unread = exchange(guarded(), parts(3, 10), headers=[(b"content-length", b"%d" % (MOST + 1))])
    assert (status, unread) == (413, 3)
    assert b"smaller image" in body
    assert (
        exchange(guarded(), [], path="/page/look", headers=[(b"content-length", b"3000000")])[0] == 413
    )  # the page sends little
    status, body, unread = exchange(guarded(), parts(100, MOST // 10))  # it does not say how large it is
    assert status == 413
    assert 85 < unread < 95
    assert exchange(guarded(), parts(10, MOST // 10))[:2] == (200, b'{"bytes":%d}' % (MOST // 10 * 10))


@pytest.mark.parametrize("limit", ["PATIENCE", "ALTOGETHER"])
def test_whoever_stops_sending_or_never_ends_is_not_waited_for(monkeypatch, limit):
    monkeypatch.setattr(guard, limit, 0.01)
    status, body, _ = exchange(guarded(), parts(2, 10, more=True))
    assert (status, b"again" in body) == (408, True)


def test_all_together_hold_no_more_than_there_is_room_for():
    """Whoever comes then is told to come again, and is let in when there is room."""
    app = guarded()
    for held, status in ((guard.BODIES * MOST, 503), (0, 200)):
        app._held = held  # of others who are sending
        assert exchange(app, parts(1, 100))[0] == status
        assert app._held == held  # all is given back
