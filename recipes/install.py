"""Install excite from this checkout, with exactly the files that are written down (`make demo`, `make test`).

    python recipes/install.py demo        # or serve, or dev: into the environment of the python that runs this

Every file that pip fetches has to have one of the hashes in locks/; the builder of the package itself is among them.
Where no lock fits the machine, and with `--unlocked`, pip chooses under constraints.txt instead, and this says so.
Only Python's own library is used here: at this point there is nothing else.
"""

import argparse
import platform
import re
import subprocess
import sys
from importlib.metadata import requires
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
    reason = "--unlocked was asked for" if asked.unlocked else why_unlocked(asked.group, this_machine())
    try:
        unlocked(asked.group, reason) if reason else locked(asked.group)
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


def why_unlocked(group: str, machine: str) -> str:
    """Tell why a lock cannot serve a machine.

    Args:
        group: which lock.
        machine: as `this_machine` names it.

    Returns:
        The reason in words, and nothing if the lock fits.
    """
    fitting = re.findall(r"^# fits (.+)$", (LOCKS / f"{group}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return "" if machine in fitting else f"locks/{group}.txt fits {', '.join(fitting)}, and this is {machine}"


def locked(group: str) -> None:
    """Install the files of a lock, and this checkout on top, built with the builder that the lock brought."""
    from_lock(group)
    if needs_cuda(requires("torch") or []):
        from_lock("cuda")
    pip("install", *QUIET, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    pip("check", "--disable-pip-version-check", stdout=subprocess.DEVNULL)


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


def pip(*arguments: str, stdout: int | None = None) -> None:
    """Call pip of the running Python; its messages are for whoever started this."""
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, stdout=stdout)  # noqa: S603 - our own words


if __name__ == "__main__":
    sys.exit(main())
