"""``excite tags show``: one tag of a corpus, the company it keeps, and pictures that list it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excite.cli.columns import print_columns
from excite.cli.console import progress
from excite.cli.options import Columns, CorpusArgument, columns_of
from excite.cli.tags.explore import note_unreadable, percent

if TYPE_CHECKING:
    from excite.tags.images import Pictures
    from excite.tags.tag_profile import TagFacts

__all__ = ["EXAMPLES", "command"]

EXAMPLES = """\b
Examples:
  excite tags show dog kept.parquet                                    how often, where in the lists, with which tags
  excite tags show "hot dog" kept.parquet --pictures photos --out dog.png      and 24 pictures that list it
  excite tags show holiday kept.parquet --json
"""
SPARE = 3  # pictures that may be tried for each one shown: some are gone
PLACES = ("1st", "2nd", "3rd", "4th", "5th", "later")
PRINTED = 15  # of the tags that come with it


def command(
    tag: Annotated[str, typer.Argument(metavar="TAG", help="The tag, as the corpus writes it.")],
    corpus: CorpusArgument,
    pictures: Annotated[
        str | None, typer.Option(metavar="ROOT", help="Where the pictures lie, for a figure of some that list the tag.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Write the figure there.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many pictures to show.")] = 24,
    columns: Columns = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """How often is a tag listed, at which place, by whom, and with which others?

    The lift of another tag says how many times more pictures list both than if the two had nothing to do with each
    other: 1 is chance, 20 is company. The figure shows pictures that list the tag among the first five.
    """
    from dataclasses import asdict

    from excite.tags.corpus import Corpus
    from excite.tags.figures import check_figures
    from excite.tags.images import open_pictures
    from excite.tags.tag_profile import tag_facts

    if (pictures is None) != (out is None):
        raise typer.BadParameter("a figure needs both: --pictures ROOT and --out FILE.png")
    if out is not None:
        check_figures()
    place = None if pictures is None else open_pictures(pictures)
    rows = Corpus(corpus, columns_of(columns, users_needed=False))
    facts = tag_facts(tag, rows, progress(rows.pieces, len(rows.pieces), "row groups"), samples=SPARE * limit)
    answer = asdict(facts) | {"places": dict(zip(PLACES, facts.places, strict=True))}
    del answer["samples"]
    failures = []
    if place is not None and out is not None:
        failures = _draw(facts, place, limit, corpus.name, out)
        answer |= {"unreadable_pictures": len(failures), "files": [str(out)]}
    typer.echo(json.dumps(answer)) if as_json else _print(answer)
    note_unreadable(failures)


def _draw(facts: TagFacts, place: Pictures, limit: int, corpus: str, out: Path) -> list[str]:
    """Draw pictures that list the tag, and say which ones could not be read."""
    from excite.errors import DataError
    from excite.io.files import save_png
    from excite.tags.contact_sheet import contact_sheet, read_pictures
    from excite.tags.tag_profile import shown

    if not facts.samples:
        raise DataError(f"no picture lists {shown(facts.tag)!r} among its first five tags: leave --pictures out")
    tagged, failures = read_pictures(facts.samples, place, limit)
    title = f"{corpus}: {len(tagged)} pictures that list “{shown(facts.tag)}” among the first five tags"
    save_png(contact_sheet(tagged, title, facts.tag), out)
    return failures


def _print(answer: dict[str, Any]) -> None:
    """All of it for people."""
    from excite.tags.tag_profile import shown

    typer.echo(
        f"{shown(answer['tag'])}: listed {answer['listed']:,} times, by {answer['pictures']:,} pictures; "
        f"rank {answer['rank']:,} of {answer['distinct']:,} tags"
    )
    shares = (f"{name} {percent(number / answer['listed'])}" for name, number in answer["places"].items())
    typer.echo(f"place in the lists: {', '.join(shares)}")
    if answer["together"]:
        typer.echo()
        print_columns(
            [
                {"comes with": shown(one["tag"]), "pictures": f"{one['pictures']:,}", "lift": f"{one['lift']:.1f}"}
                for one in answer["together"][:PRINTED]
            ]
        )
    if answer["users"]:
        typer.echo()
        print_columns([{"user": shown(one["user"]), "pictures": f"{one['pictures']:,}"} for one in answer["users"]])
    if "files" in answer:
        typer.echo(f"written: {', '.join(answer['files'])}")
