"""Malformed and hostile requests to a real server: each is refused in one line, the next person is answered."""

import base64
import http.client
import json
import re
import signal
import socket
import time
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain, product
from urllib.parse import quote

from hostile_files import BOMBS, CUT, OTHERS, TABLE
from servers import PATIENCE, check_ends_well, multipart, red_square, started

LIMITS = {"upload": 1_000_000, "pixels": 1_000_000}
SOON = 20.0  # seconds; machines may be busy
GROWTH = 100 * 2**20  # bytes
JSON = {"Content-Type": "application/json"}


def check_next_person(server):
    """Somebody with a plain question is answered rightly."""
    body, headers = multipart(("image", "photo.png", red_square()), ("concept", "red"))
    status, _, content = server.ask("POST", "/attend", body, headers)
    assert status == 200, content
    (found,) = json.loads(content)["maps"]
    assert 60 <= found["point"][0] < 84
    assert 6 <= found["point"][1] < 30


def check_refused(content, begun):
    """One clear line, soon, that tells nothing of the machine; the codes are looked at by each test."""
    assert time.monotonic() - begun < SOON
    told = json.loads(content)
    assert list(told) == ["error"]
    line = told["error"]
    assert 10 < len(line) < 700
    assert line.isprintable(), line
    assert not any(word in line for word in ("Traceback", "site-packages", "/home", "/work", "root:"))
    return line


def connected(server):
    return socket.create_connection((server.host, server.port), timeout=PATIENCE)


def say(wire, sent):
    """Send all that the server wants to hear."""
    with suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough; its answer is there all the same
        wire.sendall(sent)


def answer_to(server, sent):
    """What is answered to bytes that no library would send."""
    with connected(server) as wire:
        say(wire, sent)
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        return answer.status, answer.headers, answer.read()


def refused(server, statuses, *question):
    """A request, or the bytes of what is none, is answered with one of these statuses; the line of the answer."""
    begun = time.monotonic()
    code, headers, content = server.ask(*question) if len(question) > 1 else answer_to(server, *question)
    line = check_refused(content, begun)
    assert code in ((statuses,) if isinstance(statuses, int) else statuses), line
    assert headers["X-Content-Type-Options"] == "nosniff"
    check_next_person(server)
    return line


def refusal(statuses, *question):
    """To be asked later of a server."""
    return lambda server: refused(server, statuses, *question)


FILES = {**CUT, **BOMBS, **OTHERS}
IN_FORMS = ("JPEG cut off", "PNG of 30,000 squared", "SVG with a script", "nothing")


def files():
    """Files that are no images, alone, in a form and in JSON."""
    for name, content in FILES.items():
        status = 422 if len(content) <= LIMITS["upload"] else 413
        yield name, refusal(status, "POST", "/pictures", content, {"Content-Type": "image/png"})
    for name in IN_FORMS:
        form = multipart(("image", "x.jpg", FILES[name]), ("concept", "red"))
        yield f"in a form: {name}", refusal(422, "POST", "/attend", *form)
        written = json.dumps({"image": base64.b64encode(FILES[name]).decode(), "phrase": "red"})
        yield f"in JSON: {name}", refusal(422, "POST", "/ground", written, JSON)


def check_name(server, name):
    """An image is read whatever it is called, since nothing is ever written; what is none is refused all the same."""
    assert server.ask("POST", "/pictures", *multipart(("image", name, red_square())))[0] == 200
    assert name not in refused(server, 422, "POST", "/pictures", *multipart(("image", name, b"no image")))


def names():
    for name, said in {**TABLE["names"], "without end": "x" * 3000}.items():
        yield f"a name {name}", partial(check_name, name=said)


EDGE = "multipart/form-data; boundary=edge"
PART = '--edge\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
BROKEN_FORMS = {
    **{name: (kind.format(EDGE=EDGE), body.format(PART=PART)) for name, (kind, body) in TABLE["forms"].items()},
    "with a boundary of a thousand letters": (f"{EDGE}{'e' * 1000}", f"--edge{'e' * 1000}\r\n"),
    "without an end": (EDGE, PART.encode() + red_square()),
    "with a head of half a megabyte": (EDGE, f"--edge\r\nX: {'y' * 500_000}\r\n\r\nx"),
    "with a thousand heads": (EDGE, "--edge\r\n" + "X: y\r\n" * 1000 + "\r\nx\r\n--edge--\r\n"),
    "of noise": (EDGE, OTHERS["random bytes"]),
}


def forms():
    """Forms that are none, and forms with a wrong question."""
    for name, (kind, body) in BROKEN_FORMS.items():
        for path in ("/pictures", "/attend"):
            yield f"a form {name} to {path}", refusal(400, "POST", path, body, {"Content-Type": kind})
    for name, parts in PARTS.items():
        yield f"a form with {name}", refusal((400, 404), "POST", "/attend", *multipart(*parts))


PARTS = {
    "thousands of fields": [("concept", "red")] * 5000,
    "a hundred files": [("image", f"{k}.png", b"x") for k in range(100)],
    "two images": [("image", "a.png", red_square()), ("image", "b.png", red_square())],
    "a field twice": [("picture", "a"), ("picture", "b")],
    "a concept of a hundred thousand letters": [("concept", "x" * 100_000)],
    "an image as text": [("image", "x")],
    "a file of another name": [("photo", "x.png", red_square())],
    "bytes that are no text": [("image", "x.png", red_square()), ("concept", b"\xff\xfe\xed\xa0\x80")],
}


WRITTEN = TABLE["json"] | {
    "nested a hundred thousand deep": "[" * 100_000,
    "objects nested deep": '{"concept":' * 50_000,
    "no UTF-8": b'{"concept": "\xff"}',
    "a hundred thousand concepts": json.dumps({"concept": ["red"] * 100_000}),
    "a number of ten thousand digits": '{"phrase": "red", "most": ' + "9" * 10_000 + "}",
}


def texts():
    """JSON with a wrong question, and paths that lead nowhere."""
    for name, written in WRITTEN.items():
        path = "/ground" if "phrase" in str(written) else "/attend"
        yield f"JSON: {name}", refusal((400, 404), "POST", path, written, JSON)
    for path, status in PATHS.items():
        yield path[:60], refusal(status, *path.split(" "))


PATHS = TABLE["paths"] | {
    "GET /pictures/" + "a" * 5000: 404,
    "GET /pictures/" + "0" * 32 + "?side=99999999999999999999": 400,
    "GET /labels?search=" + "a" * 5000: 400,
    "GET /labels?" + "a=b&" * 3000: 414,
}


HEAD = b"POST /pictures HTTP/1.1\r\nHost: localhost\r\n"
CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 20
WIRE = {
    name: (sent.format(HEAD=HEAD.decode()).encode(), *status) for name, (sent, *status) in TABLE["wire"].items()
} | {
    "chunks above the limit": (CHUNKS, 413),
    "a head of 20 kilobytes": (HEAD + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431),
    "a head of a megabyte": (HEAD + b"X: " + b"y" * 1_000_000, 400),
    "three thousand headers": (HEAD + b"".join(b"X-%d: y\r\n" % k for k in range(3000)) + b"\r\n", 431),
    "no HTTP": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 100, 400),
}


def wires():
    """Requests that are none."""
    for name, (sent, *statuses) in WIRE.items():
        yield name, refusal(statuses, sent)
    yield "a second request behind a length that is too small", check_second_request
    yield "somebody who leaves in the middle", check_left_in_the_middle
    yield "somebody who never comes to the point", check_half_a_head
    yield "somebody who takes all connections", check_all_connections


def check_second_request(server):
    """What follows the body is another request, and is no way round the guard."""
    first = HEAD + b"Content-Length: 2\r\n\r\nno"
    second = b"GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connected(server) as wire:
        say(wire, first + second)
        heard = b"".join(iter(lambda: wire.recv(65536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", heard) == [b"422", b"404"]
    check_next_person(server)


def check_left_in_the_middle(server):
    for _ in range(20):
        with connected(server) as wire:
            wire.sendall(HEAD + b"Content-Length: 500000\r\n\r\n" + b"x" * 1000)
    deadline = time.monotonic() + PATIENCE
    while server.ask("GET", "/health")[0] == 503:  # it may not have heard yet that they are gone
        assert time.monotonic() < deadline
        time.sleep(0.05)
    check_next_person(server)


def check_half_a_head(server):
    """Neither at the beginning nor behind another request is a head waited for that does not end."""
    begun = time.monotonic()
    for before in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with connected(server) as wire:
            if before:
                wire.sendall(before)
                assert b" 200 " in wire.recv(65536)
            wire.sendall(b"GET / HTTP/1.1\r\nHost: ")
            while wire.recv(65536):
                pass
    assert time.monotonic() - begun < SOON
    check_next_person(server)


def check_all_connections(server):
    """Whoever comes then is told to come again, and is answered when they do."""
    with ExitStack() as held:
        for _ in range(20):
            held.enter_context(connected(server))
        begun = time.monotonic()
        status, headers, content = server.ask("GET", "/health")
        assert "connected" in check_refused(content, begun)
    assert (status, headers["Retry-After"], headers["X-Content-Type-Options"]) == (503, "3", "nosniff")
    while server.ask("GET", "/health")[0] == 503:  # until it has seen that they left
        assert time.monotonic() - begun < SOON
    check_next_person(server)


def check_ends_in_the_middle_of_an_answer(server):
    """What is being answered when somebody presses Ctrl-C is answered first."""
    body, headers = multipart(("image", "photo.png", red_square()), ("model", "slow"), ("concept", "red"))
    told = {"Host": "localhost", "Expect": "100-continue", "Content-Length": len(body), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    with connected(server) as wire:
        wire.sendall(f"POST /attend HTTP/1.1\r\n{head}\r\n".encode())
        assert wire.recv(65536).startswith(b"HTTP/1.1 100")  # it has begun to listen
        wire.sendall(body)
        check_ends_well(server.process, signal.SIGINT)
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        assert answer.status == 200
    socket.create_server((server.host, server.port)).close()  # the port is free again


# Bad questions with a mark in them, which must not be found in the log

SECRET = "SeCrEt"  # noqa: S105 - a mark
HOSTILE = [
    *(SECRET, f"\x1b[31m{SECRET}\x1b]0;title\x07", f"{SECRET}\r\n{SECRET}\u202e\u2028", f"<script>{SECRET}</script>"),
    *(SECRET * 40_000, [SECRET] * 300, {SECRET: {"a": [SECRET, None]}}, -1, 1e300, True, None),
]
FIELDS = "concept against phrase model method layer image overlay most example question concepts methods".split()
ASKED = ("/attend", "/ground", "/page/look", "/page/compare")
BODIES = (b"", b"{" * 5000, b"\xff\xfe" + SECRET.encode(), b"[1]", b'"' + SECRET.encode(), b"9" * 6000)
KINDS = (f"text/{SECRET}", "application/x-www-form-urlencoded", f"{EDGE}{SECRET}", EDGE[:19], JSON["Content-Type"])


def of_programs_and_the_page(key):
    """Bad questions to the HTTP interface and to that of the page's script, and odd links."""
    for path, field, value in product(ASKED, (*FIELDS, SECRET), HOSTILE):
        yield "POST", path, json.dumps({"model": "colours", "picture": key, field: value}), JSON
    for path, body, kind in product((*ASKED[1:3], "/pictures"), BODIES, KINDS):
        yield "POST", path, body, {"Content-Type": kind}
    for length in (1_900_000, 2_100_000):
        yield "POST", "/page/look", json.dumps({"model": "colours", "question": "x" * length}), JSON
    for path, name in product(("/attend", "/pictures"), ("image", SECRET, f"a;{SECRET}")):
        yield ("POST", path, *multipart((name, f"{SECRET}.png", SECRET.encode())))
        yield ("POST", path, *multipart(*[(name, SECRET * 10)] * 300))
    links = "labels?model= labels?search= pictures/a?side= pictures/ page/layers?model= ?question= ?picture=".split()
    for path, value in product(links, (SECRET, quote(HOSTILE[1]), quote(HOSTILE[2]), SECRET * 100, SECRET * 2000)):
        yield "GET", f"/{path}{value}", None, {}


def of_anybody():
    """Wrong methods, paths that are not served, and odd heads."""
    paths = ("/", "/docs", "/attend", "/health", "/pictures", "/labels", "/page/look", f"/{SECRET}")
    for method, path in product(("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", SECRET.upper()), paths):
        yield method, path, None, {}
    for path in ("..", "%2e%2e", "..%2f..", ".%00.", "%1b%5b31m", "%e2%80%ae", "%ff", "x" * 3000):
        for start in ("", "/assets", "/static", "/reports/a", "/page", "/file="):
            yield "GET", f"{start}/{path}/{SECRET}", None, {}
    for name in ("X-Forwarded-Host", "X-Original-Host", "Forwarded", "X-Forwarded-Proto", "Origin", "Content-Length"):
        yield "POST", "/attend", None, {name: f"https://{SECRET}.example"}
    for host in (SECRET, f"{SECRET}@localhost", f"localhost:{SECRET}", f"<{SECRET}>"):
        yield "GET", "/", None, {"Host": host}
    yield "GET", "/health", None, {"X-Long": SECRET * 5000}


def check_log(server):
    """A server that ends well has written nothing of all that into its log."""
    key, statuses = json.loads(server.ask("POST", "/pictures", red_square())[2])["picture"], set()
    for method, path, body, headers in chain(of_anybody(), of_programs_and_the_page(key)):
        status, told, content = server.ask(method, path, body, headers)
        statuses.add(status)
        if status >= 400:
            assert told["Content-Type"] == "application/json", path
            ((name, line),) = json.loads(content).items()
            assert (name, line.isprintable(), len(line) < 1000) == ("error", True, True)
        elif method == "GET":
            assert SECRET.lower() not in content.decode().lower(), path
    assert statuses == {200, 400, 403, 404, 405, 413, 414, 415, 422, 431}


def test_each_is_refused_and_the_next_person_is_answered():
    """One test, and not one for each: a server takes longer to start than all of them together."""
    cases = dict(chain(files(), names(), forms(), texts(), wires()))
    failures = {}
    with started(f"import servers\nservers.run_impatient(**{LIMITS})") as server:
        check_next_person(server)
        before = server.memory()
        for name, check in cases.items():
            try:
                check(server)
            except (AssertionError, OSError, ValueError, http.client.HTTPException) as error:
                failures[name] = f"{type(error).__name__}: {error}"
        assert failures == {}
        assert server.memory() - before < GROWTH
        check_log(server)
        check_next_person(server)
        check_ends_in_the_middle_of_an_answer(server)
