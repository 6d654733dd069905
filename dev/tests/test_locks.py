"""The locks hold what pyproject.toml asks for, pip refuses any other file, and the audit does not lie."""

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
CHAIN = {"demo": ["demo"], "serve": ["demo", "serve"], "dev": ["demo", "serve", "dev"]}
HASHES = r"(?P<hashes>(?: (?:\\\n +)?--hash=sha256:[0-9a-f]{64})*)"
ENTRY = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+?))?" + HASHES + "$", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def recipe(name):
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", ROOT / "dev" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install, audit = recipe("install"), recipe("audit")


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


@pytest.mark.parametrize("name", ["cpu", "cuda", "demo", "dev", "serve", "tools"])
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
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    bounds = [Requirement(line) for line in lines if line and not line.startswith("#")]
    wanted = [*asked(extra), *map(Requirement, PROJECT["build-system"]["requires"]), Requirement("editables")]
    wanted += [one for one in bounds if extra == "dev" or canonicalize_name(one.name) in pins]
    assert len(wanted) > 8
    for one in wanted:
        pin = pins[canonicalize_name(one.name)]
        assert pin["marker"] is None, f"{one.name} is locked for some machines only"
        assert one.specifier.contains(pin["version"]), f"locks/{extra}.txt has {pin['version']}: run `make lock`"


def test_the_cpu_build_is_of_the_same_version_and_cuda_is_apart(monkeypatch):
    pins = {one["name"]: one["version"] for name in CHAIN["dev"] for one in entries(name)}
    assert [one["version"].split("+") for one in entries("cpu")] == [[pins["torch"], "cpu"]]
    assert not any(re.match(r"nvidia|cuda|triton", name) for name in pins)
    monkeypatch.setattr(sys, "platform", "linux")
    assert install.needs_cuda(["filelock", 'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"'])
    assert install.needs_cuda(['cuda-toolkit[cublas]==13.0.3; platform_system == "Linux"'])
    assert not install.needs_cuda(["filelock", "sympy>=1.13.3"])


@pytest.mark.parametrize("changed", [False, True])
def test_pip_takes_the_locked_file_and_no_other(tmp_path, monkeypatch, changed):
    """The very call that `make demo` makes, offline, on a lock of one package of one line."""
    path, told = tmp_path / "tiny_thing-1-py3-none-any.whl", "tiny_thing-1.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_thing.py", "answer = 42\n")
        wheel.writestr(f"{told}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1\n")
        wheel.writestr(f"{told}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{told}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "tiny.txt").write_text(f"tiny-thing==1 --hash=sha256:{digest}\n")
    if changed:
        with zipfile.ZipFile(path, "a") as wheel:
            wheel.writestr("tiny_thing_more.py", "print('not what was locked')\n")
    monkeypatch.setattr(install, "LOCKS", tmp_path)
    offline = ["--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "there")]
    command = [sys.executable, "-m", "pip", "--isolated", *install.from_lock("tiny"), *offline]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603
    assert (tmp_path / "there" / "tiny_thing.py").exists() is not changed
    assert ended.returncode == int(changed), ended.stderr
    assert ("THESE PACKAGES DO NOT MATCH THE HASHES" in ended.stderr) is changed


def test_nobody_to_ask_is_not_a_clean_bill(tmp_path, monkeypatch, capsys):
    """A service is believed when it knows what it must."""
    (page := tmp_path / "answer").write_text("{'vulnerabilities': []}")
    assert audit.why_not(page.as_uri(), b"vulnerabilities") == ""
    nobody = {"pypi": ("http://127.0.0.1:9/", b"x"), "osv": (page.as_uri(), b"not there")}
    monkeypatch.setattr(audit, "SERVICES", nobody)
    assert audit.main() == audit.NOBODY == 3
    said = capsys.readouterr().err
    assert "nothing is known: pypi (" in said
    assert said.endswith("osv (it answers with something else)\n")
