"""Workers of this machine show no trace of their own: the parent tells what happened."""

import re
import shutil
import signal
import subprocess
import warnings

import pytest

from excite.errors import ExciteError
from excite.jobs import executor as processes


def blocked():
    """The signals that a process which begins now does not hear, as bits."""
    told = subprocess.run([shutil.which("cat"), "/proc/self/status"], check=True, capture_output=True, text=True)  # noqa: S603
    return int(re.search(r"SigBlk:\s*(\w+)", told.stdout)[1], 16)


def test_processes_that_begin_do_not_hear_ctrl_c():
    bit = 1 << (signal.SIGINT - 1)
    with processes.ctrl_c_for_parent():
        assert blocked() & bit
    assert not blocked() & bit


def test_the_parent_hears_it_afterwards():
    def interrupted():
        with processes.ctrl_c_for_parent():
            signal.raise_signal(signal.SIGINT)
            seen.append("still here")

    seen = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["still here"]


def test_a_worker_that_cannot_take_the_work_says_why(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(processes, "_here", [])
    processes._begin(b"no pickle")
    with pytest.raises(ExciteError, match=r"a worker cannot take the work \(UnpicklingError: .*\): use one worker"):
        processes._work_here("task")
