"""Malformed and hostile requests to a real server: each is refused in one line, and the next person is answered."""

import base64
import http.client
import json
import re
import signal
import socket
import time
import tomllib
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path

from hostile_files import BOMBS, CUT, OTHERS
from servers import PATIENCE, check_ends_well, multipart, red_square, running

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


def refused(server, status, *question):
    begun = time.monotonic()
    code, headers, content = server.ask(*question)
    line = check_refused(content, begun)
    assert code in (status if isinstance(status, tuple) else (status,)), line
    assert headers["X-Content-Type-Options"] == "nosniff"
    check_next_person(server)
    return line


def refusal(status, *question):
    """To be asked later of a server."""
    return lambda server: refused(server, status, *question)


def connected(server):
    return socket.create_connection((server.host, server.port), timeout=PATIENCE)


def say(wire, sent):
    """Send all that the server wants to hear."""
    with suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough; its answer is there all the same
        wire.sendall(sent)


def refused_raw(server, status, sent):
    """As `refused`, of bytes that no library would send."""
    begun = time.monotonic()
    with connected(server) as wire:
        say(wire, sent)
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        line = check_refused(answer.read(), begun)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.status in (status if isinstance(status, tuple) else (status,)), line
    check_next_person(server)


FILES = {**CUT, **BOMBS, **OTHERS}
TABLE = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text())
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


NAMES = TABLE["names"] | {"without end": "x" * 3000}


def names():
    """An image is read whatever it is called, since nothing is ever written; what is none is refused all the same."""

    def taken_and_refused(server, name):
        assert server.ask("POST", "/pictures", *multipart(("image", name, red_square())))[0] == 200
        assert name not in refused(server, 422, "POST", "/pictures", *multipart(("image", name, b"no image")))

    return ((f"a name {name}", partial(taken_and_refused, name=said)) for name, said in NAMES.items())


FORM, EDGE = "multipart/form-data", "multipart/form-data; boundary=edge"
PART = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
BROKEN_FORMS = {
    "without a boundary": (FORM, PART + b"x\r\n--edge--\r\n"),
    "with an empty boundary": (f"{FORM}; boundary=", PART + b"x\r\n--edge--\r\n"),
    "with another boundary": (f"{FORM}; boundary=other", PART + b"x\r\n--edge--\r\n"),
    "with a boundary of a thousand letters": (f"{FORM}; boundary={'b' * 1000}", b"--" + b"b" * 1000 + b"\r\n"),
    "without an end": (EDGE, PART + red_square()),
    "without anything": (EDGE, b""),
    "that ends in a head": (EDGE, PART[:-10]),
    "with a part without a name": (EDGE, b"--edge\r\nX: y\r\n\r\nx\r\n--edge--\r\n"),
    "with a head of half a megabyte": (EDGE, b"--edge\r\nX: " + b"y" * 500_000 + b"\r\n\r\nx"),
    "with a thousand heads": (EDGE, b"--edge\r\n" + b"X: y\r\n" * 1000 + b"\r\nx\r\n--edge--\r\n"),
    "with a strange charset": (f"{EDGE}; charset=rot13", b"--edge\r\nContent-Disposition: form-data\r\n"),
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
    "a field that nobody knows": [("image", "x.png", red_square()), ("__class__", "x")],
    "51 concepts": [("image", "x.png", red_square()), *[("concept", "red")] * 51],
    "control letters": [("image", "x.png", red_square()), ("concept", "\x1b[2J\x07\r\nSet-Cookie: a=b\0")],
    "bytes that are no text": [("image", "x.png", red_square()), ("concept", b"\xff\xfe\xed\xa0\x80")],
    "yes and no": [("image", "x.png", red_square()), ("values", "1e400")],
    "no question, only an image's name": [("picture", "../../etc/passwd")],
    "a layer to the moon": [("image", "x.png", red_square()), ("layer", "__init__.__globals__")],
    "a method of one's own": [("image", "x.png", red_square()), ("method", "os.system")],
    "a model from a file": [("image", "x.png", red_square()), ("model", "/etc/passwd")],
    "a model from elsewhere": [("image", "x.png", red_square()), ("model", "http://evil.example/net.pth")],
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
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WIRE = {
    "a length that is larger than what comes": (HEAD + b"Content-Length: 5000\r\n\r\nx", 408),
    "a length above the limit": (HEAD + b"Content-Length: 99999999999\r\n\r\n", 413),
    "a negative length": (HEAD + b"Content-Length: -5\r\n\r\n", 400),
    "a length that is none": (HEAD + b"Content-Length: many\r\n\r\n", 400),
    "two lengths": (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
    "chunks above the limit": (CHUNKED + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 20, 413),
    "a chunk of a strange size": (CHUNKED + b"zz\r\nx\r\n", (400, 422)),
    "a head of 20 kilobytes": (HEAD + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431),
    "a head of a megabyte": (HEAD + b"X: " + b"y" * 1_000_000, 400),
    "three thousand headers": (HEAD + b"".join(b"X-%d: y\r\n" % k for k in range(3000)) + b"\r\n", 431),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "another host": (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    "another page": (HEAD + b"Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n", 403),
    "a header within a header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", 400),
    "no HTTP": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 100, 400),
    "another version": (b"GET / HTTP/nine\r\nHost: localhost\r\n\r\n", 400),
    "an address of a proxy": (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
}


def wires():
    """Requests that are none."""
    for name, (sent, status) in WIRE.items():
        yield name, partial(refused_raw, status=status, sent=sent)
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


def test_each_is_refused_and_the_next_person_is_answered():
    """One test, and not one for each: a server takes longer to start than all of them together."""
    cases = dict(chain(files(), names(), forms(), texts(), wires()))
    assert len(cases) > 150
    failures = {}
    with running(LIMITS) as server:
        check_next_person(server)
        before = server.memory()
        for name, check in cases.items():
            try:
                check(server)
            except (AssertionError, OSError, ValueError, http.client.HTTPException) as error:
                failures[name] = f"{type(error).__name__}: {error}"
        assert failures == {}
        check_next_person(server)
        assert server.memory() - before < GROWTH
        check_ends_in_the_middle_of_an_answer(server)
