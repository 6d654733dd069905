"""Real processes, and when to stop them."""

import time

__all__ = ["PATIENCE", "wait_for_lines"]

PATIENCE = 120  # seconds; machines may be busy


def wait_for_lines(path, count, process):
    """Wait until a file has so many lines, while the process that writes it is still running."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.005)
