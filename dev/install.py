"""Install excite from this checkout, with exactly the files that are written down (`make demo`, `make test`).

    python dev/install.py demo        # or serve, or dev: into the environment of the python that runs this

Every file that pip fetches has to have one of the hashes in locks/; the builder of the package itself is among them.
With `--unlocked` (`make demo LOCK=no`) pip chooses under constraints.txt instead, and this says so.
Only Python's own library is used here: at this point there is nothing else.
"""

import argparse
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
GROUPS = ("demo", "serve", "dev")
FAILED = """*** pip could not install the locked files. Where it found none that fits this machine: `make demo LOCK=no`
*** lets it choose under constraints.txt, without hashes."""
UNLOCKED = "*** NOT LOCKED, as asked: versions come from constraints.txt and from pip's choice; no hash is checked."


def main() -> int:
    """Install what was asked for.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--unlocked", action="store_true", help="under constraints.txt, without hashes")
    asked = parser.parse_args()
    try:
        (unlocked if asked.unlocked else locked)(asked.group)
    except subprocess.CalledProcessError:
        print("" if asked.unlocked else FAILED, file=sys.stderr)
        return 1
    return 0


def locked(group: str) -> None:
    """Install the files of a lock, and this checkout on top, built with the builder that the lock brought."""
    if pip(*from_lock("cpu"), check=False).returncode:  # first: PyPI's build for Linux brings four gigabytes of CUDA
        print("no index offers the locked build of torch without CUDA: PyPI's is taken", file=sys.stderr)
    pip(*from_lock(group))
    if needs_cuda(requires("torch") or []):
        pip(*from_lock("cuda"))
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    pip("check")


def from_lock(name: str) -> tuple[str, ...]:
    """What pip is told to install one file of locks/. Wheels only: to build from source is to run what is in it."""
    options = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-compile")
    return ("install", *options, "--requirement", str(LOCKS / f"{name}.txt"))


def needs_cuda(required: list[str]) -> bool:
    """Whether torch, by what it requires, is the build for NVIDIA's GPUs, on a system that has their libraries."""
    return sys.platform == "linux" and any(re.match(r"(nvidia|cuda)\b", one) for one in required)


def unlocked(group: str) -> None:
    """Let pip choose under constraints.txt, and say so where it will be seen."""
    print(UNLOCKED, file=sys.stderr)
    under = ("install", "--no-compile", "--constraint", str(ROOT / "constraints.txt"))
    pip(*under, "torch")  # first and alone: before anything that would ask for a newer one
    pip(*under, "--editable", f"{ROOT}[{group}]")


def pip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """Call pip of the running Python."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=check, stderr=None if check else subprocess.DEVNULL)  # noqa: S603 - our words


if __name__ == "__main__":
    sys.exit(main())
