"""Terminal output: a progress bar, aligned columns, and failures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


Item = TypeVar("Item")


def progress(items: Iterable[Item], total: int, what: str = "pictures") -> Iterator[Item]:
    """Pass ``items`` on with a progress bar on standard error, if that is a terminal and ``total`` is not 1.

    The bar is hidden while the caller handles an item, and may print.
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


def print_columns(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows under the names of their columns, aligned and never cut off."""
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first, *others = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    typer.secho(first, bold=True)
    for line in others:
        typer.echo(line)


def tell_failures(failures: Sequence[str], pictures: int) -> None:
    """Print a line for each image or annotation that could not be read; if there is any, exit with 1."""
    for failure in failures:
        typer.echo(f"excite: {failure}", err=True)
    if failures:
        typer.echo(f"excite: {len(failures)} of {pictures} images could not be read", err=True)
        raise typer.Exit(1)
