"""``excite fetch``: data sets from their publishers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from excite.cli.console import progress, say

EXAMPLES = """\b
Examples:
  excite fetch voc2007 --to data                 train, val and test, 0.9 GB
  excite fetch voc2007 --to data --split val     only the archive of train and val
  excite fetch coco2014 --to data/coco           the paper's validation images, 6.9 GB
"""


def _published(name: str) -> str:
    """Check the name before other options: some data sets cannot be fetched at all."""
    from excite.datasets.published import published_dataset

    published_dataset(name)
    return name


def command(
    name: Annotated[str, typer.Argument(metavar="DATASET", callback=_published, help="voc2007, coco2014 or coco2017.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="The folder it is put into.")],
    split: Annotated[
        list[str] | None,
        typer.Option(help="Only this split; may be given several times. By default all of VOC, and val of COCO."),
    ] = None,
) -> None:
    """Fetch a data set, check it by its hash and unpack it. Stopped and started again, it goes on where it was."""
    from excite.datasets.published import fetch_dataset

    folder = fetch_dataset(
        name, to, split or (), say=typer.echo, shown=lambda files, count: progress(files, count, "files")
    )
    say(f"next: excite bench pointing --data {shlex.quote(str(folder))} --split {(split or ['val'])[-1]}")
