"""Commands that have commands: without one they say what there is."""

import typer

__all__ = ["group"]


def group(description: str) -> typer.Typer:
    """An empty group; called without a command, it prints its help and ends with 2."""
    app = typer.Typer(rich_markup_mode=None, help=description)

    @app.callback(invoke_without_command=True)
    def options(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())
            raise typer.Exit(2)

    return app
