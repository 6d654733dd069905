import gc
import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from excite.jobs import executor as processes

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
    """The folder of real images, in EXCITE_DATA or beside the repository; without it, skip."""
    folder = Path(os.environ.get("EXCITE_DATA", SHARED_DATA))
    if not folder.is_dir():
        pytest.skip(f"no shared images in {folder}; name their folder in EXCITE_DATA")
    return folder


@pytest.fixture
def quick_workers(monkeypatch):
    """Worker processes that begin at once: copies of a clean process that has imported what each would import again.

    They get their work as new ones do, and share nothing with this process. New ones: tests/cli/test_cli_workers.py.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["excite.autolabel.batch", "excite.experiments.localization.run", "excite.training.finetune"]
    )
    monkeypatch.setattr(processes, "multiprocessing", SimpleNamespace(get_context=lambda _kind: context))
