"""The part of MAINTAINING.md that a machine can check, but for the tests (`make release-check`). Changes nothing."""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import public_api
from check_wheel import built

import excite

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Check each point and say how it stands.

    Returns:
        The exit code: 1 if a point does not hold.
    """
    version = excite.__version__
    points = {
        f"pyproject.toml has the version {version} too": declared() == version,
        f"CHANGELOG.md has a dated section for {version}": f"## [{version}] - 20" in text("CHANGELOG.md"),
        "CHANGELOG.md has a place for what comes next": "## [Unreleased]" in text("CHANGELOG.md"),
        "SECURITY.md names this minor version": f"(now {'.'.join(version.split('.')[:2])})" in text("SECURITY.md"),
        "docs/api/ is what the code has": not list(public_api.differences(listed(), "\n".join(public_api.lines()))),
        "nothing is taken away unannounced": not taken_away(),
        "nothing is uncommitted": not git("status", "--porcelain"),
        f"the tag v{version} is not given yet": not git("tag", "--list", f"v{version}"),
        "the wheel and the sdist are built": both_built(version),
    }
    for point, holds in points.items():
        print(f"{'ok ' if holds else 'NO '} {point}")
    return 0 if all(points.values()) else 1


def declared() -> str:
    """The version of the package."""
    return str(tomllib.loads(text("pyproject.toml"))["project"]["version"])


def text(name: str) -> str:
    """A file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def listed() -> str:
    """The list of this version's API."""
    path = public_api.list_of(excite.__version__)
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def taken_away() -> list[str]:
    """What the version before had, and did not announce that it would go."""
    earlier = public_api.before(public_api.list_of(excite.__version__))
    return list(public_api.broken(earlier.read_text(encoding="utf-8"), listed())) if earlier else []


def git(*arguments: str) -> str:
    """What git says."""
    return subprocess.run(["git", *arguments], check=True, cwd=ROOT, capture_output=True, text=True).stdout.strip()  # noqa: S603, S607


def both_built(version: str) -> bool:
    """Whether both can be built and are named after the version."""
    with tempfile.TemporaryDirectory() as folder:
        return all(f"excite-{version}" in path.name for path in built(Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
