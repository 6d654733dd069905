"""``excite tags generate``: a corpus whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from excite.cli.console import progress

__all__ = ["EXAMPLES", "command"]

EXAMPLES = """\b
Examples:
  excite tags generate 1000000 --out made              a million pictures in made/corpus.parquet
  excite tags clean made/corpus.parquet --out kept.parquet
"""


def command(
    rows: Annotated[int, typer.Argument(metavar="PICTURES", min=1, help="How many pictures.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for the corpus and its truth.")],
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same corpus.")] = 0,
    tags: Annotated[int, typer.Option(min=100, help="How many common tags there are.")] = 60_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a corpus of any size whose truth is known, for tests and timing: no pictures, only their tags.

    truth.parquet tells for each picture which rule drops it, truth.tags.csv how often each tag is listed.
    """
    from excite.tags.synthetic import BLOCK, CORPUS, COUNTS, TRUTH, Generated, generate

    blocks = -(-rows // BLOCK)
    made = list(progress(generate(Generated(rows, seed, tags), out), blocks, "blocks"))[-1]
    files = [str(out / name) for name in (CORPUS, TRUTH, COUNTS)]
    answer = {"pictures": made, "files": files}
    typer.echo(json.dumps(answer) if as_json else f"{made:,} pictures; written: {', '.join(files)}")
