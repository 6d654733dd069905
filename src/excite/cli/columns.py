"""Aligned columns of text: never cut off, so that what is printed can be copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["print_columns"]


def print_columns(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows under the names of their columns."""
    lines = [[str(value) for value in row.values()] for row in rows]
    names = list(rows[0])
    widths = [max(len(line[k]) for line in [names, *lines]) for k in range(len(names))]
    typer.secho(_aligned(names, widths), bold=True)
    for line in lines:
        typer.echo(_aligned(line, widths))


def _aligned(words: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(word.ljust(width) for word, width in zip(words, widths, strict=True)).rstrip()
