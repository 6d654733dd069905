"""Which versions pip would choose, and which of them each machine needs."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from supply.machines import Machine


@dataclass(frozen=True)
class Package:
    """A version that was chosen."""

    name: str
    version: Version
    requires: tuple[Requirement, ...]
    sha256: str
    local: bool  # whether the file lay on this machine, and did not come from an index


def chosen(
    requirements: Iterable[str], constraints: Iterable[str], *options: str, plain: bool = False
) -> list[Package]:
    """Ask pip what it would install here, wheels only.

    Args:
        requirements: what is wanted.
        constraints: lines that bound it.
        options: more of pip's own.
        plain: from PyPI alone, whatever this machine's pip is told to look at besides.

    Returns:
        All packages of the answer.
    """
    alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""} if plain else {}
    with tempfile.TemporaryDirectory() as folder:
        report, bounds = Path(folder) / "report.json", Path(folder) / "constraints.txt"
        bounds.write_text("\n".join(constraints), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--only-binary", ":all:", "--target", folder, "--constraint", str(bounds), "--report", str(report)]
        subprocess.run([*command, *options, *requirements], check=True, env={**os.environ, **alone})  # noqa: S603
        return [_package(one) for one in json.loads(report.read_text(encoding="utf-8"))["install"]]


def _package(found: dict[str, Any]) -> Package:
    told, file = found["metadata"], found["download_info"]
    return Package(
        name=canonicalize_name(told["name"]),
        version=Version(told["version"]),
        requires=tuple(Requirement(line) for line in told.get("requires_dist", ())),
        sha256=file["archive_info"]["hashes"]["sha256"],
        local=file["url"].startswith("file:"),
    )


def needed(roots: Iterable[str], packages: dict[str, Package], machine: Machine) -> dict[str, Requirement]:
    """Walk from what is wanted to all that one machine needs for it.

    Args:
        roots: what is wanted.
        packages: what is pinned, by name.
        machine: whose markers count. Both the first and the last of its Python's patches are looked at.

    Returns:
        Name to a requirement that asked for it; a name that `packages` does not have is not followed.

    Raises:
        SystemExit: a pinned version is not what some package asks for on that machine.
    """
    found: dict[str, Requirement] = {}
    for patch in (0, 99):
        words = machine.markers(patch)
        waiting, seen = [(Requirement(one), "") for one in roots], set()
        while waiting:
            wanted, extra = waiting.pop()
            name = canonicalize_name(wanted.name)
            if wanted.marker and not wanted.marker.evaluate({**words, "extra": extra}):
                continue
            package = packages.get(name)
            if package and not wanted.specifier.contains(package.version.public, prereleases=True):
                raise SystemExit(f"{name} is pinned to {package.version}, but {machine} has one that wants {wanted}")
            found.setdefault(name, wanted)
            for more in ("", *sorted(wanted.extras)):
                if package and (name, more) not in seen:
                    seen.add((name, more))
                    waiting += [(one, more) for one in package.requires]
    return found
