"""The command as a process of its own: kills, pipes and terminals."""

import ctypes
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image
from processes import PATIENCE, Forked, results, wait_for_lines
from skimage import data

from excite.cli.app import MALLOPT

COMMAND = shutil.which("excite", path=str(Path(sys.executable).parent))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """A folder with eight photographs, the answers of a whole run, and what a terminal showed of it."""
    folder = tmp_path_factory.mktemp("album")
    (folder / "photos").mkdir()
    coffee = Image.fromarray(data.coffee())
    for number in range(8):
        coffee.crop((10 * number, 0, 300 + 10 * number, 300)).save(folder / "photos" / f"{number:02}.png")
    with (folder / "out.jsonl").open("w") as out:
        shown = on_a_terminal(folder, "attend", "photos", "cup", "--size", 96, "--json", "--out", "whole", stdout=out)
    return folder, (folder / "out.jsonl").read_text(), shown


def start(folder, *arguments, **streams):
    return Forked(arguments=arguments, cwd=folder, env=ENVIRONMENT, **streams)


def run(folder, *arguments):
    process = start(folder, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_stopped_and_killed_it_goes_on_where_it_was(album):
    """Ctrl-C in the middle, then SIGKILL; the third run finishes, and does nothing twice."""
    folder, expected, _ = album
    store = folder / "killed" / "answers.jsonl"
    arguments = ("attend", "photos", "cup", "--size", 96, "--json", "--out", "killed")
    process = start(folder, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for_lines(store, 1, process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE)[1] == "excite: stopped; what was finished is kept\n"
    assert process.returncode == 130
    stopped = len(results(store))
    process = start(folder, *arguments, stdout=subprocess.DEVNULL)
    try:
        wait_for_lines(store, stopped + 1, process)
    finally:
        process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    done = results(store)
    assert stopped < len(done) < 8
    files = [folder / "killed" / name for line in done for name in line["files"]]
    before = {file: file.stat().st_mtime_ns for file in files}
    again = run(folder, *arguments)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == expected.replace("whole/", "killed/")
    assert {file: file.stat().st_mtime_ns for file in files} == before
    assert len(lines(store)) == 8
    assert not list((folder / "killed").glob("*.tmp"))
    for name in sorted(path.name for path in (folder / "whole").glob("*.jpg")):
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def on_a_terminal(folder, *arguments, stdout=None):
    """What is written to a terminal that is standard error, and standard output too unless that goes elsewhere."""
    terminal, theirs = pty.openpty()
    process = start(folder, *arguments, stdout=theirs if stdout is None else stdout, stderr=theirs)
    os.close(theirs)
    written = b""
    with suppress(OSError):  # how Linux says that nobody is at the other end any more
        while some := os.read(terminal, 4096):
            written += some
    os.close(terminal)
    assert process.wait(PATIENCE) == 0
    return written


def screen(written):
    """What one sees in the end: only what a bar needs is understood, which is to clear lines and to go up."""
    rows, row, column = [""], 0, 0
    for code, text in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|(\r|\n|[^\x1b\r\n]+)", written.decode()):
        if code == "2K":
            rows[row] = ""
        elif code.endswith("A"):
            row = max(0, row - int(code[:-1] or 1))
        elif text == "\r":
            column = 0
        elif text == "\n":
            row, column = row + 1, 0
            rows += [""] * (row == len(rows))
        elif text:
            rows[row] = rows[row][:column].ljust(column) + text + rows[row][column + len(text) :]
            column += len(text)
    return [line.rstrip() for line in rows]


def test_a_progress_bar_leaves_the_terminal_and_files_to_the_answers(album):
    """Standard error is a terminal; standard output is a file, and then the same terminal."""
    folder, expected, shown = album
    assert b"pictures" in shown
    assert len([json.loads(line) for line in expected.splitlines()]) == 8
    written = on_a_terminal(folder, "attend", "photos", "cup", "--size", 96, "--out", "whole")
    assert "pictures" in written.decode()
    assert "8/8" in written.decode()
    shown = [line for line in screen(written) if line]
    *lines, last = (line.split("  ") for line in shown)  # a line each, and no bar any more
    assert [image for image, _ in lines] == [json.loads(line)["image"] for line in expected.splitlines()]
    assert all(found.startswith("cup ") for _, found in lines)
    assert last == ["written: whole/index.html"]


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    """The command as it is installed."""
    assert COMMAND is not None, "the command is not installed beside this Python"
    command = [COMMAND, "ls", "labels"]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603
    assert process.stdout.readline().startswith(b"index")
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    process.wait(PATIENCE)
    assert err == b""


FAULTS = """
import resource
from excite.cli.app import prepare_process

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [b"x" * 2**24 for _ in range(4)]  # 16384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

{prepare}
print(*[sum(faults() for _ in range(8)) for _ in range(2)])
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this system's C library is not glibc")
@pytest.mark.parametrize(("prepare", "cleared"), [("prepare_process()", False), ("", True)])
def test_freed_memory_is_kept_for_the_next_operation(prepare, cleared):
    plain = {name: value for name, value in os.environ.items() if name not in MALLOPT}
    code = [sys.executable, "-c", FAULTS.format(prepare=prepare)]
    found = subprocess.run(code, check=True, capture_output=True, text=True, env=plain)  # noqa: S603
    assert (int(found.stdout.split()[1]) > 16384) is cleared


def test_settings_of_the_user_stay():
    code = (
        "import os; from excite.cli.app import prepare_process as p; p(); print(os.environ['MALLOC_TRIM_THRESHOLD_'])"
    )
    env = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "123456"}
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)  # noqa: S603
    assert found.stdout == "123456\n"
