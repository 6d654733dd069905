"""However a command ends, it says so in one line: unforeseen errors, refusals of the system, signals, lost readers."""

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from processes import Forking

from excite.cli import main
from excite.cli.app import FAILED, UNEXPECTED, StopSignals, describe_error
from excite.errors import DataError

REPORT = "this is a fault of excite: run it again with --debug and report what it prints"

SCRIPT = """
import os, signal, sys
import excite.cli.app as app

class Slow:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def run(said, deed):
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    def happen():
        DEEDS[deed]()
    app.app.command("happen")(happen)
    if deed.startswith("own"):
        sys.argv = ["excite", "happen"]
        app.main()
    else:
        app.main(["happen"])

def stop_twice():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        while True:  # a clean-up that would take for ever
            pass

def fail_after_stop():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise KeyError("a worker that was stopped as well")

def stop_lost():
    Slow()
    while True:
        pass

def thread_fails():
    import threading
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

def tidying_fails():
    class Untidy:
        def __del__(self):
            raise ValueError("cannot tidy up")
    Untidy()

DEEDS = {
    "stop twice": stop_twice,
    "fail after stop": fail_after_stop,
    "stop lost": stop_lost,
    "thread fails": thread_fails,
    "tidying fails": tidying_fails,
    "own: stop": lambda: os.kill(os.getpid(), signal.SIGTERM),
}
"""


class TestErrors:
    def test_unforeseen_is_one_line_with_its_own_code(self, excite, monkeypatch, tmp_path):
        def broken(*_, **__):
            raise KeyError("a\nb")

        monkeypatch.setattr("excite.datasets.open_dataset", broken)
        ended = excite("bench", "pointing", "--data", tmp_path)
        assert ended.code == UNEXPECTED == 70
        assert ended.complaint == f"excite bench pointing: KeyError: 'a\\nb'; {REPORT}"
        with pytest.raises(KeyError):
            main(["bench", "pointing", "--data", str(tmp_path), "--debug"])

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (OSError(errno.ENOSPC, "No space left", "out/a.png"), ["'out/a.png': No space left", "make room"]),
            (OSError(errno.EROFS, "Read-only file system", "out"), ["'out': Read-only", "another folder"]),
            (PermissionError(errno.EACCES, "Permission denied", b"\xff"), ["'\\udcff': Permission", "permissions"]),
            (OSError(errno.EIO, "Input/output error"), ["Input/output error; the disk or the net"]),
            (FileNotFoundError(errno.ENOENT, "No such file", "a.jpg"), ["'a.jpg': No such", "Put it back"]),
            (OSError(errno.EMFILE, "Too many open files"), ["ulimit -n"]),
            (OSError(errno.ENOTEMPTY, "Directory not empty", "out"), ["'out': Directory not empty; mend that"]),
            (MemoryError(), ["not enough memory", "fewer workers"]),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory"), ["not enough"]),
            (DataError("this file is empty"), ["this file is empty"]),
        ],
    )
    def test_refusals_of_the_system_say_what_to_do(self, error, words):
        line, code = describe_error(error, "excite attend")
        assert code == FAILED == 1
        assert all(word in line for word in words), line
        assert "\n" not in line
        assert "--debug" not in line

    def test_long_messages_and_traces_of_workers_are_cut(self):
        line, code = describe_error(
            RuntimeError("Caught in worker 0.\nOriginal Traceback (most recent call last):\n x"), "excite"
        )
        assert code == UNEXPECTED
        assert line == f"excite: RuntimeError: Caught in worker 0.; {REPORT}"
        assert len(describe_error(ValueError("word " * 1000), "excite")[0]) < 350

    def test_hooks_and_handlers_are_left_as_found(self, excite):
        before = sys.unraisablehook, threading.excepthook, signal.getsignal(signal.SIGTERM)
        excite("ls", "methods")
        assert (sys.unraisablehook, threading.excepthook, signal.getsignal(signal.SIGTERM)) == before


class TestStopSignals:
    def test_who_ignores_a_signal_goes_on_to_do_so(self):
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            with StopSignals():
                assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
        finally:
            signal.signal(signal.SIGTERM, before)

    def test_in_another_thread_nobody_listens(self):
        before = signal.getsignal(signal.SIGTERM)
        seen = []

        def elsewhere():
            with StopSignals():
                seen.append(signal.getsignal(signal.SIGTERM))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [before]


@pytest.fixture(scope="module")
def forking():
    with closing(Forking(SCRIPT)) as server:
        yield server


class TestProcesses:
    @pytest.mark.parametrize(
        ("deed", "code", "said"),
        [
            ("stop twice", 130, "excite: stopped at once; what was written down is kept"),
            ("stop lost", 130, "excite: stopped at once; what was written down is kept"),
            ("fail after stop", 143, "excite: stopped; what was finished is kept"),
            ("own: stop", 143, "excite: stopped; what was finished is kept"),
            ("thread fails", 0, "excite: note: in a thread: ZeroDivisionError: division by zero; --debug tells more"),
            ("tidying fails", 0, "excite: note: while tidying up: ValueError: cannot tidy up; --debug tells more"),
        ],
    )
    def test_one_line_and_no_trace(self, forking, tmp_path, deed, code, said):
        forking.start(said=str(tmp_path / "err"), deed=deed)
        assert forking.ended() == code
        assert (tmp_path / "err").read_text() == f"{said}\n"


def test_answers_that_nobody_reads_or_that_have_no_room():
    """Few enough to be handed over only in the very end."""
    command = [sys.executable, "-m", "excite", "--version"]
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    assert ended.returncode == 1
    assert ended.stderr.startswith("excite: ")
    assert "No space left on device; make room" in ended.stderr
    assert ended.stderr.count("\n") == 1
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")
