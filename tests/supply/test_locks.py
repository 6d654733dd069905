"""The locks hold what pyproject.toml asks for, each file has a hash, and pip refuses any other file."""

import hashlib
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "locks"
NAMES = ["audit", "cpu", "cuda", "demo", "dev", "serve"]
CHAIN = {"demo": ["demo"], "serve": ["demo", "serve"], "dev": ["demo", "serve", "dev"]}
HASHES = r"(?P<hashes>(?: (?:\\\n +)?--hash=sha256:[0-9a-f]{64})*)"
ENTRY = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+?))?" + HASHES + "$", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def recipe(name):
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", ROOT / "dev" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install = recipe("install")


def entries(name):
    return [found.groupdict() for found in ENTRY.finditer((LOCKS / f"{name}.txt").read_text(encoding="utf-8"))]


def asked(extra):
    """The requirements of an extra and of the package, with those of the extras that it names."""
    waiting = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"][extra]]
    for line in waiting:
        one = Requirement(line)
        if one.name == "excite":
            waiting += [more for each in one.extras for more in PROJECT["project"]["optional-dependencies"][each]]
        else:
            yield one


def test_these_are_all():
    assert sorted(path.stem for path in LOCKS.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_a_pin_with_hashes(name):
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    found = entries(name)
    assert found
    assert all("--hash" in one["hashes"] for one in found)
    left = [line for line in ENTRY.sub("", text).splitlines() if line and not line.startswith("#")]
    assert left == [f"--requirement {CHAIN[name][-2]}.txt"] if name in {"serve", "dev"} else not left


@pytest.mark.parametrize("extra", CHAIN)
def test_all_that_is_asked_for_is_locked(extra):
    pins = {one["name"]: one for name in CHAIN[extra] for one in entries(name)}
    wanted = [*asked(extra), *map(Requirement, PROJECT["build-system"]["requires"]), Requirement("editables")]
    assert len(wanted) > 8
    for one in wanted:
        pin = pins[canonicalize_name(one.name)]
        assert pin["marker"] is None, f"{one.name} is locked for some machines only"
        assert one.specifier.contains(pin["version"]), f"locks/{extra}.txt has {pin['version']}: run `make lock`"


def test_the_locks_agree_with_the_constraints():
    pins = {one["name"]: one["version"] for one in entries("demo") + entries("serve") + entries("dev")}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for one in (Requirement(line) for line in lines if line and not line.startswith("#")):
        assert one.specifier.contains(pins[canonicalize_name(one.name)]), f"{one}: run `make lock`"


def test_the_cpu_build_is_of_the_same_version():
    pins = {one["name"]: one["version"] for one in entries("demo")}
    assert [one["version"].split("+") for one in entries("cpu")] == [[pins["torch"], "cpu"]]


def test_every_supported_python_has_a_lock():
    for system in ("linux x86_64", "darwin arm64"):
        for version in ("3.11", "3.12", "3.13"):
            assert not install.why_unlocked("dev", f"{system} {version}", "2.13.0")


@pytest.mark.parametrize(
    ("group", "machine", "torch", "says"),
    [
        ("demo", "linux x86_64 3.10", "2.13.0", "this is linux x86_64 3.10"),
        ("demo", "linux-without-glibc x86_64 3.11", "2.13.0", "this is linux-without-glibc"),
        ("dev", "linux aarch64 3.11", "2.13.0", "locks/dev.txt fits"),  # higra has no wheel there
        ("demo", "linux x86_64 3.11", "2.13.0+cu999", "no hash for torch 2.13.0+cu999"),
        ("demo", "linux x86_64 3.12", "2.13.0+cpu", "no hash for torch 2.13.0+cpu"),
    ],
)
def test_where_no_lock_fits_it_says_why(group, machine, torch, says):
    assert says in install.why_unlocked(group, machine, torch)


def test_the_cpu_build_fits_where_it_was_seen():
    version = entries("cpu")[0]["version"]
    assert not install.why_unlocked("demo", install.fits("cpu")[0], version)


def test_cuda_is_for_the_build_that_asks_for_it(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert install.needs_cuda(["filelock", 'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"'])
    assert install.needs_cuda(['cuda-toolkit[cublas]==13.0.3; platform_system == "Linux"'])
    assert not install.needs_cuda(["filelock", "sympy>=1.13.3"])
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not install.needs_cuda(['nvidia-nccl-cu13==2.29.7; platform_system == "Linux"'])


@pytest.fixture
def tiny(tmp_path):
    """A package of one line, as a wheel made here."""
    path = tmp_path / "tiny_thing-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_thing.py", "answer = 42\n")
        wheel.writestr("tiny_thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1\n")
        wheel.writestr("tiny_thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny_thing-1.dist-info/RECORD", "")
    return path


@pytest.mark.parametrize("changed", [False, True])
def test_pip_takes_the_locked_file_and_no_other(tiny, tmp_path, monkeypatch, changed):
    """The very call that `make demo` makes, offline, on a lock of one package."""
    digest = hashlib.sha256(tiny.read_bytes()).hexdigest()
    (tmp_path / "tiny.txt").write_text(f"tiny-thing==1 --hash=sha256:{digest}\n")
    if changed:
        with zipfile.ZipFile(tiny, "a") as wheel:
            wheel.writestr("tiny_thing_more.py", "print('not what was locked')\n")
    said = []
    monkeypatch.setattr(install, "LOCKS", tmp_path)
    monkeypatch.setattr(install, "pip", lambda *arguments, **_: said.append(arguments))
    install.from_lock("tiny")
    offline = ["--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "there")]
    command = [sys.executable, "-m", "pip", "--isolated", *said[0], *offline]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603
    assert (tmp_path / "there" / "tiny_thing.py").exists() is not changed
    if changed:
        assert ended.returncode == 1
        assert "THESE PACKAGES DO NOT MATCH THE HASHES" in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
