"""A few broken files for every reader, of the same kind as the hundreds of thousands of dev/fuzz.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_catalogue import READERS
from fuzzed import BROKEN, content_of

ROOT = Path(__file__).parents[2]
CASES = 6  # of each reader, beside the good ones


def fuzz(*arguments):
    command = [sys.executable, ROOT / "dev/fuzz.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours


def test_good_files_and_a_few_broken_ones_for_every_reader(tmp_path):
    done = fuzz("--quick", "--cases", CASES * len(READERS), "--out", tmp_path / "fuzz.json")
    assert done.returncode == 0, done.stderr + done.stdout
    record = json.loads((tmp_path / "fuzz.json").read_text())
    assert record["cases"] > CASES * len(READERS)
    assert record["accepted"] + record["refused"] == record["cases"]
    assert min(record["accepted"], record["refused"]) > record["cases"] / 10
    assert not (tmp_path / "fuzz.jsonl").exists()


@pytest.mark.parametrize("form", sorted({reader.form for reader in READERS.values()}))
def test_a_case_is_the_same_file_whenever_it_is_made(form):
    reader = next(reader for reader in READERS.values() if reader.form == form)
    made = [content_of(reader, case) for case in range(BROKEN, BROKEN + 20)]
    assert made == [content_of(reader, case) for case in range(BROKEN, BROKEN + 20)]
    assert len(set(made)) > 10
