"""The record of the long run."""

import json
from pathlib import Path

from fuzz_catalogue import READERS

RECORD = Path(__file__).parents[2] / "docs/trust/fuzz.json"


def test_the_record_is_of_all_readers_and_without_a_failure():
    record = json.loads(RECORD.read_text())
    assert record["readers"].keys() == READERS.keys()
    assert record["cases"] >= 200_000
    assert record["failures"] == []
    assert record["peak_mb"] < 1024
    assert record["slowest_seconds"] < 5
