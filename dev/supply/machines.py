"""The machines that the lock is for: what their markers say, which wheels fit, and how to name a set of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms

PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("linux x86_64", "linux aarch64", "darwin arm64")
GLIBC = range(28, 4, -1)  # torch itself wants 2.28
MAC = (14, 0)  # and macOS 14


@dataclass(frozen=True)
class Machine:
    """A Python on a system.

    Example:
        >>> Machine("3.11", "linux", "x86_64").markers()["platform_system"]
        'Linux'
    """

    python: str
    system: str
    kind: str

    def __str__(self) -> str:
        return f"{self.system} {self.kind} {self.python}"

    def markers(self, patch: int = 0) -> dict[str, str]:
        """The words that markers ask for.

        Args:
            patch: the last number of the version of Python.

        Returns:
            Word to value.
        """
        full = f"{self.python}.{patch}"
        return {
            "python_version": self.python,
            "python_full_version": full,
            "implementation_name": "cpython",
            "implementation_version": full,
            "platform_python_implementation": "CPython",
            "os_name": "posix",
            "sys_platform": self.system,
            "platform_system": self.system.capitalize(),
            "platform_machine": self.kind,
            "platform_release": "",
            "platform_version": "",
            "extra": "",
        }

    def tags(self) -> frozenset[Tag]:
        """The tags of the wheels that it can install."""
        version = tuple(int(part) for part in self.python.split("."))
        platforms = list(self._platforms())
        name = f"cp{version[0]}{version[1]}"
        return frozenset([*cpython_tags(version, platforms=platforms), *compatible_tags(version, name, platforms)])

    def _platforms(self) -> list[str]:
        if self.system == "darwin":
            return list(mac_platforms(MAC, self.kind))
        old = ["manylinux2014", "manylinux2010", "manylinux1"]
        return [*(f"manylinux_2_{minor}_{self.kind}" for minor in GLIBC), *(f"{one}_{self.kind}" for one in old)]


ALL = tuple(Machine(version, *machine.split()) for version, machine in product(PYTHONS, MACHINES))


def marker(needed: frozenset[Machine], among: frozenset[Machine] = frozenset(ALL)) -> str:
    """Name a set of machines as pip's markers do.

    Args:
        needed: some of the machines.
        among: all that there may be.

    Returns:
        A marker that is true on the needed machines and on no others of those that there may be; empty for all.

    Example:
        >>> marker(frozenset(one for one in ALL if one.system == "darwin"))
        'sys_platform == "darwin" and platform_machine == "arm64"'
    """
    systems = sorted({(one.system, one.kind) for one in needed})
    pythons = sorted({one.python for one in needed})
    if len(needed) < len(systems) * len(pythons):
        each = (frozenset(one for one in needed if (one.system, one.kind) == system) for system in systems)
        return " or ".join(f"({marker(some, among)})" for some in each)
    every = {(one.system, one.kind) for one in among}, {one.python for one in among}
    parts = []
    if set(systems) < every[0]:
        parts.append(either(f'sys_platform == "{name}" and platform_machine == "{kind}"' for name, kind in systems))
    if set(pythons) < every[1]:
        parts.append(either(f'python_version == "{one}"' for one in pythons))
    return parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)


def either(clauses: Iterable[str]) -> str:
    """Join clauses of which one must be true."""
    each = list(clauses)
    return each[0] if len(each) == 1 else " or ".join(f"({one})" for one in each)
