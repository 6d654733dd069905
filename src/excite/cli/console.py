"""Terminal output: lines, JSON, a progress bar, aligned columns, and failures. All commands print through this file."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import typer

from excite.errors import IN_PYTHON, LONGEST, one_line, shortened, visible, without_clauses

Item = TypeVar("Item")


def say(line: str = "", *, bold: bool = False, dim: bool = False) -> None:
    """Print a line; whatever it quotes, nothing in it acts on the terminal, and no word is endless."""
    words = (shortened(word, LONGEST, 800, 150) for word in visible(line).split(" "))
    typer.secho(" ".join(words), bold=bold or None, dim=dim or None)


def say_json(answer: object) -> None:
    """Print a value as one line of JSON, whose own escapes keep every text exact."""
    typer.echo(json.dumps(answer))


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a command, and exit with 2."""
    if context.invoked_subcommand is None:
        for line in context.get_help().splitlines():
            say(line)
        raise typer.Exit(2)


def complain(message: str) -> None:
    """Print a message on standard error, as one line, with options in place of Python's arguments."""
    line = one_line(message).replace("fully_convolutional=True", "--fully-convolutional")
    typer.echo(f"excite: {without_clauses(line, IN_PYTHON)}", err=True)


def note(message: Warning | str, *_where: object, **_more: object) -> None:
    """Print a note on standard error; a replacement for ``warnings.showwarning``."""
    complain(f"note: {message}")


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
    """Print rows under the names of their columns, aligned; only the middle of very long texts is left out."""
    lines = [list(rows[0]), *([shortened(visible(str(value))) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first, *others = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    say(first, bold=True)
    for line in others:
        say(line)


def tell_failures(failures: Sequence[str], pictures: int) -> None:
    """Print a line for each image or annotation that could not be read; if there is any, exit with 1."""
    for failure in failures:
        complain(failure)
    if failures:
        complain(f"{len(failures)} of {pictures} images could not be read")
        raise typer.Exit(1)
