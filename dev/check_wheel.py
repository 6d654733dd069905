"""Install the wheel and the sdist as a stranger does, in empty environments, and run the demo (`make check-wheel`).

    python dev/check_wheel.py [--out docs/trust/supply.json]

Both are built from this checkout. First the wheel comes alone: `import excite` and a map must work, and a command that
needs more must say in one line what to install. Then comes the extra `demo`, and the demo runs in an empty folder, away
from the repository. The sdist is installed with the extra at once, in another environment.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PHOTO = """
from PIL import Image
Image.radial_gradient("L").convert("RGB").save("photo.png")
import excite, json
print(json.dumps([excite.__version__, excite.__file__]))
"""
NEEDS = {  # a command that needs an extra, as somebody without it types it, and the extra
    "attend photo.png cat --model timm:resnet18": "timm",
    "attend photo.png cat --model torchvision:resnet18": "torchvision",
    "boxes . --engine ray": "ray",
    "export efficientnet-lite0 --onnx map.onnx": "onnx",
    "ground photo.png 'the cat'": "ground",
    "ground photo.png 'the cat' --proposals edge-boxes": "proposals",
    "serve": "serve",
    "tags stats corpus.parquet": "tags",
    "train tags corpus.parquet --out trained --tensorboard": "tensorboard",
}


def main() -> int:
    """Do all of it.

    Returns:
        The exit code: 1 if anything was not as it should be; the record says what.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where to write the record")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        wheel, sdist = built(here / "dist")
        first, second = Place(here / "of the wheel"), Place(here / "of the sdist")
        record = {
            "made by": "make check-wheel (python dev/check_wheel.py --out docs/trust/supply.json)",
            "python": platform.python_version(),
            "machine": f"{sys.platform} {platform.machine()}",
            "bytes": {"wheel": wheel.stat().st_size, "sdist": sdist.stat().st_size},
            "core": {"install seconds": first.install(str(wheel)), **core(first)},
            "wheel[demo]": {"install seconds": first.install(f"{wheel}[demo]"), **demo(first)},
            "sdist[demo]": {"install seconds": second.install(f"{sdist}[demo]"), **demo(second)},
        }
        record["packages"] = first.packages()
    text = json.dumps(record, indent=1) + "\n"
    print(text)
    if out:
        out.write_text(text, encoding="utf-8")
    faults = wrong(record)
    print("\n".join(faults) or "the wheel and the sdist do what they should")
    return 1 if faults else 0


def built(folder: Path) -> tuple[Path, Path]:
    """Build both, with the hatchling of this environment.

    Returns:
        The wheel and the sdist.
    """
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)  # noqa: S603
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


class Place:
    """An empty environment, and an empty folder to work in that knows nothing of the repository."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "environment", with_pip=True)
        self.bin = folder / "environment" / "bin"
        self.work = folder / "work"
        self.work.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._surroundings = {**kept, "PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.work)}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Type a command."""
        typed = ["/bin/sh", "-c", command]  # with the spaces and quotes that somebody would type
        return subprocess.run(  # noqa: S603
            typed, check=False, cwd=self.work, env=self._surroundings, capture_output=True, text=True, timeout=900
        )

    def install(self, what: str) -> float:
        """Install something as the README says, torch first; the seconds it took."""
        start = time.monotonic()
        pip = f"python -m pip install --quiet --no-compile --constraint '{ROOT / 'constraints.txt'}'"
        ended = self.run(f"{pip} torch && {pip} '{what}'")
        if ended.returncode:
            raise SystemExit(ended.stderr)
        return round(time.monotonic() - start, 1)

    def packages(self) -> dict[str, str]:
        """What is installed now."""
        listed = json.loads(self.run("python -m pip list --format json").stdout)
        return {one["name"]: one["version"] for one in listed}


def core(place: Place) -> dict[str, object]:
    """What works, and what is said, with nothing but the package and what it requires."""
    version, file = json.loads(place.run(f"python -c '{PHOTO}'").stdout)
    said = {f"excite {command}": ended(place.run(f"excite {command}")) for command in NEEDS}
    return {
        "version": version,
        "imported from the environment": Path(file).is_relative_to(place.bin.parent),
        "excite attend photo.png cat": ended(place.run("excite attend photo.png cat")),
        "without its extra": said,
    }


def demo(place: Place) -> dict[str, object]:
    """Run the demo's program, and the same question as a command."""
    (place.work / "demo.py").write_text((ROOT / "examples" / "demo.py").read_text(encoding="utf-8"), encoding="utf-8")
    start = time.monotonic()
    answer = ended(place.run("python demo.py"))
    picture = (place.work / "excite-out" / "demo.png").is_file()
    return {"demo": answer, "seconds": round(time.monotonic() - start, 1), "drew a picture": picture}


def ended(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """How a command ended and what it printed."""
    return {"code": done.returncode, "printed": (done.stdout + done.stderr).splitlines()}


def wrong(record: dict) -> list[str]:
    """What is not as it should be, in words."""
    core_, faults = record["core"], []
    if not core_["imported from the environment"] or core_["excite attend photo.png cat"]["code"]:
        faults.append("without extras, excite does not do its main job")
    for command, extra in NEEDS.items():
        answer = core_["without its extra"][f"excite {command}"]
        helped = re.search(rf"pip install 'excite\[{extra}\]'", " ".join(answer["printed"]))
        if not answer["code"] or len(answer["printed"]) != 1 or not helped:
            faults.append(f"excite {command}: it should say in one line: pip install 'excite[{extra}]'")
    for kind in ("wheel[demo]", "sdist[demo]"):
        answer = record[kind]["demo"]
        if answer["code"] or not record[kind]["drew a picture"] or "cat " not in answer["printed"][0]:
            faults.append(f"{kind}: the demo did not do its job")
    if record["wheel[demo]"]["demo"] != record["sdist[demo]"]["demo"]:
        faults.append("the wheel and the sdist do not give the same answer")
    return faults


if __name__ == "__main__":
    sys.exit(main())
