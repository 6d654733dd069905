"""Install excite from this checkout, with exactly the files that are written down (`make demo`, `make test`).

    python dev/install.py demo        # or serve, or dev: into the environment of the python that runs this

Every file that pip fetches has to have one of the hashes in locks/; the builder of the package itself is among them.
Where no lock fits the machine, and with `--unlocked`, pip chooses under constraints.txt instead, and this says so.
Only Python's own library is used here: at this point there is nothing else.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
GROUPS = ("demo", "serve", "dev")
QUIET = ("--quiet", "--disable-pip-version-check", "--no-compile")


def main() -> int:
    """Install what was asked for, from the lock if it fits.

    Returns:
        The exit code: pip's own if it failed.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--unlocked", action="store_true", help="under constraints.txt, without hashes")
    asked = parser.parse_args()
    try:
        torch = torch_here()
        reason = "so it was asked" if asked.unlocked else why_unlocked(asked.group, this_machine(), torch)
        unlocked(asked.group, reason) if reason else locked(asked.group, torch)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


def this_machine() -> str:
    """Name this machine as the locks do.

    Returns:
        Its system, processor and Python: "linux x86_64 3.11"; a Linux with another C library says so.
    """
    libc = platform.libc_ver()[0]
    system = "linux-without-glibc" if sys.platform == "linux" and libc != "glibc" else sys.platform
    return f"{system} {platform.machine()} {sys.version_info.major}.{sys.version_info.minor}"


def torch_here() -> str:
    """Which torch there is in this environment, or else which one pip would take if no hash bound it.

    Returns:
        Its version. "2.13.0" is PyPI's; a machine that is told to look elsewhere may prefer "2.13.0+cpu".
    """
    with suppress(PackageNotFoundError):
        return version("torch")
    pinned = re.search(r"^torch==\S+", (LOCKS / "demo.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    asked = ("--dry-run", "--no-deps", "--report", "-", pinned[0] if pinned else "torch")
    report = pip("install", "--quiet", "--disable-pip-version-check", *asked, stdout=subprocess.PIPE)
    return str(json.loads(report)["install"][0]["metadata"]["version"])


def why_unlocked(group: str, machine: str, torch: str) -> str:
    """Tell why the locks cannot serve a machine.

    Args:
        group: what is to be installed.
        machine: as `this_machine` names it.
        torch: as `torch_here` says. What another place than PyPI has needs a lock of its own.

    Returns:
        The reason in words, and nothing if they fit.
    """
    if machine not in (fitting := fits(group)):
        return f"locks/{group}.txt fits {', '.join(fitting)}, and this is {machine}"
    if "+" in torch and not (is_cpu_build(torch) and machine in fits("cpu")):
        return f"the locks have no hash for torch {torch} on {machine}"
    return ""


def fits(name: str) -> list[str]:
    """The machines that a lock is for, by its own first lines."""
    return re.findall(r"^# fits (.+)$", (LOCKS / f"{name}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)


def is_cpu_build(torch: str) -> bool:
    """Whether it is the build of torch without CUDA that locks/cpu.txt has."""
    return f"\ntorch=={torch} " in (LOCKS / "cpu.txt").read_text(encoding="utf-8")


def locked(group: str, torch: str) -> None:
    """Install the files of a lock, and this checkout on top, built with the builder that the lock brought."""
    if is_cpu_build(torch):
        from_lock("cpu")  # first: PyPI's build has a hash in the next lock too, and four gigabytes of CUDA
    from_lock(group)
    if needs_cuda(requires("torch") or []):
        from_lock("cuda")
    pip("install", *QUIET, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    pip("check", "--disable-pip-version-check", stdout=subprocess.PIPE)


def from_lock(name: str) -> None:
    """Install what one file of locks/ lists. Wheels only: building from source would run whatever is in it."""
    command = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(LOCKS / f"{name}.txt"))
    pip("install", *QUIET, *command)


def needs_cuda(required: list[str]) -> bool:
    """Tell whether torch came as the build for NVIDIA's GPUs, which wants their libraries.

    Args:
        required: what the installed torch requires.

    Returns:
        Whether it does on this system. PyPI has that build for Linux; pytorch.org has one without.
    """
    return sys.platform == "linux" and any(re.match(r"(nvidia|cuda)\b", one) for one in required)


def unlocked(group: str, reason: str) -> None:
    """Let pip choose under constraints.txt, and say so where it will be seen."""
    print(f"*** NOT LOCKED: {reason}.", file=sys.stderr)
    print("*** Versions come from constraints.txt and from pip's choice; no hash is checked.", file=sys.stderr)
    under = ("--constraint", str(ROOT / "constraints.txt"))
    pip("install", *QUIET, *under, "torch")  # first and alone: before anything that would ask for a newer one
    pip("install", *QUIET, *under, "--editable", f"{ROOT}[{group}]")


def pip(*arguments: str, stdout: int | None = None) -> str:
    """Call pip of the running Python; its messages are for whoever started this.

    Returns:
        What it printed, if that was asked for.
    """
    command = [sys.executable, "-m", "pip", *arguments]
    ended = subprocess.run(command, check=False, stdout=stdout, text=True)  # noqa: S603 - our own words
    if ended.returncode:
        print(ended.stdout or "", file=sys.stderr)
        ended.check_returncode()
    return ended.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
