"""``excite tags shards``: the pictures of a corpus as tar files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excite.cli.console import progress
from excite.cli.options import Columns, CorpusArgument, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from excite.tags.images.shard_writer import Shard

__all__ = ["EXAMPLES", "command"]

EXAMPLES = """\b
Examples:
  excite tags shards kept.parquet --pictures photos --out shards              200 MB each
  excite tags shards kept.parquet --pictures photos --out shards --rows 10000
  excite tags shards kept.parquet --pictures . --urls --out shards            fetch pictures named by web addresses
"""

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SIZE_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


def command(
    corpus: CorpusArgument,
    pictures: Annotated[str, typer.Option(metavar="ROOT", help="Where its pictures lie: a folder, or other shards.")],
    out: Annotated[Path, typer.Option(help="The folder for the shards; a run that was stopped goes on there.")],
    size: Annotated[
        str | None, typer.Option(metavar="BYTES", help="A shard of this size is full, as 200MB or 1GB.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Pictures a shard, instead of a size.")] = None,
    urls: Annotated[
        bool,
        typer.Option("--urls", help="Fetch pictures that are named by web addresses: only for a corpus you trust."),
    ] = False,
    columns: Columns = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the pictures of a corpus, with their tags, as tar files in the WebDataset layout.

    Pictures are copied as they are, in the order of the corpus. Those that cannot be read are left out and counted.
    """
    from excite.tags.corpus import Corpus
    from excite.tags.images import open_pictures
    from excite.tags.images.shard_writer import SIZE, Sharding

    if size is not None and rows is not None:
        raise typer.BadParameter("--rows already says when a shard is full: leave --size out")
    room = None if rows is not None else SIZE if size is None else _bytes(size)
    sharding = Sharding(
        Corpus(corpus, columns_of(columns, users_needed=False)),
        open_pictures(pictures, urls=urls),
        out,
        room,
        rows,
        progress,
    )
    answer = _answer(sharding.write(), out)
    typer.echo(json.dumps(answer)) if as_json else _print(answer, out)
    for failure in sharding.failures:
        typer.echo(f"excite: {failure}", err=True)
    if answer["bad"]:
        typer.echo(f"excite: {answer['bad']} of {answer['read']} pictures were left out, as above", err=True)


def _bytes(text: str) -> int:
    """How many bytes are meant.

    Example:
        >>> _bytes("200MB"), _bytes("1.5 gb")
        (200000000, 1500000000)
    """
    if (meant := SIZE_TEXT.fullmatch(text.strip())) is None or float(meant[1]) == 0:
        raise typer.BadParameter(f"--size {text!r} is no size: write it as 200MB or 1GB")
    return int(float(meant[1]) * UNITS[meant[2].upper()])


def _answer(shards: Iterable[Shard], out: Path) -> dict[str, Any]:
    shards = list(shards)
    return {
        "read": sum(shard.end - shard.first for shard in shards),
        "written": sum(shard.pictures for shard in shards),
        "bad": sum(shard.bad for shard in shards),
        "repeated": sum(shard.repeated for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        "files": [str(out / shard.file) for shard in shards if shard.pictures],
    }


def _print(answer: dict[str, Any], out: Path) -> None:
    repeated = f", {answer['repeated']} named before" if answer["repeated"] else ""
    typer.echo(
        f"{answer['written']} of {answer['read']} pictures in {len(answer['files'])} shards "
        f"({answer['bytes'] / 1e6:.1f} MB); {answer['bad']} could not be read{repeated}"
    )
    typer.secho(f"next: excite train tags CORPUS --pictures {out}", dim=True)
