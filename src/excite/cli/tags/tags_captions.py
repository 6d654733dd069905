"""``excite tags captions``: a caption file as a corpus of tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["EXAMPLES", "command"]

EXAMPLES = """\b
Examples:
  excite tags captions captions_val2017.json --out corpus.parquet       the words of COCO's captions as tags
  excite tags captions results_20130124.token --out corpus.parquet      Flickr30k's
  excite tags captions captions.csv --out corpus.parquet --no-plurals   columns image and caption; dog and dogs differ
  excite tags captions captions.jsonl --out corpus.parquet --stop-words mine.txt --json
"""


def command(
    captions: Annotated[
        Path, typer.Argument(metavar="FILE", help="COCO's captions (.json), .jsonl, .csv, .tsv, .token, .txt; or .gz.")
    ],
    out: Annotated[Path, typer.Option(help="The corpus: a Parquet file with the columns image, tags, user.")],
    plurals: Annotated[
        bool, typer.Option("--plurals/--no-plurals", help="Make English plurals singular: dogs become dog.")
    ] = True,
    stop_words: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Words that are no tags, one a line, instead of excite's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the words of captions the tags of their pictures, those in most of a picture's captions first."""
    from excite.tags.formats.captions import captions_to_corpus
    from excite.tags.formats.stop_words import STOP_WORDS, read_stop_words

    words = STOP_WORDS if stop_words is None else read_stop_words(stop_words)
    answer = captions_to_corpus(captions, out, plurals=plurals, stop_words=words)
    answer["file"] = str(out)
    typer.echo(json.dumps(answer)) if as_json else _print(answer)


def _print(answer: dict[str, Any]) -> None:
    """What was made, and what was left out."""
    typer.echo(
        f"{answer['pictures']} pictures with {answer['captions']} captions: {answer['words']} tags, "
        f"{answer['distinct']} different ones"
    )
    if answer["skipped"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in answer["skipped"].items())
        typer.echo(f"skipped: {reasons}")
    typer.echo(f"written: {answer['file']}")
