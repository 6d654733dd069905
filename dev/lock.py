"""Write locks/: every package of our environments, pinned, with the hashes of all files that may be it (`make lock`).

    python dev/lock.py            # resolve under constraints.txt and write the files again
    python dev/lock.py --check    # is each locked file still published, and not taken back? writes nothing

Versions are chosen by pip on Python 3.11, the lowest that is supported. For the other machines that supply/machines.py
lists, the same versions are walked with their markers; whatever only they need is added. A machine for which a package
has no wheel is left out of that lock, whose first lines say which are in. All hashes are PyPI's own, except that of
torch's build without CUDA, which PyPI does not have: it is that of the file which this machine's pip prefers.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache

from install import GROUPS, LOCKS, ROOT, this_machine
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from supply.index import File, wheels
from supply.machines import ALL, PYTHONS, Machine, marker
from supply.resolving import Package, chosen, needed

BUILDER = ["editables"]  # what hatchling wants beside itself to install a checkout in place
AUDIT = ["pip-audit"]
TITLE = "# Written by `make lock` (dev/lock.py); not to be edited."
Pins = dict[str, Package]
Places = dict[str, frozenset[Machine]]


def main() -> int:
    """Write or check the locks.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only ask the index about what is locked")
    if parser.parse_args().check:
        return check()
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHONS[0]:
        raise SystemExit(f"make lock wants Python {PYTHONS[0]}: versions that it can have, newer ones can have too")
    LOCKS.mkdir(exist_ok=True)
    bounds = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    roots = {group: wanted(group) for group in GROUPS}
    pins = pinned(roots[GROUPS[-1]], bounds)
    before: Places = {}
    for group, earlier in zip(GROUPS, (None, *GROUPS), strict=False):
        before = write(group, where(roots[group], pins), pins, before, earlier)
    lock_cuda(pins, before)
    lock_cpu(pins["torch"])
    tools = pinned(AUDIT, bounds)
    write("audit", where(AUDIT, tools), tools)
    return 0


def wanted(group: str) -> list[str]:
    """The direct requirements of an environment.

    Args:
        group: the extra that it is for.

    Returns:
        Those of the package, of the extra (with the extras that it names), and of the builder.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]

    def opened(lines: Iterable[str]) -> list[str]:
        each = [(line, Requirement(line)) for line in lines]
        return [
            one
            for line, asked in each
            for one in (
                [line] if asked.name != "excite" else opened(o for e in sorted(asked.extras) for o in extras[e])
            )
        ]

    lines = [
        *project["project"]["dependencies"],
        *opened(extras[group]),
        *project["build-system"]["requires"],
        *BUILDER,
    ]
    return list(dict.fromkeys(lines))


def pinned(roots: list[str], bounds: list[str]) -> Pins:
    """Choose versions: first for this machine, then whatever only other machines need.

    Returns:
        By name.
    """
    pins = {one.name: one for one in chosen(roots, bounds)}
    while True:
        more = {name: (one, machine) for machine in ALL for name, one in needed(roots, pins, machine).items()}
        missing = {name: found for name, found in more.items() if name not in pins}
        if not missing:
            return pins
        for name, (asked, machine) in missing.items():
            platform = f"manylinux_2_28_{machine.kind}" if machine.system == "linux" else f"macosx_14_0_{machine.kind}"
            options = ("--no-deps", "--ignore-requires-python", "--python-version", machine.python)
            options += ("--platform", platform)  # pip asks the running Python otherwise, also where told not to
            pins |= {one.name: one for one in chosen([f"{name}{asked.specifier}"], exact(pins), *options)}


def exact(pins: Pins) -> list[str]:
    """Pins as lines of a constraints file."""
    return [f"{one.name}=={one.version.public}" for one in pins.values()]


def where(roots: list[str], pins: Pins) -> Places:
    """Which machines need each package."""
    by_machine = {machine: needed(roots, pins, machine) for machine in ALL}
    return {
        name: frozenset(machine for machine in ALL if name in by_machine[machine])
        for name in sorted({name for names in by_machine.values() for name in names})
    }


def lock_cuda(pins: Pins, known: Places) -> None:
    """Lock what torch needs beside itself when it comes as PyPI has it for Linux: NVIDIA's libraries."""
    torch = [f"torch=={pins['torch'].version.public}"]
    full = pins | {one.name: one for one in chosen(torch, exact(pins), plain=True)}
    write("cuda", {name: machines for name, machines in where(torch, full).items() if name not in known}, full)


def lock_cpu(torch: Package) -> None:
    """Lock the build of torch without CUDA that this machine's pip prefers, if it does; PyPI has none for Linux."""
    if torch.version.local is None:
        raise SystemExit("pip finds no build of torch without CUDA here: locks/cpu.txt is left as it is, look at it")
    lines = [TITLE, f"# fits {this_machine()}", f"torch=={torch.version} --hash=sha256:{torch.sha256}"]
    (LOCKS / "cpu.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write(name: str, places: Places, pins: Pins, before: Places | None = None, earlier: str | None = None) -> Places:
    """Write one file of locks/, without what an earlier one has already, to which it then refers.

    Returns:
        What was to be written, on the machines that have wheels for all of it.
    """
    fitting = frozenset(machine for machine in ALL if has_wheels(name, machine, places, pins))
    places = {package: machines & fitting for package, machines in places.items()}
    lines = [TITLE, *(f"# fits {machine}" for machine in ALL if machine in fitting)]
    lines += [f"--requirement {earlier}.txt"] if earlier else []
    for package, machines in places.items():
        rest = machines - (before or {}).get(package, frozenset())
        if rest:
            only = f" ; {text}" if (text := marker(rest, fitting)) else ""
            hashes = "".join(f" \\\n    --hash=sha256:{one}" for one in allowed(pins[package], rest))
            lines.append(f"{package}=={pins[package].version.public}{only}{hashes}")
    (LOCKS / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"locks/{name}.txt: {len(places)} packages, {len(fitting)} machines")
    return places


def has_wheels(lock: str, machine: Machine, places: Places, pins: Pins) -> bool:
    """Whether there is a wheel of everything that a machine needs; if not, which one is missing is printed."""
    lacking = [
        package
        for package, machines in places.items()
        if machine in machines and not any(fits(file, machine) for file in files_of(pins[package]))
    ]
    if lacking:
        print(f"locks/{lock}.txt will not fit {machine}: no wheel of {', '.join(lacking)}")
    return not lacking


def files_of(pin: Package) -> list[File]:
    """The wheels that the index has of a package, for any system."""
    return published(pin.name, Version(pin.version.public))


published = cache(wheels)


def allowed(pin: Package, machines: frozenset[Machine]) -> list[str]:
    """The hashes of the files that may be this package on some machine that needs it.

    Raises:
        SystemExit: a file was taken back, or this machine's own file is not PyPI's.
    """
    files = files_of(pin)
    fitting = [file for file in files if any(fits(file, machine) for machine in machines)]
    if any(file.yanked for file in fitting):
        raise SystemExit(f"{pin.name} {pin.version} was taken back by its makers: choose another in constraints.txt")
    hashes = sorted({file.sha256 for file in fitting})
    if pin.sha256 in {file.sha256 for file in files}:
        return hashes
    if pin.local and pin.version.local:  # it has a lock of its own
        return hashes
    raise SystemExit(f"{pin.name} {pin.version}: this machine's file is not one that PyPI has")


def fits(file: File, machine: Machine) -> bool:
    """Whether a machine can install a wheel."""
    return bool(parse_wheel_filename(file.name)[3] & tags(machine))


tags = cache(Machine.tags)


def check() -> int:
    """Ask the index about every locked hash.

    Returns:
        0 if all are there and none was taken back; the CPU build of torch, which PyPI does not have, is named.
    """
    bad = 0
    for path in sorted(LOCKS.glob("*.txt")):
        entries = re.findall(r"^(\S+)==(\S+)(.*(?:\\\n.*)*)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for name, version, rest in entries:
            known = {file.sha256: file for file in published(name, Version(version.split("+")[0]))}
            for one in re.findall(r"sha256:([0-9a-f]{64})", rest):
                if one not in known or known[one].yanked:
                    bad += path.stem != "cpu"
                    print(f"{path.name}: {name} {version} {one}: {'taken back' if one in known else 'not on PyPI'}")
        print(f"{path.name}: {len(entries)} packages looked up")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
