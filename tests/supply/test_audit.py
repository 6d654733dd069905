"""The audit believes no service that does not know what it must know, and the lock's markers mean what they should."""

import importlib.util
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.markers import Marker

DEV = Path(__file__).parents[2] / "dev"


def recipe(name):
    spec = importlib.util.spec_from_file_location(f"recipe_{name.replace('/', '_')}", DEV / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


audit, machines = recipe("audit"), recipe("supply/machines")


class Mirror(BaseHTTPRequestHandler):
    """An index that has packages and no advisories, but at one address."""

    def do_GET(self):
        self.send_response(200 if self.path != "/missing" else 404)
        self.end_headers()
        self.wfile.write(b"{'vulnerabilities': []}" if self.path == "/known" else b"hello")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def mirror():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_service_is_believed_when_it_knows_what_it_must(mirror):
    assert audit.why_not(f"{mirror}/known", b"vulnerabilities") == ""
    assert audit.why_not(f"{mirror}/missing", b"vulnerabilities") == "Not Found"
    assert audit.why_not(f"{mirror}/other", b"vulnerabilities") == "it answers with something else"


def test_nobody_to_ask_is_not_a_clean_bill(mirror, monkeypatch, capsys):
    monkeypatch.setattr(audit, "SERVICES", {"pypi": (f"{mirror}/missing", b"x"), "osv": (f"{mirror}/other", b"x")})
    assert audit.main() == audit.NOBODY == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "nothing is known: pypi (Not Found); osv (it answers with something else)" in said


SETS = {
    "a system": lambda one: one.system == "darwin",
    "a Python": lambda one: one.python != "3.11",
    "both": lambda one: one.system == "linux" and one.python == "3.13",
    "neither": lambda one: one.system == "darwin" or (one.python, one.kind) == ("3.12", "x86_64"),
}


@pytest.mark.parametrize("wanted", SETS.values(), ids=SETS)
def test_a_marker_is_true_where_it_should_be(wanted):
    needed = frozenset(filter(wanted, machines.ALL))
    marker = Marker(machines.marker(needed))
    assert frozenset(one for one in machines.ALL if marker.evaluate(one.markers())) == needed


def test_no_marker_for_all():
    assert machines.marker(frozenset(machines.ALL)) == ""
    some = frozenset(one for one in machines.ALL if one.python == "3.12")
    assert machines.marker(some, some) == ""
