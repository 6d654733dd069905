"""Freeze what this code answers now: python dev/snapshots/freeze.py [options of pytest, such as -k attend]."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = str(ROOT / "src")
TESTS = str(ROOT / "tests/snapshots/test_snapshots.py")

if __name__ == "__main__":
    sys.path.insert(0, SOURCE)  # the code beside these tests, whatever is installed
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
    os.environ["EXCITE_FREEZE"] = "1"
    sys.exit(pytest.main([TESTS, "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
