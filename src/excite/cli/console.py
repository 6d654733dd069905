"""A progress bar on standard error for long work, and nothing at all for short work or when nobody looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


Item = TypeVar("Item")


def progress(items: Iterable[Item], total: int, what: str = "pictures") -> Iterator[Item]:
    """Pass ``items`` on while showing how many of ``total`` are done.

    The bar is there only while an item is made: whatever the caller prints about it has the terminal to itself.
    """
    if total < 2 or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    task = bar.add_task(what, total=total)
    try:
        bar.start()
        for item in items:
            bar.advance(task)
            bar.stop()
            yield item
            bar.start()
    finally:
        bar.stop()


# Aligned columns of text: never cut off, so that what is printed can be copied.


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


# How a command ends that could not read everything: it says what, and its exit code is not 0.


def tell_failures(failures: Sequence[str], pictures: int) -> None:
    """A line for each image or annotation that could not be read, and the end of the command if there is any."""
    for failure in failures:
        typer.echo(f"excite: {failure}", err=True)
    if failures:
        typer.echo(f"excite: {len(failures)} of {pictures} images could not be read", err=True)
        raise typer.Exit(1)
