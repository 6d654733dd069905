"""The command ``excite`` and how it ends: an answer, or one line that says what to do."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from excite.cli import attend, ls

__all__ = ["main"]

app = typer.Typer(
    name="excite",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Where in this picture is the evidence for that concept?",
)
app.command("attend")(attend.command)
app.add_typer(ls.app, name="ls")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"excite {version('excite')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
) -> None:
    """Options of every command."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command; errors that excite foresees are one line on standard error and exit code 1."""
    from excite.errors import ExciteError

    arguments = sys.argv[1:] if arguments is None else arguments
    warnings.showwarning = lambda message, *_rest, **_more: typer.echo(f"excite: note: {message}", err=True)
    debug = "--debug" in arguments
    try:
        app([argument for argument in arguments if argument != "--debug"])  # welcome before and behind the command
    except ExciteError as error:
        if debug:
            raise
        typer.echo(f"excite: {error}", err=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        typer.echo("excite: stopped; what was finished is kept", err=True)
        raise SystemExit(130) from None
