"""The command ``excite``. It ends with its results, or with one line of error and remedy; never with a trace."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Annotated, Any, Self

import typer

from excite.cli import attend, bench, check, export, find, ground, ls, reproduce, serve, tags, train
from excite.cli.console import complain, help_without_command, note, say
from excite.cli.help import HELP_NAMES, Commands
from excite.cli.train import FINETUNE_EXAMPLES, finetune_command
from excite.errors import ExciteError, visible

FAILED, STOPPED, UNEXPECTED = 1, 130, 70  # exit codes; 130 after Ctrl-C, 70 is EX_SOFTWARE of Unix

AGAIN = "and start again: what was finished is kept"
NOT_ALLOWED = "is it writable, and are you allowed to? Choose another folder, or change its permissions"
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), f"make room {AGAIN}"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), NOT_ALLOWED),
    errno.EIO: f"the disk or the net does not answer as it should: see to it, {AGAIN}",
    errno.ENOENT: f"was it removed? Put it back {AGAIN}",
    errno.EMFILE: f"allow more with `ulimit -n 4096` {AGAIN}",
}
NO_MEMORY = f"not enough memory: use fewer workers or smaller images, {AGAIN}"
MEMORY_WORDS = ("can't allocate memory", "out of memory")  # torch raises a plain RuntimeError
REPORT = "this is a fault of excite: run it again with --debug and report what it prints"

KEPT = str(2**30)  # bytes of free memory that glibc does not return to the system
SETTINGS = {  # environment variables, for this process and its workers, unless the user has set them
    # oneDNN keeps a kernel for every shape of image it has met, a thousand by default: 130 MB on 1000 images of VOC
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "200",
    # what one operation of a network frees, the next one needs: returned and taken again, its pages are cleared each
    # time, for a third of the time of a small network
    "MALLOC_TRIM_THRESHOLD_": KEPT,
    "MALLOC_MMAP_THRESHOLD_": KEPT,
}
MALLOPT = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}  # glibc's numbers of the same settings

app = Commands(
    name="excite",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES, "max_content_width": 110},
)
app.command("attend", epilog=attend.EXAMPLES)(attend.command)
app.command("boxes", epilog=attend.BOXES_EXAMPLES)(attend.boxes_command)
app.command("check", epilog=check.EXAMPLES)(check.command)
app.command("layers", epilog=check.LAYERS_EXAMPLES)(check.layers_command)
app.command("export", epilog=export.EXAMPLES)(export.command)
app.command("fetch", epilog=ls.FETCH_EXAMPLES)(ls.fetch_command)
app.command("find", epilog=find.EXAMPLES)(find.command)
app.command("finetune", epilog=FINETUNE_EXAMPLES)(finetune_command)
app.command("ground", epilog=ground.EXAMPLES)(ground.command)
app.command("reproduce", epilog=reproduce.EXAMPLES)(reproduce.command)
app.command("serve", epilog=serve.EXAMPLES)(serve.command)
app.add_typer(bench.app, name="bench")
app.add_typer(ls.app, name="ls")
app.add_typer(tags.app, name="tags")
app.add_typer(train.app, name="train")


def _version(value: bool) -> None:
    if value:
        from excite import __version__

        say(f"excite {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - used by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,  # noqa: ARG001
) -> None:
    """Where in this image is the evidence for that concept?

    Start with: excite attend PHOTO
    """
    help_without_command(context)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; an error is one line on standard error and an exit code that is not 0.

    Ctrl-C ends it with 130 and SIGTERM with 143, a fault of excite itself with 70. Only ``--debug`` shows a trace.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None:  # this process is the command
        prepare_process()
    warnings.showwarning = note
    debug = "--debug" in given
    if debug:
        sys.excepthook = _show_trace
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # letters that the terminal's encoding lacks
    with ExitStack() as ending:
        signals = ending.enter_context(StopSignals())
        if not debug:
            ending.enter_context(quiet_hooks(signals.at_once))
        line, code = _run(given, signals, debug=debug)
        if line:
            complain(line)
        if arguments is None:  # it also ends quietly
            signals.finish()
            ending.pop_all()
    raise SystemExit(code)


def prepare_process() -> None:
    """Apply `SETTINGS`: those of glibc, which has read its environment long since, by a call."""
    missing = {name: value for name, value in SETTINGS.items() if name not in os.environ}
    os.environ.update(missing)
    change = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if change is not None:  # it is there in glibc, not in musl
        for name in missing.keys() & MALLOPT.keys():
            change(MALLOPT[name], int(missing[name]))


def _run(arguments: list[str], signals: StopSignals, *, debug: bool) -> tuple[str | None, int]:
    """The final message, if any, and the exit code."""
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]  # click's, or that of typer's own copy of click
    try:
        code = app(  # --debug may come before or behind the command
            [argument for argument in arguments if argument != "--debug"],
            prog_name="excite",
            standalone_mode=False,
            obj=arguments,  # for commands that record how they were called
        )
    except usage_error as error:
        return _usage_line(error), 2
    except (KeyboardInterrupt, Exception) as error:
        if signals.received is None and not isinstance(error, KeyboardInterrupt):
            if debug:
                raise
            flush_answers()
            return describe_error(error, _command(arguments))
        code = STOPPED  # any other error then is a consequence
    unwritten = flush_answers()
    if code == STOPPED:
        return "stopped; what was finished is kept", signals.code
    return (None, code or 0) if unwritten is None else (unwritten, FAILED)


def _command(arguments: list[str]) -> str:
    """The command without its arguments: "excite bench pointing"."""
    groups = {group.name for group in app.registered_groups}
    words = [argument for argument in arguments if not argument.startswith("-")]
    return " ".join(["excite", *words[: 2 if words and words[0] in groups else 1]])


def _usage_line(error: Any) -> str:
    message, context = error.format_message().rstrip("."), getattr(error, "ctx", None)
    command = context.command_path if context is not None else "excite"
    return f"{message[:1].lower()}{message[1:]} (see `{command} --help`)"


# Errors as one line.


def _show_trace(_kind: object, error: BaseException, _trace: object) -> None:
    """Print a trace without anything that acts on the terminal."""
    for line in "".join(traceback.format_exception(error)).splitlines():
        sys.stderr.write(f"{visible(line)}\n")


def describe_error(error: BaseException, command: str) -> tuple[str, int]:
    """The message of an error, and the exit code; ``command`` is for example "excite bench pointing"."""
    if isinstance(error, ExciteError):
        return str(error), FAILED
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in MEMORY_WORDS):
        return NO_MEMORY, FAILED
    if isinstance(error, OSError) and error.errno is not None:
        return _system_error(error), FAILED
    reason = str(error).partition("Original Traceback")[0]  # torch adds the trace of a worker
    summary = textwrap.shorten(f"{type(error).__name__}: {reason}", 200).rstrip(" :")
    return f"{command}: {summary}; {REPORT}", UNEXPECTED


def _system_error(error: OSError) -> str:
    where, number = "" if error.filename is None else f"{os.fsdecode(error.filename)!r}: ", error.errno or 0
    return f"{where}{error.strerror or os.strerror(number)}; {REMEDIES.get(number, f'mend that {AGAIN}')}"


def flush_answers() -> str | None:
    """Flush standard output, before Python does at exit with a trace; the error, "" if the reader has gone."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest cannot be written
        return "" if error.errno == errno.EPIPE else f"cannot write the answers: {_system_error(error)}"
    return None


@contextmanager
def quiet_hooks(stop_at_once: Callable[[], None]) -> Iterator[None]:
    """In the block, errors that cannot be caught, in a thread or a finaliser, are one line; Ctrl-C there stops."""

    def tell(where: str, lost: Any) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            stop_at_once()
        summary = textwrap.shorten(f"{type(lost.exc_value).__name__}: {lost.exc_value}", 200)
        note(f"{where}: {summary}; --debug tells more")

    before = sys.unraisablehook, threading.excepthook
    sys.unraisablehook, threading.excepthook = partial(tell, "while tidying up"), partial(tell, "in a thread")
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = before


# Ctrl-C and SIGTERM.

CURSOR = "\x1b[?25h"  # a progress bar hides it


class StopSignals:
    """Handles Ctrl-C and SIGTERM in the block: the first raises a KeyboardInterrupt, the second ends the process."""

    def __init__(self) -> None:
        self.received: int | None = None  # the first signal
        self._before: dict[int, Any] = {}

    @property
    def code(self) -> int:
        """The exit code after a signal: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.received or signal.SIGINT)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # the only one that may
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before in {signal.SIG_DFL, signal.default_int_handler}:  # an ignored signal stays ignored
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
        """The command is done: any further signal ends the process at once."""
        self.received = self.received or signal.SIGINT

    def at_once(self) -> None:
        """End without cleanup: all files are complete at every moment, and the next run removes temporary ones."""
        message = f"{CURSOR if sys.stderr.isatty() else ''}excite: stopped at once; what was written down is kept\n"
        os.write(2, message.encode())
        os._exit(self.code)
