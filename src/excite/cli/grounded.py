"""A phrase and the regions it may refer to, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from excite.cli.columns import print_columns

if TYPE_CHECKING:
    from excite.attention import AttentionMap
    from excite.grounding import Grounded, Region

__all__ = ["print_grounded"]


def print_grounded(grounded: Grounded, file: str | None) -> None:
    """Print its words, what weighed and what was skipped, its regions, its point, and where it was drawn."""
    reading, words = grounded.map.reading, grounded.map.words
    typer.secho(grounded.phrase, bold=True)
    if reading.words:
        print_columns([_word_row(word.text, found) for word, found in zip(reading.words, words, strict=True)])
    _print_others(grounded)
    if grounded.regions:
        print_columns([_region_row(rank, region) for rank, region in enumerate(grounded.regions, 1)])
    else:
        typer.echo("regions: none, there is no evidence for it anywhere")
    point = grounded.map.point
    typer.echo(f"point: {'nowhere' if point is None else '{}, {}'.format(*point)}")
    if file is not None:
        typer.echo(f"written: {file}")


def _print_others(grounded: Grounded) -> None:
    """The words that are not looked for: those that weigh the map, and those of no account."""
    from excite.grounding.unheeded import span_of, unheeded

    reading, hints = grounded.map.reading, grounded.map.hints
    for what, spans in (("weighed by", [*map(span_of, hints)]), ("skipped", unheeded(reading, hints))):
        if spans:
            typer.echo(f"{what}: {', '.join(reading.text[start:end] for start, end in spans)}")


def _word_row(word: str, found: AttentionMap) -> dict[str, str]:
    from excite.readouts.figure import percent

    return {
        "word": word,
        "meaning": found.concept,
        "probability": percent(found.probability),
        "mass": f"{found.mass:.3f}",
    }


def _region_row(rank: int, region: Region) -> dict[str, str]:
    return {
        "rank": str(rank),
        "box": ", ".join(f"{side:.0f}" for side in region.box),
        "score": f"{region.score:.4g}",
    }
