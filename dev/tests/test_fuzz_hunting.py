"""A fuzzer that finds nothing is worth something only if it would find what is there."""

import os
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from fuzzed import HOSTILE, MARKER, Reader
from hunting import Hunt

from excite.errors import DataError

TWO = 2


def hunted(read, *, changes=False, **limits):
    """Three cases of a reader: the second one is the bad one, so that there is one before and one behind it."""
    seeds = [b"good", b"bad", b"good too"]

    def reader(folder):
        if (folder / "file.txt").read_bytes() == b"bad":
            read(folder)

    made = Reader("made", "here", "file.txt", reader, list, hostile=lambda: seeds, changes=changes)
    return Hunt(made, range(HOSTILE, HOSTILE + 3), **limits).finish()


def sleeps(folder):
    time.sleep(60)


def works_for_ever(folder):
    while True:
        pass


def eats_memory(folder):
    kept = [b"x" * 2**24 for _ in range(40)]
    time.sleep(len(kept))


def eats_memory_for_a_moment(folder):
    assert len(b"x" * (150 * 2**20)) > TWO


def crashes(folder):
    os.abort()


def leaves(folder):
    os._exit(3)


def raises_something_else(folder):
    raise KeyError("box")


def names_no_file(folder):
    raise DataError("something is wrong")


def talks_long(folder):
    raise DataError("file.txt: " + "word " * 150)


def warns(folder):
    warnings.warn("file.txt is odd", DeprecationWarning, stacklevel=1)


def prints(folder):
    os.write(2, b"libsomething: bad code\n")


def changes_the_file(folder):
    (folder / "file.txt").write_bytes(b"mine")


def leaves_a_file(folder):
    (folder / "litter.txt").touch()


def runs_what_is_in_the_file(folder):
    Path(MARKER).touch()


def reads_elsewhere(folder):
    Path("/etc/hostname").read_bytes()


def starts_a_program(folder):
    subprocess.run([sys.executable, "-c", ""], check=True)


def goes_to_the_net(folder):
    with socket.socket() as connection:
        connection.settimeout(0.1)
        connection.connect_ex(("127.0.0.1", 9))


FAILURES = {
    sleeps: "it hung",
    works_for_ever: "seconds of the processor",
    eats_memory: "MB of memory",
    eats_memory_for_a_moment: "MB of memory",
    crashes: "it crashed (SIGABRT)",
    leaves: "exit code 3",
    raises_something_else: "KeyError",
    names_no_file: "does not name the file",
    talks_long: "letters",
    warns: "a warning escaped: DeprecationWarning",
    prints: "standard output or error",
    changes_the_file: "it changed the file",
    leaves_a_file: "it changed the files around: ['litter.txt']",
    runs_what_is_in_the_file: "a program in the file was run",
    reads_elsewhere: "outside of its folder",
    starts_a_program: "subprocess.Popen",
    goes_to_the_net: "socket.connect",
}


@pytest.mark.parametrize("read", FAILURES, ids=lambda read: read.__name__)
def test_what_a_reader_must_not_do_is_found(read):
    seconds = {works_for_ever: 0.3}.get(read, 20)  # on a busy machine to fill memory takes seconds, too
    found = hunted(read, most_cpu=seconds, most_wall=0.6 if read is sleeps else 60, most_bytes=100 * 2**20)
    assert [case for case, _ in found.failures] == [HOSTILE + 1]
    assert FAILURES[read] in found.failures[0][1]
    assert (found.cases, found.accepted, found.refused) == (3, 2, 0)
    assert not Path(MARKER).exists()


def test_a_clear_error_is_fine():
    def refuses(folder):
        raise DataError(f"{folder / 'file.txt'}, line 1: it is bad")

    found = hunted(refuses)
    assert (found.cases, found.accepted, found.refused, found.failures) == (3, 2, 1, [])
    assert found.peak_bytes < 100 * 2**20


def test_a_ledger_may_drop_what_is_damaged():
    assert hunted(changes_the_file, changes=True).failures == []
