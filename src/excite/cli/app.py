"""The command ``excite`` and how it ends: an answer, or one line that says what to do."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import ExitStack
from typing import Annotated

import typer

from excite.cli import (
    attend,
    bench,
    boxes,
    check,
    export,
    fetch,
    finetune,
    ground,
    layers,
    ls,
    serve,
    tags,
)
from excite.cli import (
    cli_train as train,
)
from excite.cli.ending import FAILED, flush_answers, quiet_hooks, told
from excite.cli.stopping import Stopping

__all__ = ["main"]

STOPPED = 130  # the exit code of a command that the user has stopped with Ctrl-C

# oneDNN keeps a kernel for every shape of picture it has met, a thousand by default: 130 MB on 1000 pictures of VOC
KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "200")

app = typer.Typer(
    name="excite",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: help that can be piped, and errors of one line
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("attend", epilog=attend.EXAMPLES)(attend.command)
app.command("boxes", epilog=boxes.EXAMPLES)(boxes.command)
app.command("check", epilog=check.EXAMPLES)(check.command)
app.command("layers", epilog=layers.EXAMPLES)(layers.command)
app.command("export", epilog=export.EXAMPLES)(export.command)
app.command("fetch", epilog=fetch.EXAMPLES)(fetch.command)
app.command("finetune", epilog=finetune.EXAMPLES)(finetune.command)
app.command("ground", epilog=ground.EXAMPLES)(ground.command)
app.command("serve", epilog=serve.EXAMPLES)(serve.command)
app.add_typer(bench.app, name="bench")
app.add_typer(ls.app, name="ls")
app.add_typer(tags.app, name="tags")
app.add_typer(train.app, name="train")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"excite {version('excite')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,  # noqa: ARG001
) -> None:
    """Where in this picture is the evidence for that concept?

    Start with: excite attend PHOTO
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; an error is one line on standard error and an exit code that is not 0.

    Ctrl-C ends it with 130 and SIGTERM with 143, a fault of excite itself with 70. Only ``--debug`` shows a trace.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        SystemExit: 0
    """
    given = sys.argv[1:] if arguments is None else arguments
    os.environ.setdefault(*KERNELS)
    warnings.showwarning = _note
    debug = "--debug" in given
    with ExitStack() as ending:
        stopping = ending.enter_context(Stopping())
        if not debug:
            ending.enter_context(quiet_hooks(stopping.at_once))
        line, code = _run(given, stopping, debug=debug)
        if line:
            typer.echo(f"excite: {line}", err=True)
        if arguments is None:  # this process is the command: what ends after this is quiet, too
            stopping.finish()
            ending.pop_all()
    raise SystemExit(code)


def _run(arguments: list[str], stopping: Stopping, *, debug: bool) -> tuple[str | None, int]:
    """What to say in the end, if anything, and the exit code."""
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]  # click's, or that of typer's own copy of click
    try:
        code = app(  # --debug is welcome before and behind the command
            [argument for argument in arguments if argument != "--debug"],
            prog_name="excite",
            standalone_mode=False,
            obj=arguments,  # for commands that write down how they were called
        )
    except usage_error as error:
        return _one_line(error), 2
    except (KeyboardInterrupt, Exception) as error:
        if stopping.received is None and not isinstance(error, KeyboardInterrupt):
            if debug:
                raise
            flush_answers()
            return told(error, _command(arguments))
        code = STOPPED  # whatever else goes wrong then is of its making
    unwritten = flush_answers()
    if code == STOPPED:
        return "stopped; what was finished is kept", stopping.code
    if unwritten is not None:
        return unwritten, FAILED
    return None, code or 0


def _command(arguments: list[str]) -> str:
    """What was run, without its options: "excite bench pointing"."""
    groups = {group.name for group in app.registered_groups}
    words = [argument for argument in arguments if not argument.startswith("-")]
    return " ".join(["excite", *words[: 2 if words and words[0] in groups else 1]])


def _note(message: Warning | str, *_where: object, **_more: object) -> None:
    """A warning as one line; written so that a progress bar makes room for it."""
    sys.stderr.write(f"excite: note: {message}\n")


def _one_line(error: Exception) -> str:
    """What is wrong with the arguments, and where to read about them."""
    said = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "excite"
    return f"{said[:1].lower()}{said[1:]} (see `{command} --help`)"
