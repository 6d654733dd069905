"""The wheel and the sdist hold all of the package and nothing else, and say the same."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import excite

ROOT = Path(__file__).parents[2]
MOST = 12_000_000  # bytes of the wheel; the tuned layers, the heads and the word lists are most of it
TOLD = f"excite-{excite.__version__}.dist-info"


def build(source, folder, *options):
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *options]
    ended = subprocess.run(command, check=False, cwd=source, capture_output=True, text=True, timeout=60)  # noqa: S603
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, the sdist, and the wheel that is made from the sdist."""
    here = build(ROOT, tmp_path_factory.mktemp("built"))
    sdist = next(here.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(here, filter="data")
    again = build(here / sdist.name.removesuffix(".tar.gz"), here / "again", "-t", "wheel")
    return next(here.glob("*.whl")), sdist, next(again.glob("*.whl"))


def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tracked(*places):
    """The files that git has, below some places; what lies around beside them is not part of the project."""
    command = ["git", "ls-files", "-z", "--", *places]
    listed = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout  # noqa: S603
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def test_the_wheel_is_the_source_and_no_more(built):
    inside = {name for name in content(built[0]) if not name.startswith(TOLD)}
    wanted = {name.removeprefix("src/") for name in tracked("src")}
    assert {
        "excite/py.typed",
        "excite/models/heads/words.safetensors",
        "excite/web/assets/page.js",
    } <= wanted
    assert inside == wanted
    assert built[0].stat().st_size < MOST


def test_the_sdist_gives_the_same_wheel(built):
    assert content(built[0]) == content(built[2])


def test_the_sdist_is_enough_to_test_it(built):
    with tarfile.open(built[1]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = tracked("src", "tests", "recipes", "dev", "examples", "docs", "locks", ".ci", "*.md", "mkdocs.yml")
    assert {"README.md", "SECURITY.md", "tests/supply/test_package.py", "locks/demo.txt"} <= wanted
    assert wanted | {"Makefile", "LICENSE", "constraints.txt", "pyproject.toml"} <= inside
    assert inside - tracked() <= {"PKG-INFO"}


def test_what_the_package_says_of_itself(built):
    files = content(built[0])
    told = Metadata.from_email(files[f"{TOLD}/METADATA"], validate=True)
    assert (told.name, str(told.version)) == ("excite", excite.__version__)
    assert told.license_expression == "Apache-2.0"
    assert files[f"{TOLD}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert str(told.requires_python) == ">=3.11"
    assert told.description_content_type == "text/markdown"
    assert told.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rb"^excite = excite\.cli:main$", files[f"{TOLD}/entry_points.txt"], re.MULTILINE)
    extras = {one for line in told.requires_dist for one in re.findall(r"extra == ['\"]([\w-]+)['\"]", str(line))}
    assert extras == set(told.provides_extra)
    assert {"demo", "serve", "dev", "timm"} <= extras
