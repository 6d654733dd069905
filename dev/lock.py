"""Write locks/: every package of our environments, pinned, with the hashes of all files that may be it (`make lock`).

    python dev/lock.py                # what is locked stays, as far as pyproject.toml and constraints.txt allow
    python dev/lock.py --upgrade      # the newest of everything

uv chooses the versions, from PyPI alone, wheels only: one list for every system and each Python that is supported.
serve.txt and dev.txt hold what they need beyond the file before them. What torch wants of NVIDIA goes into cuda.txt,
for those who have that build. PyPI has no build of torch without CUDA for Linux, so locks/cpu.txt is written by hand:
its hash is that of the wheel from pytorch.org.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from install import GROUPS, LOCKS, ROOT

TOOLS = ["pip-audit", "uv"]
BUILDERS = ["editables"]  # what hatchling wants beside itself to install a checkout in place
CUDA = re.compile(r"(nvidia|cuda|triton)\b")
ENTRY = re.compile(r"^[\w.-]+==(?:.*\\\n)*.*", flags=re.MULTILINE)
TITLE = "# Written by `make lock` (dev/lock.py); not to be edited.\n"
UV = ("uv", "pip", "compile", "--quiet", "--universal", "--fork-strategy", "fewest", "--only-binary", ":all:")
OPTIONS = ("--generate-hashes", "--no-annotate", "--no-header", "--constraint", "constraints.txt")


def main() -> None:
    """Choose for the largest environment first, and take the same versions for the others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lowest = project["project"]["requires-python"].removeprefix(">=")
    build = [*project["build-system"]["requires"], *BUILDERS]
    before = "" if "--upgrade" in sys.argv[1:] else "\n".join(map(_read, ("demo", "serve", "dev", "cuda", "tools")))
    pins = chosen(build, "dev", lowest, before)
    write("cuda", [one for one in pins if CUDA.match(one)])
    known: list[str] = []
    for group, earlier in zip(GROUPS, ("", *GROUPS), strict=False):
        entries = [one for one in chosen(build, group, lowest, "\n".join(pins)) if not CUDA.match(one)]
        write(group, [one for one in entries if one not in known], earlier)
        known += entries
    write("tools", chosen(TOOLS, "", lowest, before))


def chosen(requirements: list[str], group: str, lowest: str, known: str) -> list[str]:
    """Let uv choose.

    Args:
        requirements: what is wanted.
        group: and what this extra of pyproject.toml wants.
        lowest: the lowest Python that it is for.
        known: pins that stay where they can.

    Returns:
        Pins with their hashes, as pip reads them.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, out = Path(folder) / "wanted.in", Path(folder) / "out.txt"
        wanted.write_text("\n".join(requirements), encoding="utf-8")
        out.write_text(known, encoding="utf-8")  # uv keeps the versions of the file that it writes
        source = ("pyproject.toml", "--extra", group) if group else ()
        command = (*UV, *OPTIONS, "--python-version", lowest, "--output-file", str(out), str(wanted), *source)
        program = str(Path(sys.executable).with_name(command[0]))
        subprocess.run((program, *command[1:]), check=True, cwd=ROOT, stdout=subprocess.DEVNULL)  # noqa: S603
        return ENTRY.findall(out.read_text(encoding="utf-8"))


def write(name: str, entries: list[str], earlier: str = "") -> None:
    """Write one lock, which may refer to an earlier one."""
    more = f"--requirement {earlier}.txt\n" if earlier else ""
    (LOCKS / f"{name}.txt").write_text(TITLE + more + "\n".join(entries) + "\n", encoding="utf-8")
    print(f"locks/{name}.txt: {len(entries)} packages")


def _read(name: str) -> str:
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    return "\n".join(ENTRY.findall(text))


if __name__ == "__main__":
    main()
