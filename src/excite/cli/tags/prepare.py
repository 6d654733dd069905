"""``excite tags clean``: the paper's rules for a corpus of pictures with tags."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excite.cli.console import progress
from excite.cli.options import Address, Columns, Engine, Workers, columns_of, crew_of

if TYPE_CHECKING:
    from excite.tags.cleaning.duplicates import Alike

__all__ = ["EXAMPLES", "command"]

EXAMPLES = """\b
Examples:
  excite tags clean raw.parquet --out kept.parquet                     as in the paper's appendix
  excite tags clean raw.csv --out kept.parquet --columns image=url,tags=keywords,user=owner --min-count 50
  excite tags clean raw.parquet --out kept.parquet --pictures photos --near 4     also pictures that look the same
  excite tags clean raw.parquet --out kept.parquet --choices           and what other thresholds would cost
  excite tags stats kept.parquet                                       what is in it
  excite train tags kept.parquet --pictures photos --out classifier    learn it
"""


def command(
    corpus: Annotated[
        Path, typer.Argument(metavar="CORPUS", help="Parquet (a file or a folder of parts), CSV, TSV or JSON Lines.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file for what is kept; others lie beside it.")],
    min_count: Annotated[int, typer.Option(min=1, help="A tag seen at least so often is in the dictionary.")] = 1000,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Only the K most frequent tags are in the dictionary.")
    ] = None,
    min_tags: Annotated[int, typer.Option(min=0, help="A picture with fewer tags is dropped.")] = 5,
    keep_alphabetical: Annotated[
        bool, typer.Option("--keep-alphabetical", help="Keep pictures whose tags stand in alphabetical order.")
    ] = False,
    keep_similar: Annotated[
        bool, typer.Option("--keep-similar", help="Keep pictures that begin like another one of the same user.")
    ] = False,
    first: Annotated[int, typer.Option(min=1, max=20, help="How many first tags are compared.")] = 5,
    overlap: Annotated[int, typer.Option(min=0, help="Pictures that share more of them are similar.")] = 3,
    against: Annotated[
        str, typer.Option(metavar="seen|kept", help="Compare with all earlier pictures of the user, or kept ones only.")
    ] = "seen",
    plurals: Annotated[bool, typer.Option("--plurals", help="Fold English plurals: cats and cat are one tag.")] = False,
    columns: Columns = None,
    pictures: Annotated[
        str | None, typer.Option(metavar="FOLDER|SHARDS", help="Where the pictures lie: needed for --near.")
    ] = None,
    near: Annotated[
        int | None, typer.Option(min=0, max=30, metavar="BITS", help="Drop pictures that look like an earlier one.")
    ] = None,
    urls: Annotated[bool, typer.Option("--urls", help="For --near, fetch pictures that are web addresses.")] = False,
    choices: Annotated[bool, typer.Option("--choices", help="Also tell what other thresholds would keep.")] = False,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Keep the pictures of a tag corpus that are worth learning from, and take its dictionary.

    Dropped are pictures with fewer than five tags, those whose tags stand in alphabetical order, and those whose first
    five tags share more than three with an earlier picture of the same user. Every dropped picture is listed with its
    reason. A run that was stopped goes on where it was.
    """
    from excite.tags.cleaning.rules import Rules
    from excite.tags.cleaning.run import Cleaning
    from excite.tags.normalising import Normalising

    started = time.monotonic()
    cleaning = Cleaning(
        source=corpus,
        out=out,
        rules=Rules(min_count, top, min_tags, not keep_alphabetical, not keep_similar, first, overlap, against),
        normalising=Normalising(plurals=plurals),
        columns=columns_of(columns, users_needed=not keep_similar),
        workers=crew_of(workers, engine, address),
        watch=progress,
        alike=_alike(pictures, near, urls=urls),
        choices=choices,
    )
    report = cleaning.clean()
    report["seconds"] = round(time.monotonic() - started, 1)
    report["peak_mb"] = _peak(workers or 1)
    report["files"] = [str(out), *(str(out.with_suffix(end)) for end in (".tags.csv", ".dropped.parquet"))]
    typer.echo(json.dumps(report)) if as_json else _print(report)
    if not report["tags"]:
        typer.echo(f"excite: note: no tag is listed {min_count} times: give a lower --min-count", err=True)


def _alike(pictures: str | None, near: int | None, *, urls: bool) -> Alike | None:
    from excite.tags.cleaning.duplicates import Alike
    from excite.tags.images import open_pictures

    if near is None:
        return None
    if pictures is None:
        raise typer.BadParameter("--near looks at the pictures: say with --pictures where they lie")
    return Alike(open_pictures(pictures, urls=urls), near)


def _peak(workers: int) -> int:
    """No more memory than this was used at any time, in megabytes: the peaks of this process and all its workers."""
    own, largest = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (own + workers * largest) // 1024


def _print(report: dict[str, Any]) -> None:
    typer.echo(f"{report['kept']:,} of {report['read']:,} pictures are kept; dropped:")
    for rule, number in report["dropped"].items():
        typer.echo(f"  {number:>12,}  {rule.replace('_', ' ')}")
    typer.echo(
        f"{report['tags']:,} tags in the dictionary, of {report['different_tags']:,} different ones; "
        f"{report['seconds']:.0f} s, at most {report['peak_mb']:,} MB"
    )
    changed = ", ".join(f"{number:,} {how.replace('_', ' ')}" for how, number in report["changed"].items())
    typer.echo(f"tags changed: {changed or 'none'} (of {report['listed_tags']:,} listed)")
    typer.echo(f"written: {', '.join(report['files'])}")
    typer.secho(f"next: excite tags stats {report['files'][0]}", dim=True)
