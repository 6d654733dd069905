"""Real processes, and when to stop them."""

import atexit
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

__all__ = ["PATIENCE", "Forked", "Forking", "check_killed_again_and_again", "results", "wait_for_lines"]

PATIENCE = 120  # seconds; machines may be busy


def results(path):
    """The results so far: lines of a file, or rows of the database of a run that is running or was killed."""
    database = path.with_suffix(".sqlite")
    if not database.exists():
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    with tempfile.TemporaryDirectory() as folder, suppress(OSError, sqlite3.Error):  # it is locked, and changes
        for file in (database, database.with_name(database.name + "-wal")):
            shutil.copy(file, folder)
        with closing(sqlite3.connect(Path(folder, database.name))) as copy:
            return [json.loads(entry) for (entry,) in copy.execute("SELECT entry FROM results ORDER BY rowid")]
    return []


def wait_for_lines(path, count, process):
    """Wait until there are so many results, while the process that writes them is still running."""
    deadline = time.monotonic() + PATIENCE
    while len(results(path)) < count:
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.005)


WARM = """
import gc, json, os, signal, socket, sys
import excite.autolabel.batch, excite.cli, excite.web.server
import excite.experiments.localization.run, excite.training.finetune
gc.freeze()  # what is there already is not looked through, and so not copied, by each child
asking = socket.socket(fileno=int(sys.argv[1]))
while True:
    asked, streams, _, _ = socket.recv_fds(asking, 1 << 20, 3)
    if not asked:
        sys.exit()
    asked = json.loads(asked)
    if isinstance(asked, list):
        asking.send(json.dumps(os.waitpid(*asked)).encode())
        continue
    child = os.fork()
    if child == 0:
        break
    asking.send(json.dumps(child).encode())
    for stream in streams:
        os.close(stream)
asking.close()
for number, stream in enumerate(streams):
    os.dup2(stream, number)
    os.close(stream)
sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what runs in the background of a shell
os.environ.clear()
os.environ.update(asked["environment"])
os.chdir(asked["folder"])
sys.argv = asked["arguments"]
exec(compile(asked["program"], "<program>", "exec"), {"__name__": "__main__"})
"""


@cache
def warm():
    """A process that has imported what takes seconds, and from now on only waits and copies itself."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WARM, str(theirs.fileno())]
    process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603 - ours
    theirs.close()

    def end():
        ours.close()
        process.wait(PATIENCE)

    atexit.register(end)
    return ours


class Forked(subprocess.Popen):
    """As `subprocess.Popen`, for a program of Python; it begins at once: a copy of a process that has imported excite.

    What modules read of the environment while they are imported is that of the tests.

    Args:
        program: the source, or that of the command ``excite`` by default.
        arguments: in ``sys.argv``.
    """

    COMMAND = "from excite.cli import main\nmain()"

    def __init__(self, program=COMMAND, arguments=(), **options):
        self.program = program
        super().__init__(["excite", *map(str, arguments)], **options)

    def _execute_child(self, arguments, _executable, _preexec, _close, _pass, folder, environment, *more):
        _startup, _flags, _shell, reading, _, _, writing, _, telling = more[:9]
        asked = {
            "program": self.program,
            "arguments": arguments,
            "folder": str(folder or Path.cwd()),
            "environment": dict(environment or os.environ),
        }
        streams = [given if given != -1 else usual for usual, given in enumerate((reading, writing, telling))]
        socket.send_fds(warm(), [json.dumps(asked).encode()], streams)
        self.pid = json.loads(warm().recv(1 << 10))
        self._child_created = True
        self._close_pipe_fds(*more[3:9])

    def _internal_poll(self, _deadstate=None):
        if self.returncode is None:
            process, status = self._try_wait(os.WNOHANG)
            if process == self.pid:
                self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, flags):
        warm().send(json.dumps([self.pid, flags]).encode())
        return json.loads(warm().recv(1 << 10))


FORK = """
import gc, json, os, sys, traceback
gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, int):  # a process to wait for
        print(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]), flush=True)
        continue
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what it prints is none of the answers below
        try:
            run(**asked)
            os._exit(0)
        except SystemExit as ended:
            os._exit(ended.code or 0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(child, flush=True)
"""


class Forking:
    """Processes that begin at once: each is a copy of one that has imported everything, which takes seconds.

    Args:
        script: it imports what is needed and says what a process does: a function ``run`` of plain arguments.
    """

    def __init__(self, script):
        self.parent = Forked(script + FORK, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, **arguments):
        """Begin, and tell the number of the process."""
        self.last = self._ask(arguments)
        return self.last

    def ended(self, process=None):
        """Wait for a process, the last one if none is named: its exit code, or minus the signal that killed it."""
        return self._ask(process or self.last)

    def _ask(self, what):
        self.parent.stdin.write(json.dumps(what) + "\n")
        self.parent.stdin.flush()
        return int(self.parent.stdout.readline())

    def poll(self):
        return self.parent.poll()

    def close(self):
        with self.parent:
            self.parent.stdin.close()


SLOW_BENCH = """
import time
from annotated import colour_classifier
from excite.experiments.{experiment} import run as work
from excite.cli import main
from excite.models import Choice

def slowly(path, read=work.read_image):
    time.sleep(0.03)  # so that there is time to be killed in
    return read(path)

def run():
    work.read_image = slowly
    work.CANVAS = (48, 48)  # of localization: quicker
    Choice.load = lambda choice: colour_classifier()
    main(["bench", {experiment!r}, "--data", {data!r}, "--methods", "c-mwp,mwp", "--no-page", "--out", "killed"])
"""


def check_killed_again_and_again(experiment, data, tables):
    """SIGKILL in the middle of an experiment on 24 images, twice; then it may finish, as the one in ``whole`` did."""
    store = Path("killed/records.jsonl")
    with closing(Forking(SLOW_BENCH.format(experiment=experiment, data=str(data)))) as forking:
        for lines in (3, 13):
            process = forking.start()
            try:
                wait_for_lines(store, lines, forking)
            finally:
                os.kill(process, signal.SIGKILL)
            assert forking.ended() == -signal.SIGKILL
            assert not any(Path("killed", name).exists() for name in tables)
        assert 13 <= len(results(store)) < 24
        forking.start()
        assert forking.ended() == 0
    for name in (*tables, "records.jsonl"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()
