import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "dev"))  # the generator of corpora


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Whatever is fetched is kept here, and servers of tests are asked directly."""
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "home"
