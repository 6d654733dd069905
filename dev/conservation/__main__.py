"""Does all of the signal arrive? Every classifier family of torchvision and timm, with random weights.

    python dev/conservation --seed 0 --markdown docs/reference/architectures.md     start it again to resume
    python dev/conservation --family resnet --source timm --json
    python dev/conservation --list

Ends with 1 if any answer is wrong: negative or too much probability, other values than the plain network, a crash.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "dev"), str(ROOT / "src")]

from conservation.networks import architectures  # noqa: E402 - found in the folders above
from conservation.page import columns, page  # noqa: E402
from conservation.run import FIELDS, Conservation  # noqa: E402
from excite.cli.console import print_columns, progress, say, say_json  # noqa: E402
from excite.errors import ExciteError  # noqa: E402
from excite.io.files import save_text  # noqa: E402
from excite.jobs import Executor, ResultStore  # noqa: E402
from excite.jobs.loop import run  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen architectures; the exit code."""
    parser = argparse.ArgumentParser(prog="python dev/conservation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", metavar="TEXT", help="only families and models whose name contains this")
    parser.add_argument("--source", help="only those of torchvision, or only those of timm")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same weights")
    parser.add_argument("--out", type=Path, default=Path("excite-out"), help="folder of results; runs resume there")
    parser.add_argument("--workers", type=int, metavar="N", help="processes at the same time; 1 if none")
    parser.add_argument("--json", action="store_true", help="print one object a line for each model")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table as a page of documentation")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    asked = parser.parse_args(arguments)
    try:
        chosen = architectures(asked.source, asked.family)
    except ExciteError as error:
        parser.error(str(error))
    if asked.list:
        listed = [{"source": each.source, "family": each.family, "model": each.name} for each in chosen]
        say_json(listed) if asked.json else print_columns(listed)
        return 0
    store = ResultStore(asked.out / "conservation.jsonl", FIELDS)
    found = run(Conservation(asked.seed), chosen, store, workers=Executor(workers=asked.workers))
    rows = []
    for row in progress(found, len(chosen), "networks"):
        rows.append(row)
        say_json(row) if asked.json else say(_line(columns(row)))
    if asked.markdown is not None:
        save_text(page(rows, asked.seed), asked.markdown)
    return int(any(row["status"] == "wrong" for row in rows))


def _line(columns: Mapping[str, str]) -> str:
    """A row for the terminal: its status first, and then numbers and reasons."""
    _, model, status, *numbers, words = columns
    parts = [f"{name} {columns[name]}" for name in numbers if columns[name]] + [columns[words]] * bool(columns[words])
    return f"{columns[status]:9}  {columns[model]:45}  {', '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
