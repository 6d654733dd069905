"""The whole training of a tag classifier: what is learnt, what is written, and that it can be stopped anywhere."""

import csv
import multiprocessing
import shutil
import signal
import socket
import time
from dataclasses import replace

import learning
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import excite
from excite.errors import DataError, ExciteError
from excite.models.loading import FACTS, WEIGHTS, read_saved
from excite.tags.dictionary import Dictionary
from excite.training.features import Views
from excite.training.tags.dataset import epoch_order
from excite.training.tags.loop import TrainingOptions
from excite.training.tags.model import distributed
from excite.training.tags.run import CHECKPOINT, CURVES

COLOURS = ("red", "green", "蓝 blue")
QUICK = learning.QUICK
PATIENCE = 120  # seconds
training = learning.tag_training


@pytest.fixture
def world(tmp_path, monkeypatch):
    """40 images of a colour each, tagged with it behind a tag that says nothing."""
    learning.know_tiny(monkeypatch)
    words = learning.coloured(tmp_path / "photos", 40, COLOURS)
    rows = [(name, ["thing", word] if k % 2 else [word, "nowhere", "2019"]) for k, (name, word) in enumerate(words)]
    table = pa.table({"image": [name for name, _ in rows], "tags": [tags for _, tags in rows], "user": ["u"] * 40})
    pq.write_table(table, tmp_path / "c.parquet")
    return tmp_path


def curves(folder):
    """All columns but the speed, which is another one each time."""
    lines = list(csv.reader((folder / CURVES).read_text().splitlines()))
    assert lines[0][-1] == "pictures_per_second"
    return [line[:-1] for line in lines]


def content(folder):
    return [(folder / name).read_bytes() for name in (WEIGHTS, FACTS)], curves(folder)


class TestLearning:
    @pytest.mark.parametrize(("layers", "views"), [("output", 0), ("output", 2), ("all", 0)])
    def test_a_classifier_for_every_command(self, world, layers, views):
        rate = 0.05 if layers == "output" else 0.002
        options = TrainingOptions(layers, epochs=6, batch=8, rate=rate, views=views, held_out=0.25, checks=1)
        answer = training(world, "out", options, command="excite train tags c.parquet", save_every=999).train()
        assert (answer["tags"], answer["pictures"] + answer["pictures_held_out"]) == (6, 40)
        assert answer["map"] > 1.5 * answer["map_by_frequency"]
        classifier = excite.load(world / "out")
        assert classifier.multilabel is True
        assert set(classifier.labels) == {*COLOURS, "thing", "2019", "nowhere"}
        for k in range(3):
            picture = classifier.preprocess(Image.open(world / f"photos/{k}.png"))[None]
            units = [classifier.labels.find(colour).units[0] for colour in COLOURS]
            assert classifier.probabilities(classifier.module(picture))[0, units].argmax() == k
        assert Dictionary.read(world / "out/dictionary.csv").tags == tuple(classifier.labels)
        card = (world / "out/README.md").read_text()
        assert all(fact in card for fact in ("excite train tags c.parquet", f"{answer['map']:.4f}"))
        measures = csv.DictReader((world / "out/measures.csv").read_text().splitlines())
        seen = [float(line["precision"]) for line in measures if line["precision"]]
        assert np.mean(seen) == pytest.approx(answer["map"], abs=1e-5)
        assert not (world / "out" / CHECKPOINT).exists()

    @pytest.mark.parametrize("layers", ["output", "all"])
    def test_as_if_trained_by_hand(self, world, layers):
        """The same descent with torch's own loss and whole forward passes; batch norms keep their statistics."""
        options = TrainingOptions(layers, epochs=1, batch=8, rate=0.05, held_out=0)
        answer = training(world, "out", options).train()
        assert "map" not in answer
        tags = Dictionary.read(world / "out/dictionary.csv").tags
        rows = pq.read_table(world / "c.parquet").to_pylist()
        truth = torch.tensor([[float(tag in row["tags"]) for tag in tags] for row in rows])
        network = excite.load(learning.NAME).module
        network.out = torch.nn.Linear(8, len(tags))
        network.out.weight.data.normal_(std=0.01, generator=torch.Generator().manual_seed(0))
        network.out.bias.data = ((truth.sum(0) + 0.5) / 41).logit()
        sgd = torch.optim.SGD((network.out if layers == "output" else network).parameters(), lr=0.05, momentum=0.9)
        views = epoch_order(np.zeros(40, np.int64), 0, 0)
        seen = Views(learning.TINY.preprocess)
        for start in range(0, 40, 8):
            names = [(k, rows[k]["image"]) for k in views[start : start + 8]]
            pictures = torch.cat([seen(Image.open(world / "photos" / name), name, (0,)) for _, name in names])
            bce = torch.nn.functional.binary_cross_entropy_with_logits
            loss = bce(network(pictures), truth[[k for k, _ in names]], reduction="sum") / 8
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        trained = excite.load(world / "out").module.state_dict()
        for name, tensor in network.state_dict().items():
            assert torch.allclose(tensor, trained[name], atol=1e-5), name

    def test_a_seed_says_it_all_and_finished_is_finished(self, world):
        options = TrainingOptions(epochs=1, batch=8)
        first = training(world, "a", options, tensorboard=True).train()
        for name, seed in (("b", 0), ("c", 1)):
            training(world, name, replace(options, seed=seed)).train()
        assert content(world / "a") == content(world / "b")
        assert (world / "a" / WEIGHTS).read_bytes() != (world / "c" / WEIGHTS).read_bytes()
        events = EventAccumulator(str(world / "a/tensorboard"))
        events.Reload()
        expected = [float(line[4]) for line in curves(world / "a")[1:]]
        assert [event.value for event in events.Scalars("validation_loss")] == pytest.approx(expected)
        before = (world / "a" / FACTS).stat().st_mtime_ns
        again = training(world, "a", options, progress=learning.stopping_after(0)).train()
        assert again["already"] is True
        assert (again["map"], again["files"]) == (first["map"], first["files"])
        assert (world / "a" / FACTS).stat().st_mtime_ns == before


class TestStopped:
    @pytest.mark.parametrize("layers", ["output", "all"])
    def test_anywhere(self, world, layers):
        options = replace(QUICK, layers=layers)
        steps = training(world, "whole", options).train()["steps"]
        assert steps == 6
        for stopped in (0, 2, 3, 5) if layers == "output" else (1, 4):
            with pytest.raises(learning.Stopped):
                training(world, "out", options, progress=learning.stopping_after(stopped)).train()
            notes = []
            training(world, "out", options, note=notes.append).train()
            assert notes == [f"going on from step {stopped + 1} of 6"]
            assert content(world / "out") == content(world / "whole")
            shutil.rmtree(world / "out")

    @pytest.mark.parametrize(("every", "said"), [(999, []), (0, ["beginning anew"])])
    def test_nothing_to_go_on_from(self, world, every, said):
        """Before the first checkpoint, or with that of another training."""
        other = TrainingOptions(epochs=1, batch=4, held_out=0.25)
        training(world, "whole", other).train()
        with pytest.raises(learning.Stopped):
            training(world, "out", save_every=every, progress=learning.stopping_after(2)).train()
        notes = []
        training(world, "out", other, note=notes.append).train()
        assert [note.rpartition(": ")[2] for note in notes] == said
        assert content(world / "out") == content(world / "whole")


@pytest.mark.parametrize("views", [0, 1])
def test_bad_images_are_counted_once_and_skipped(world, views):
    options = replace(QUICK, views=views)
    rows = pq.read_table(world / "c.parquet").to_pylist()
    rows += [{"image": name, "tags": ["red"], "user": "u"} for name in ("../c.parquet", "gone.png", "bad.png")]
    pq.write_table(pa.Table.from_pylist(rows), world / "c.parquet")
    (world / "photos/bad.png").write_bytes(b"no image")
    answer = training(world, "out", options).train()
    assert (answer["unreadable"], len(answer["lines"])) == (3, 3)
    assert any("outside" in line for line in answer["lines"])
    for path in (world / "photos").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="can be read; the first") as raised:
        training(world, "nothing", options).train()
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("quick_workers")
class TestProcesses:
    def start(self, world, out, pause=0.0, **environment):
        """Another process that trains in the same way."""
        options = (world, out, QUICK, pause, environment)
        process = multiprocessing.get_context("forkserver").Process(target=learning.train_tags, args=options)
        process.start()
        return process

    def test_killed_for_good(self, world):
        """SIGKILL while a training runs; the next one gives the same classifier, byte for byte."""
        training(world, "whole").train()
        process = self.start(world, "out", pause=0.15)
        deadline = time.monotonic() + PATIENCE
        while not (world / "out" / CHECKPOINT).exists():
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.3)
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
        assert not (world / "out" / FACTS).exists()
        notes = []
        training(world, "out", note=notes.append).train()
        assert "going on from step" in notes[0]
        assert content(world / "out") == content(world / "whole")

    def test_two_learn_as_one(self, world, monkeypatch):
        """This process is the first of two, as torchrun would start them."""
        (world / "photos/7.png").write_bytes(b"no image")
        training(world, "whole").train()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        facts = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        for name, value in (*facts.items(), ("RANK", "0")):
            monkeypatch.setenv(name, value)
        process = self.start(world, "out", RANK="1", **facts)
        try:
            with distributed() as processes:
                assert processes.size == 2
                training(world, "out", processes=processes).train()
            process.join(PATIENCE)
            assert process.exitcode == 0
        finally:
            process.kill()
        one, two = (np.array(curves(world / name)[1:], float) for name in ("whole", "out"))
        assert np.allclose(one, two, rtol=1e-5)
        whole, out = (load_file(world / name / WEIGHTS) for name in ("whole", "out"))
        assert all(torch.allclose(whole[name], out[name], atol=1e-5) for name in whole)
        facts = [read_saved(world / name).training for name in ("whole", "out")]
        assert facts[0]["unreadable"] == facts[1]["unreadable"] == 1
        assert facts[0]["map"] == pytest.approx(facts[1]["map"])

    def test_others_that_never_come(self, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.delenv("MASTER_ADDR", raising=False)
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(ExciteError, match="cannot be reached"), distributed():
            pass
