"""A real cluster of two nodes with a worker each: it cleans as one machine does; a worker, a node, the command die."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from annotated import make_voc, scenes
from processes import PATIENCE, Forked, results, wait_for_lines
from slow_work import Counting, slow_classifier, workers_seen

from excite.cli import main
from excite.errors import ExciteError
from excite.jobs import Executor, ResultStore
from excite.jobs import cluster as ray_cluster
from excite.jobs.loop import run
from excite.jobs.parquet import read_parquet

sys.path.insert(0, str(Path(__file__).parents[2] / "dev"))

from generate_tags import CORPUS, CorpusSpec, generate

PICTURES = 24
TABLES = ("rows.json", "rows.csv", "categories.csv", "table.md")
BENCH = ("bench", "pointing", "--data", "voc", "--methods", "c-mwp,mwp", "--no-page")
CLEANED = ("kept.parquet", "kept.tags.csv", "kept.dropped.parquet", "kept.report.json")
LOAD = "excite.models.Choice.load"
COMMAND = """
import sys
from slow_work import slow_classifier
from excite.cli import main
from excite.models import Choice
Choice.load = lambda choice: slow_classifier("diary", seconds=0.2)
main(sys.argv[1:])
"""


@pytest.fixture
def diary(tmp_path, monkeypatch):
    """Where workers note what they do, and in ``whole`` what the command gives on one machine."""
    monkeypatch.chdir(tmp_path)
    make_voc(tmp_path / "voc", scenes(PICTURES))
    monkeypatch.setattr(LOAD, lambda choice: slow_classifier(tmp_path / "diary", seconds=0))
    excite(*BENCH, "--out", "whole")
    monkeypatch.setattr(LOAD, lambda choice: slow_classifier(tmp_path / "diary", seconds=0.25))
    return tmp_path / "diary"


def excite(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


@pytest.fixture
def start():
    """Start the command in a process of its own; none outlives its test, whatever happens in it."""
    started = []

    def begin(*arguments):
        process = Forked(COMMAND, arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        with process:
            process.kill()


def rows(folder):
    """All rows of a Parquet folder, in order."""
    return list(read_parquet(Path(folder)))


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def check_tables(out):
    for name in TABLES:
        assert Path(out, name).read_bytes() == Path("whole", name).read_bytes()


def wait_until(true):
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_same_rows_though_workers_and_commands_are_killed(diary, make_cluster, start, monkeypatch, capfd):
    """One cluster for all: to start one takes longer than what is done with it, and each worker imports torch."""
    cluster, (other,) = make_cluster(nodes=2, cpus=1)
    check_cleaned(cluster, capfd)
    check_killed_workers(diary, cluster, other, capfd)
    check_killed_command(diary, cluster, start, monkeypatch)


def check_cleaned(cluster, capfd):
    """A corpus cleaned by the cluster is the one that this machine cleans, byte by byte."""
    list(generate(CorpusSpec(3000, tags=300, marks=2000, pictures_a_user=40), Path()))
    pq.write_table(pq.read_table(CORPUS), "corpus.parquet", row_group_size=250)  # twelve row groups
    dropped = {}
    clean, elsewhere = ("tags", "clean", "corpus.parquet", "--min-count", 20, "--json"), ("--workers", "2")
    elsewhere += ("--engine", "ray", "--address", cluster.address)
    for place, options in {"here": (), "there": elsewhere}.items():
        capfd.readouterr()
        excite(*clean, "--out", f"{place}/kept.parquet", *options)
        said = json.loads(capfd.readouterr().out)
        dropped[place] = said["dropped"]
        assert min(said["dropped"]["similar"], said["kept"]) > 500
    assert dropped["here"] == dropped["there"]
    for name in CLEANED:
        assert Path("here", name).read_bytes() == Path("there", name).read_bytes(), name


def check_killed_workers(diary, cluster, other, capfd):
    here, happened = workers_seen(diary), []

    def begun():
        return {pid: count for pid, count in workers_seen(diary).items() if pid not in here}

    def kill():
        wait_until(lambda: len(begun()) >= 2 and sum(begun().values()) >= 4)
        os.kill(next(iter(begun())), signal.SIGKILL)
        happened.append(sum(begun().values()))
        wait_until(lambda: sum(begun().values()) >= happened[0] + 4)
        cluster.remove_node(other, allow_graceful=False)
        happened.append(sum(begun().values()))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    capfd.readouterr()
    excite(*BENCH, "--out", "cluster", "--json", "--engine", "ray", "--address", cluster.address)
    killer.join(PATIENCE)
    assert len(happened) == 2
    assert happened[1] < PICTURES, "all was done before the node was removed"
    said = capfd.readouterr()
    assert json.loads(said.out) == json.loads(Path("whole/rows.json").read_text())  # and nothing that Ray says
    slow = "excite: note: no worker of the Ray cluster is ready"  # so it is, on a busy machine
    assert not [line for line in said.err.splitlines() if not line.startswith(slow)]
    check_tables("cluster")
    assert lines("cluster/records.jsonl") == lines("whole/records.jsonl")  # each row once
    assert rows("cluster/records.parquet") == lines("whole/records.jsonl")


def check_killed_command(diary, cluster, start, monkeypatch):
    """Killed, then stopped; another engine goes on."""
    arguments = (*BENCH, "--out", "out", "--engine", "ray", "--address", cluster.address)
    process = start(*arguments)
    wait_for_lines(Path("out/records.jsonl"), 3, process)
    process.kill()
    process.communicate(timeout=PATIENCE)
    killed = results(Path("out/records.jsonl"))
    assert 3 <= len(killed) < PICTURES

    process = start(*arguments)
    wait_for_lines(Path("out/records.jsonl"), len(killed) + 3, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert said == ("", "excite: stopped; what was finished is kept\n")
    stopped = rows("out/records.parquet")
    assert stopped[: len(killed)] == killed
    assert len(killed) + 3 <= len(stopped) < PICTURES

    monkeypatch.setattr(LOAD, lambda choice: slow_classifier(diary, seconds=0))
    excite(*BENCH, "--out", "out")
    check_tables("out")
    assert lines("out/records.jsonl") == lines("whole/records.jsonl")


def test_a_cluster_of_its_own(tmp_path, monkeypatch, capfd):
    """Started for one run: a task that ends every worker, images that cannot be read, and overlays."""
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(ray_cluster, "MOST_LOST", 2)
    executor = Executor("ray", 2, "local")
    store = ResultStore(tmp_path / "records.jsonl", ("double",), parquet=True)
    failures = []
    with pytest.raises(ExciteError, match=r"2 workers ended without an answer at 5.*what was finished is kept"):
        list(run(Counting(unreadable=(1,), deadly=(5,)), range(9), store, workers=executor, failures=failures))
    assert failures == ["1 cannot be read"]
    assert [row["double"] for row in rows("records.parquet")] == [0, 4, 6, 8]
    assert capfd.readouterr().out == ""
