"""Measure what docs/reference/numbers.md promises, and write it to docs/trust/numbers.json.

python dev/trust_numbers.py [PART ...] [--ledger excite-out/conservation.jsonl] [--data VOCdevkit/VOC2007]

All parts, or those that are named; the others stay as they were.

- architectures: float32 against float64, from the ledger of `python dev/conservation --seed 0`
- golden: the same for the golden maps, as `python dev/golden_maps.py --exact` prints it
- commands: `excite attend` and `excite bench pointing` in processes of their own, with 1 and 2 threads and workers
- moved_by: how far maps move with two threads, and in a batch
- checks: how long looking for NaN and infinity takes, of a map
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from conservation.page import record
from conservation.run import FIELDS
from golden_maps import exact_gaps, moved
from PIL import Image
from skimage import data

import excite
from excite.io.files import save_text
from excite.jobs import ResultStore
from excite.propagation import ExcitationPass, prior
from excite.propagation.taps import all_finite

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "trust" / "numbers.json"
PHOTOGRAPHS = ("chelsea", "coffee", "astronaut", "rocket")
FILES = {"attend": "*.npy", "pointing": "**/rows.json"}

Facts = dict[str, Any]


def architectures(store: Path) -> Facts:
    """Worst and median gap over all architectures of a run."""
    rows = list(ResultStore(store, FIELDS).read().values())
    return {"command": "python dev/conservation --seed 0", "rows": len(rows), **record(rows)}


def golden() -> Facts:
    """Worst and median gap of the golden maps."""
    gaps = exact_gaps()
    worst = max(gaps, key=gaps.__getitem__)
    middle = statistics.median(gaps.values())
    return {"command": "python dev/golden_maps.py --exact", "maps": len(gaps), "worst": gaps[worst],
            "worst_map": worst, "median": middle}  # fmt: skip


def commands(data: Path | None) -> Facts:
    """Whether commands give the same bytes, however many threads and workers they have, and in a second run."""
    with tempfile.TemporaryDirectory() as folder:
        photographs(Path(folder) / "photos")
        asked = {"attend": ["attend", "photos", "--arrays", "--no-overlays"]}
        if data is not None:
            asked["pointing"] = ["bench", "pointing", "--data", str(data.resolve()), "--limit", "8", "--no-page"]
        return {name: _same(name, arguments, Path(folder)) for name, arguments in asked.items()}


def photographs(folder: Path) -> None:
    """Photographs of scikit-image as files."""
    folder.mkdir()
    for name in PHOTOGRAPHS:
        Image.fromarray(getattr(data, name)()).save(folder / f"{name}.png")


def _same(name: str, arguments: list[str], folder: Path) -> Facts:
    digests = {}
    for run, (threads, workers) in enumerate([*product((1, 2), (1, 2)), (1, 1)]):
        out = folder / f"{name}{run}"
        more = ["--workers", str(workers), "--out", str(out)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "excite", *arguments, *more], cwd=folder, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        digests[f"run {run + 1}: {threads} threads, {workers} workers"] = _digest(sorted(out.glob(FILES[name])))
    same = len(set(digests.values())) == 1
    return {"command": " ".join(["excite", *arguments]), "same_bytes": same, "sha256": digests}


def _digest(files: list[Path]) -> str:
    if not files:
        raise SystemExit("the command wrote nothing to compare")
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:16]


def threads_and_batches(classifier: excite.Classifier) -> Facts:
    """How far maps of c-MWP (L1, of the map) move from one thread to two, and from one image to a batch."""
    pictures = [getattr(data, name)() for name in PHOTOGRAPHS]
    square = [np.asarray(Image.fromarray(each).resize((300, 300))) for each in pictures]
    found: dict[str, list[Any]] = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found[f"{threads}"] = [excite.attend(classifier, each, 281)[0].numpy() for each in square]
    torch.set_num_threads(1)
    found["batch"] = [maps[0].numpy() for maps in excite.attend_batch(classifier, square, 281)]
    ways = {"two threads": found["2"], "a batch of four": found["batch"]}
    return {
        way: {
            "worst": max(moved(one, other) for one, other in zip(found["1"], there, strict=True)),
            "same_bits": all(np.array_equal(one, other) for one, other in zip(found["1"], there, strict=True)),
        }
        for way, there in ways.items()
    }


def checks(classifier: excite.Classifier) -> Facts:
    """The time of looking for numbers that are none, of the time of a map (c-MWP, one thread, the quickest of each)."""
    torch.set_num_threads(1)
    picture = classifier.prepared(Image.fromarray(data.chelsea()), 1.0)[None]
    layer = classifier.layer or ""

    def a_map() -> tuple[ExcitationPass, torch.Tensor]:
        sweep = ExcitationPass(classifier.module, picture, [layer])
        return sweep, sweep.down(prior(sweep.output, {281: 1.0}), dual=-1.0)[layer]

    sweep, values = a_map()
    whole = min(_seconds(a_map) for _ in range(20))
    looking = min(_seconds(lambda: [all_finite(each) for each in (picture, sweep.output, values)]) for _ in range(200))
    return {"map_seconds": whole, "check_seconds": looking, "share": looking / whole}


def _seconds(work: Any) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--ledger", type=Path, default=Path("excite-out/conservation.jsonl"))
    parser.add_argument("--data", type=Path)
    asked = parser.parse_args()
    parts: dict[str, Callable[[], Facts]] = {
        "architectures": lambda: architectures(asked.ledger),
        "checks": lambda: checks(excite.load("efficientnet-lite0")),
        "moved_by": lambda: threads_and_batches(excite.load("efficientnet-lite0")),
        "commands": lambda: commands(asked.data),
        "golden": golden,
    }
    facts: Facts = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    facts |= {"command": "python dev/trust_numbers.py", "torch": torch.__version__}
    facts |= {name: parts[name]() for name in asked.parts or parts}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    save_text(json.dumps(facts, indent=2) + "\n", RECORD)
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
