import gc
import os
from pathlib import Path

import pytest
import torch

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


def pytest_configure():
    """Each worker of pytest-xdist computes on one thread, or the workers fight over the same cores."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
        gc.disable()  # while it collects tests: all that is made then stays, and looking for waste takes seconds


def pytest_collection_finish():
    """From now on waste is collected again, but not looked for among the modules and the tests themselves."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real pictures, in EXCITE_DATA or beside the repository; without it, skip."""
    folder = Path(os.environ.get("EXCITE_DATA", SHARED_DATA))
    if not folder.is_dir():
        pytest.skip(f"no shared pictures in {folder}; name their folder in EXCITE_DATA")
    return folder
