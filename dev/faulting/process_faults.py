"""Events in the process of a command at a chosen step on the disk."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

from disk import obey_permissions
from long_commands import know_models, publish

from excite.cli import main
from excite.jobs import ResultStore

__all__ = ["Happening", "run"]

CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def run(arguments, folder, said, happening=None, archive=None, stdout=None, obedient=False):
    """Run the command in its folder, with its output in files, perhaps with an event."""
    os.chdir(folder)
    os.setpgid(0, 0)  # a terminal sends Ctrl-C to a whole group of processes, and tests are not to be in it
    os.dup2(_written(f"{said}.err"), 2)
    os.dup2(_unread() if stdout == "closed pipe" else _written(stdout or f"{said}.out"), 1)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background it may be ignored
    know_models()
    if obedient:
        obey_permissions()
    if archive is not None:
        publish(archive["url"], Path(archive["file"]).read_bytes())
    steps = Happening(folder, said, **(happening or {}))
    sys.addaudithook(steps.progress)
    ResultStore.add = told(ResultStore.add, steps)
    main(arguments)


def told(add, steps):
    """SQLite writes to the disk unheard: each result is a step."""

    def adding(store, entry):
        steps.progress("open", (store.database, None, os.O_WRONLY))
        add(store, entry)

    return adding


def _written(name):
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)


def _unread():
    """A pipe whose reader has gone away."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


class Happening:
    """Counts the steps of a process on the disk, and causes an event before one of them.

    Args:
        folder: only what is in it counts.
        said: where to note the steps.
        kind: which steps count: "write" or "read".
        step: the number of the one before which it happens; None for never.
        deed: what happens, see `DEEDS`,
        to: and to whom.
    """

    def __init__(self, folder, said, kind="write", step=None, deed=None, to=None):
        self.folder = os.path.realpath(folder) + os.sep
        self.kind, self.step, self.deed, self.to = kind, step, deed, to
        self.log = os.open(f"{said}.steps", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
        self.process = os.getpid()
        self.steps = {"write": 0, "read": 0}
        self.busy = False

    def progress(self, event, arguments):
        if self.busy or os.getpid() != self.process:
            return
        if event == "open":
            kind = "write" if arguments[2] & WRITING else "read"
        elif event in CHANGES:
            kind = "write"
        else:
            return
        path = arguments[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not to be followed
        if not path.startswith(self.folder):
            return
        self.steps[kind] += 1
        name = path.removeprefix(self.folder)
        os.write(self.log, f"{kind} {event} {name}\n".encode())
        if kind == self.kind and self.steps[kind] == self.step:
            self.busy = True  # what it does itself is no step
            DEEDS[self.deed](self.to)
            self.busy = False


def send(number):
    return lambda _to: os.kill(os.getpid(), number)


def while_workers_begin(deed):
    """Done when there are workers, while they still import, which takes seconds."""

    def wait():
        while not multiprocessing.active_children():
            time.sleep(0.01)
        time.sleep(0.5)
        deed()

    return lambda _to: threading.Thread(target=wait, daemon=True).start()


def kill_worker():
    """The first of them."""
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)


def fill_disk(ballast):
    """Take all room that is left."""
    with open(ballast, "wb", buffering=0) as file:  # noqa: PTH123 - no buffer: it ends when the disk does
        try:
            while file.write(b"x" * 65536):
                pass
        except OSError:
            pass


def limit_files(_to):
    """As a full disk, where none can be made: no file may grow."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


def take_away(name):
    """Move an input out of the way."""
    Path(name).rename(f"{name}.away")


def spoil(name):
    """Leave an input cut off in the middle."""
    content = Path(name).read_bytes()
    Path(name).rename(f"{name}.away")
    Path(name).write_bytes(content[: len(content) // 2])


DEEDS = {
    "SIGKILL": send(signal.SIGKILL),
    "SIGINT": send(signal.SIGINT),
    "SIGTERM": send(signal.SIGTERM),
    "SIGSTOP": send(signal.SIGSTOP),
    "SIGINT to all": while_workers_begin(lambda: os.killpg(0, signal.SIGINT)),  # as a terminal does
    "SIGTERM to all": while_workers_begin(lambda: os.killpg(0, signal.SIGTERM)),
    "fill the disk": fill_disk,
    "limit files": limit_files,
    "take away": take_away,
    "spoil": spoil,
    "kill a worker": while_workers_begin(kill_worker),
}
