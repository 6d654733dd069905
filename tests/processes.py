"""Real processes, and when to stop them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["PATIENCE", "check_killed_again_and_again", "wait_for_lines"]

PATIENCE = 120  # seconds; machines may be busy


def wait_for_lines(path, count, process):
    """Wait until a file has so many lines, while the process that writes it is still running."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.005)


SLOW_BENCH = """
import sys, time
sys.path.insert(0, {tests!r})
from annotated import colour_classifier
from excite.benchmarks import {experiment}_work as work
from excite.cli import main
from excite.models import Choice

def slowly(path, read=work.read_image):
    time.sleep(0.03)  # so that there is time to be killed in
    return read(path)

work.read_image = slowly
Choice.load = lambda choice: colour_classifier()
main(["bench", {experiment!r}, "--data", {data!r}, "--methods", "c-mwp,mwp", "--no-page", "--out", "killed"])
"""


def check_killed_again_and_again(experiment, data, tables):
    """SIGKILL in the middle of an experiment on 24 pictures, twice; then it may finish, as the one in ``whole`` did."""
    ledger = Path("killed/records.jsonl")
    for lines in (3, 13):
        process = _start(experiment, data)
        try:
            wait_for_lines(ledger, lines, process)
        finally:
            process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
        assert not any(Path("killed", name).exists() for name in tables)
    assert 13 <= ledger.read_text().count("\n") < 24
    assert _start(experiment, data).wait(PATIENCE) == 0
    for name in (*tables, "records.jsonl"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()


def _start(experiment, data):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = SLOW_BENCH.format(tests=str(Path(__file__).parent), experiment=experiment, data=str(data))
    return subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.DEVNULL)  # noqa: S603 - ours
