"""A real Ray cluster of two nodes on this machine, and nothing of it left behind."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"  # otherwise Ray leaves a token in the home of whoever runs the tests
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - its name; at 15, which is usual, workers hardly ever get a turn


@pytest.fixture
def make_cluster(monkeypatch):
    """Start clusters; each has a folder and ports of its own, so that tests may run side by side."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers know what the tests know
    made = []

    def make(nodes=2, cpus=2):
        Path("/tmp/ray").mkdir(exist_ok=True)  # noqa: S108 - where Ray notes addresses, as if it had run before
        folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a short name: that of a socket may have 107 bytes
        head = {"num_cpus": cpus, "include_dashboard": False, "temp_dir": folder}
        cluster = Cluster(initialize_head=True, head_node_args={**head, "object_store_memory": 80 << 20})
        made.append((cluster, folder))
        others = [cluster.add_node(num_cpus=cpus, object_store_memory=80 << 20) for _ in range(nodes - 1)]
        return cluster, others

    yield make
    import ray

    ray.shutdown()
    for cluster, folder in made:
        cluster.shutdown()
        assert _gone(folder), "processes of the cluster are left"
        shutil.rmtree(folder)


def _gone(folder, patience=20):
    """Whether no process is left that was started with this folder among its arguments."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if not any(folder in command for command in _commands()):
            return True
        time.sleep(0.1)
    return False


def _commands():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
