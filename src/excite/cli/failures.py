"""How a command ends that could not read everything: it says what, and its exit code is not 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["tell_failures"]


def tell_failures(failures: Sequence[str], pictures: int) -> None:
    """A line for each picture or annotation that could not be read, and the end of the command if there is any."""
    for failure in failures:
        typer.echo(f"excite: {failure}", err=True)
    if failures:
        typer.echo(f"excite: {len(failures)} of {pictures} pictures could not be read", err=True)
        raise typer.Exit(1)
