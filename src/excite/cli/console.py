"""A progress bar on standard error for long work, and nothing at all for short work or when nobody looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["progress"]

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
