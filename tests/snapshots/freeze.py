"""Freeze what this code answers now: python tests/snapshots/freeze.py [options of pytest, such as -k attend]."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = str(HERE.parents[1] / "src")

if __name__ == "__main__":
    sys.path.insert(0, SOURCE)  # the code beside these tests, whatever is installed
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
    os.environ["EXCITE_FREEZE"] = "1"
    sys.exit(pytest.main([str(HERE / "test_snapshots.py"), "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
