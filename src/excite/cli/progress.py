"""A progress bar on standard error for long work, and nothing at all for short work or when nobody looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["progress"]

Item = TypeVar("Item")


def progress(items: Iterable[Item], total: int, what: str = "pictures") -> Iterator[Item]:
    """Pass ``items`` on while showing how many of ``total`` are done."""
    if total < 2 or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, total=total, console=Console(stderr=True))
