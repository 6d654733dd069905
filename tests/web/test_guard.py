"""Who may ask, how much they may send, and what is never served."""

import asyncio
import logging
import sys

import pytest
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
    routes = [
        Route("/", page),
        Route("/pictures", count, methods=["POST"]),
        Route("/page/look", count, methods=["POST"]),
        Route("/health", broken),
    ]
    return Guard(Starlette(routes=routes), limits=LIMITS, **options)


def asked(base="http://localhost:7860", **options):
    return TestClient(guarded(**options), base, raise_server_exceptions=False, follow_redirects=False)


def refused(answer, status):
    assert answer.status_code == status, answer.text
    line = answer.json()["error"]
    assert "\n" not in line
    return line


class TestHosts:
    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:7860", "[::1]:7860", "localhost."])
    def test_own_names(self, host):
        assert asked().get("/", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        "evil.example|localhost.evil.example|127.0.0.1.evil.example||192.168.1.2|[::1|a:b:c|user@localhost|localhost:80x|"
        "localhost/evil.example|localhost evil.example|<b>".split("|"),
    )
    def test_a_name_that_somebody_else_gave_this_machine(self, host):
        assert "another name" in refused(asked().get("/", headers={"Host": host}), 403)

    def test_the_host_that_was_told(self):
        client = asked(hosts=["Lab.example"], any_address=True)
        assert client.get("/", headers={"Host": "lab.example:80"}).status_code == 200
        assert client.get("/", headers={"Host": "192.168.1.2:80"}).status_code == 200
        refused(client.get("/", headers={"Host": "evil.example"}), 403)


class TestOrigins:
    @pytest.mark.parametrize("origin", ["http://localhost:7860", "http://LOCALHOST:7860"])
    def test_the_own_page_may_ask(self, origin):
        assert asked().post("/pictures", content=b"x", headers={"Origin": origin}).status_code == 200

    @pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:1", "null", "", "http://[", "file://"])
    def test_another_page_may_not(self, origin):
        assert "own page" in refused(asked().post("/pictures", content=b"x", headers={"Origin": origin}), 403)

    def test_a_browser_says_where_a_question_comes_from(self):
        headers = {"Sec-Fetch-Site": "cross-site"}
        refused(asked().post("/pictures", content=b"x", headers=headers), 403)
        assert asked().get("/", headers=headers).status_code == 200  # a link may lead here

    def test_other_pages_are_not_told_that_they_may(self):
        preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        answer = asked().options("/pictures", headers=preflight)
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


class TestToken:
    def test_nobody_without_it(self):
        client = asked(token=Token(SECRET))
        assert "Bearer" in refused(client.get("/health"), 401)
        page = client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 401
        assert "open the address" in page.text
        for wrong in (f"Bearer {SECRET}x", "Bearer", "Bearer é", f"Basic {SECRET}", SECRET, ""):
            assert client.get("/", headers={"Authorization": wrong.encode()}).status_code == 401
        assert client.get(f"/?token={SECRET}x").status_code == 401
        assert client.get("/?token=%ff%00").status_code == 401
        assert client.post(f"/pictures?token={SECRET}").status_code == 401
        assert client.get("/", headers={"Cookie": f"excite={SECRET}; =; \x7f"}).status_code == 401
        assert client.get("/etc/passwd").status_code == 401  # nor what there is

    def test_a_program_with_it(self):
        answer = asked(token=Token(SECRET)).get("/", headers={"Authorization": f"bearer {SECRET}"})
        assert answer.text == "the page"

    def test_a_browser_with_it_keeps_a_cookie_and_loses_the_address(self):
        client = asked(token=Token(SECRET))
        first = client.get(f"/?model=words&token={SECRET}&question=a+%3Ccat%3E")
        assert first.status_code == 200
        assert "the page" not in first.text
        assert 'content="0;url=/?model=words&amp;question=a+%3Ccat%3E"' in first.text
        assert SECRET not in first.text
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert SECRET not in cookie
        assert client.get("/?model=words").text == "the page"
        client.cookies.clear()
        assert client.get("/?model=words").status_code == 401

    def test_it_sends_nobody_elsewhere(self):
        client = asked(token=Token(SECRET))
        for path in ("//evil.example/", "/%2fevil.example", "/nothing"):
            assert "refresh" not in client.get(f"http://localhost:7860{path}?token={SECRET}").text

    def test_two_servers_of_a_host_do_not_share_a_cookie(self):
        assert Token(SECRET).cookie.partition("=")[0] != Token(SECRET + "2").cookie.partition("=")[0]
        other = {"cookie": Token(SECRET + "2").cookie.partition(";")[0]}
        assert not Token(SECRET).is_in(other)
        assert Token(SECRET + "2").is_in(other)

    @pytest.mark.parametrize("other", ['theme={"dark": true}', "name=a b c", "flag", "map[x]=1", "name=\xe9", "a b=1"])
    def test_cookies_that_other_servers_of_the_host_have_set(self, other):
        """A browser sends them to all ports, and they may be as odd as they like."""
        own = Token(SECRET).cookie.partition(";")[0]
        assert Token(SECRET).is_in({"cookie": f"{other}; {own}"})
        assert Token(SECRET).is_in({"cookie": f"{own}; {other}"})
        assert not Token(SECRET).is_in({"cookie": other})

    def test_no_sockets(self):
        with pytest.raises(WebSocketDisconnect), asked().websocket_connect("/"):
            pass


def test_every_answer_says_what_the_browser_must_know():
    client = asked()
    for answer in (client.get("/"), client.get("/health"), client.get("/", headers={"Host": "evil.example"})):
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "SAMEORIGIN"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "http" not in headers["content-security-policy"]
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


def test_an_error_that_nobody_foresaw_is_logged_once(capsys):
    with bounded_log():
        answer = asked().get("/health")
    assert answer.status_code == 500
    assert "somebody" not in answer.text
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("excite: error: unexpected error: RuntimeError < test_guard.py:")
    assert "somebody" not in line


class TestLog:
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
    many = {f"X-{k}": "x" * 20 for k in range(1000)}
    refused(asked().get("/", headers=many), 431)


# Bodies, as the server hands them over


async def exchange(app, messages, path="/pictures", headers=()):
    """What a request is answered, and how much of it was read; after the last message nothing comes any more."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"localhost"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7860),
    }
    waiting, answer = list(messages), []

    async def receive():
        if not waiting:
            await asyncio.sleep(3600)
        return {"type": "http.request", **waiting.pop(0)}

    async def send(message):
        answer.append((message, len(waiting)))

    await app(scope, receive, send)
    (start, unread), *rest = answer
    return start["status"], b"".join(message.get("body", b"") for message, _ in rest), unread


def parts(count, size, more=True):
    return [{"body": b"x" * size, "more_body": more or k < count - 1} for k in range(count)]


def test_what_says_that_it_is_too_large_is_not_read():
    told = exchange(guarded(), parts(3, 10, more=False), headers=[(b"content-length", str(MOST + 1).encode())])
    status, body, unread = asyncio.run(told)
    assert status == 413
    assert unread == 3
    assert b"smaller image" in body


def test_what_does_not_say_so_is_counted():
    status, body, unread = asyncio.run(exchange(guarded(), parts(100, MOST // 10, more=False)))
    assert status == 413
    assert b"smaller image" in body
    assert 85 < unread < 95
    status, body, _ = asyncio.run(exchange(guarded(), parts(10, MOST // 10, more=False)))
    assert (status, body) == (200, b'{"bytes":%d}' % (MOST // 10 * 10))


def test_the_page_sends_little():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "LINGER", 0.01)
        told = exchange(guarded(), [], path="/page/look", headers=[(b"content-length", b"3000000")])
        assert asyncio.run(told)[0] == 413


def test_whoever_stops_sending_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE", 0.02)
    monkeypatch.setattr(guard, "LINGER", 0.02)
    status, body, _ = asyncio.run(exchange(guarded(), parts(2, 10)))
    assert status == 408
    assert b"again" in body


def test_whoever_sends_for_ever_is_not_listened_to_for_ever(monkeypatch):
    monkeypatch.setattr(guard, "ALTOGETHER", 0.0)
    monkeypatch.setattr(guard, "LINGER", 0.02)
    assert asyncio.run(exchange(guarded(), []))[0] == 408


def test_all_together_hold_no_more_than_there_is_room_for(monkeypatch):
    """Whoever comes then is told to come again, and is let in when there is room."""
    monkeypatch.setattr(guard, "LINGER", 0.02)
    app = guarded()
    app._held = guard.BODIES * MOST  # others are sending
    assert asyncio.run(exchange(app, parts(1, 100, more=False)))[0] == 503
    app._held = 0
    assert asyncio.run(exchange(app, parts(1, 100, more=False)))[0] == 200
    assert app._held == 0  # all is given back
