"""A corpus cleaned by a cluster of two nodes is the one that this machine cleans, byte by byte."""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from excite.cli import main

sys.path.insert(0, str(Path(__file__).parents[2] / "dev"))

from generate_tags import CORPUS, CorpusSpec, generate

FILES = ("kept.parquet", "kept.tags.csv", "kept.dropped.parquet", "kept.report.json")


def clean(capsys, out, *options):
    arguments = ["corpus.parquet", "--out", f"{out}/kept.parquet", "--min-count", "20", "--json", *options]
    with pytest.raises(SystemExit) as ended:
        main(["tags", "clean", *arguments])
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


def test_the_same_rows(make_cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    list(generate(CorpusSpec(3000, tags=300, marks=2000, pictures_a_user=40), tmp_path))
    pq.write_table(pq.read_table(CORPUS), "corpus.parquet", row_group_size=250)  # twelve row groups
    here = clean(capsys, "here")
    cluster, _ = make_cluster(cpus=1)
    there = clean(capsys, "there", "--engine", "ray", "--address", cluster.address, "--workers", "2")
    assert here["dropped"] == there["dropped"]
    assert min(here["dropped"]["similar"], here["kept"]) > 500
    for name in FILES:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes(), name
