"""The command ``excite`` and how it ends: an answer, or one line that says what to do."""

from __future__ import annotations

import errno
import os
import signal
import sys
import textwrap
import threading
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from excite.cli import attend, bench, boxes, check, export, fetch, ground, layers, ls, serve, tags, train
from excite.cli.train import FINETUNE_EXAMPLES, finetune_command
from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


# How a command ends that failed: one line that says what to do, and an exit code that says what kind it was.

FAILED = 1
UNFORESEEN = 70  # a fault of excite itself; 70 is what Unix calls an internal error of software

AGAIN = "and start again: what was finished is kept"
NO_ROOM = f"make room {AGAIN}"
NOT_ALLOWED = "is it writable, and are you allowed to? Choose another folder, or change its permissions"
REMEDIES = {
    errno.ENOSPC: NO_ROOM,
    errno.EDQUOT: NO_ROOM,
    errno.EFBIG: NO_ROOM,
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.EROFS: NOT_ALLOWED,
    errno.EIO: f"the disk or the net does not answer as it should: see to it, {AGAIN}",
    errno.ENOENT: f"was it removed? Put it back {AGAIN}",
    errno.EMFILE: f"allow more with `ulimit -n 4096` {AGAIN}",
}
NO_MEMORY = f"not enough memory: use fewer workers or smaller images, {AGAIN}"
MEMORY_WORDS = ("can't allocate memory", "out of memory")  # torch raises a plain RuntimeError
REPORT = "this is a fault of excite: run it again with --debug and report what it prints"


def told(error: BaseException, command: str) -> tuple[str, int]:
    """What to say about an error, and the exit code.

    Args:
        error: what went wrong.
        command: what was run, such as "excite bench pointing".

    Example:
        >>> told(KeyError("x"), "excite attend")[0]
        "excite attend: KeyError: 'x'; this is a fault of excite: run it again with --debug and report what it prints"
        >>> told(OSError(28, "No space left on device", "out/a.png"), "excite attend")[0]
        "'out/a.png': No space left on device; make room and start again: what was finished is kept"
    """
    if isinstance(error, ExciteError):
        return str(error), FAILED
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in MEMORY_WORDS):
        return NO_MEMORY, FAILED
    if isinstance(error, OSError) and error.errno is not None:
        return _of_system(error), FAILED
    reason = str(error).partition("Original Traceback")[0]  # torch adds the trace of a worker
    said = textwrap.shorten(f"{type(error).__name__}: {reason}", 200).rstrip(" :")
    return f"{command}: {said}; {REPORT}", UNFORESEEN


def _of_system(error: OSError) -> str:
    """What the system refused, and what to do about it."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)!r}: "
    reason = error.strerror or os.strerror(error.errno or 0)
    return f"{where}{reason}; {REMEDIES.get(error.errno or 0, f'mend that {AGAIN}')}"


def flush_answers() -> str | None:
    """Hand all answers over; why that cannot be done, "" if nobody reads them any more, None if all is well.

    Otherwise Python would try when everything else is over, and show a trace.

    Example:
        >>> flush_answers() is None
        True
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go
        broken = error.errno == errno.EPIPE
        return "" if broken else f"cannot write the answers: {_of_system(error)}"
    return None


@contextmanager
def quiet_hooks(stop_at_once: Callable[[], None]) -> Iterator[None]:
    """For so long, an error that nobody can catch, in a thread or while things are tidied up, is one line as well.

    Args:
        stop_at_once: called when what got lost that way was the wish to stop.
    """

    def unraisable(lost: Any) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            stop_at_once()
        _note_lost("while tidying up", lost.exc_value)

    before = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = unraisable
    threading.excepthook = lambda lost: _note_lost("in a thread", lost.exc_value)
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = before


def _note_lost(where: str, error: BaseException | None) -> None:
    said = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
    sys.stderr.write(f"excite: note: {where}: {said}; --debug tells more\n")


# Ctrl-C and SIGTERM: the first ends the work in order, the second at once; neither shows a trace.

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CURSOR = "\x1b[?25h"  # a progress bar hides it


class Stopping:
    """Listens for a wish to stop, for as long as a command runs.

    Attributes:
        received: the signal that asked for it; None if none did.

    Example:
        >>> with Stopping() as stopping:
        ...     stopping.received is None
        True
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def code(self) -> int:
        """The exit code of a command that was stopped: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.received or signal.SIGINT)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # nobody else may listen
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before in {signal.SIG_DFL, signal.default_int_handler}:  # one who ignores it goes on to do so
                    self._before[number] = before
                    signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            self.at_once()
        self.received = number
        raise KeyboardInterrupt

    def finish(self) -> None:
        """The work is over: a wish to stop what little is left is fulfilled at once."""
        self.received = self.received or signal.SIGINT

    def at_once(self) -> None:
        """End without tidying up: all files are whole at every moment, and the next run removes what is half done."""
        told = f"{CURSOR if sys.stderr.isatty() else ''}excite: stopped at once; what was written down is kept\n"
        os.write(2, told.encode())
        os._exit(self.code)


# The command ``excite`` and how it ends: an answer, or one line that says what to do.

STOPPED = 130  # the exit code of a command that the user has stopped with Ctrl-C

# oneDNN keeps a kernel for every shape of image it has met, a thousand by default: 130 MB on 1000 images of VOC
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
app.command("finetune", epilog=FINETUNE_EXAMPLES)(finetune_command)
app.command("ground", epilog=ground.EXAMPLES)(ground.command)
app.command("serve", epilog=serve.EXAMPLES)(serve.command)
app.add_typer(bench.app, name="bench")
app.add_typer(ls.app, name="ls")
app.add_typer(tags.app, name="tags")
app.add_typer(train.app, name="train")


def _version(value: bool) -> None:
    if value:
        from excite import __version__

        typer.echo(f"excite {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,  # noqa: ARG001
) -> None:
    """Where in this image is the evidence for that concept?

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
