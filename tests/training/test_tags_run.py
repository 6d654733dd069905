"""The whole training of a tag classifier: what is learnt, what is written, and that it can be stopped anywhere."""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import learning
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import load_file

import excite
from excite.cli import train as train_tags
from excite.errors import DataError, ExciteError, ModelError
from excite.models.folder import FACTS, WEIGHTS, read_saved
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary
from excite.tags.images import open_images
from excite.training.features import Views
from excite.training.tags.dataset import epoch_order
from excite.training.tags.loop import TrainingOptions
from excite.training.tags.model import distributed
from excite.training.tags.run import CHECKPOINT, CURVES, TagTraining

COLOURS = {"red": (220, 20, 20), "green": (20, 220, 20), "蓝 blue": (20, 20, 220)}
QUICK = TrainingOptions(epochs=2, batch=12, rate=0.05, held_out=0.25, checks=2)
PATIENCE = 120  # seconds


@pytest.fixture
def world(tmp_path, monkeypatch):
    """40 images of a colour each, tagged with it behind a tag that says nothing."""
    learning.know_tiny(monkeypatch)
    random, rows = np.random.default_rng(0), []
    (tmp_path / "photos").mkdir()
    for k in range(40):
        word, colour = list(COLOURS.items())[k % 3]
        noise = random.integers(-20, 20, (32, 40, 3))
        Image.fromarray((noise + colour).clip(0, 255).astype(np.uint8)).save(tmp_path / f"photos/{k}.png")
        rows.append((f"{k}.png", ["thing", word] if k % 2 else [word, "nowhere", "2019"]))
    table = pa.table({"image": [name for name, _ in rows], "tags": [tags for _, tags in rows], "user": ["u"] * 40})
    pq.write_table(table, tmp_path / "c.parquet")
    return tmp_path


def training(world, out, options=QUICK, **more):
    where = open_images(world / "photos")
    more = {"min_count": 2, "save_every": 0, "model": learning.NAME, **more}
    return TagTraining(Corpus(world / "c.parquet"), where, world / out, options, **more)


def curves(folder):
    """All columns but the speed, which is another one each time."""
    lines = list(csv.reader((folder / CURVES).read_text().splitlines()))
    assert lines[0][-1] == "pictures_per_second"
    return [line[:-1] for line in lines]


def content(folder):
    return [(folder / name).read_bytes() for name in (WEIGHTS, FACTS)], curves(folder)


class Stopped(Exception):
    pass


def stopping_after(steps):
    def progress(items, _total, _what):
        for number, item in enumerate(items):
            if number == steps:
                raise Stopped
            yield item

    return progress


class TestLearning:
    @pytest.mark.parametrize(("layers", "views"), [("output", 0), ("output", 2), ("all", 0)])
    def test_a_classifier_for_every_command(self, world, layers, views):
        rate = 0.05 if layers == "output" else 0.002
        options = TrainingOptions(layers, epochs=6, batch=8, rate=rate, views=views, held_out=0.25, checks=1)
        answer = training(world, "out", options, command="excite train tags c.parquet", save_every=999).train()
        assert answer["tags"] == 6
        assert answer["pictures"] + answer["pictures_held_out"] == 40
        assert answer["map"] > 1.5 * answer["map_by_frequency"]
        classifier = excite.load(world / "out")
        assert classifier.multilabel is True
        assert set(classifier.labels) == {*COLOURS, "thing", "2019", "nowhere"}
        for k in range(3):
            picture = classifier.preprocess(Image.open(world / f"photos/{k}.png"))[None]
            units = [classifier.labels.find(colour).units[0] for colour in COLOURS]
            assert classifier.probabilities(classifier.module(picture))[0, units].argmax() == k
        assert classifier.labels.find("2019").name == "2019"
        assert Dictionary.read(world / "out/dictionary.csv").tags == tuple(classifier.labels)
        card = (world / "out/README.md").read_text()
        assert "excite train tags c.parquet" in card
        assert f"{answer['map']:.4f}" in card
        measures = list(csv.DictReader((world / "out/measures.csv").read_text().splitlines()))
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

    def test_a_seed_says_it_all(self, world):
        for name, seed in (("a", 0), ("b", 0), ("c", 1)):
            training(world, name, TrainingOptions(epochs=1, batch=8, seed=seed)).train()
        assert content(world / "a") == content(world / "b")
        assert (world / "a" / WEIGHTS).read_bytes() != (world / "c" / WEIGHTS).read_bytes()

    def test_finished_is_finished(self, world):
        first = training(world, "out").train()
        before = (world / "out" / FACTS).stat().st_mtime_ns
        again = training(world, "out", progress=stopping_after(0)).train()
        assert again["already"] is True
        assert again["map"] == first["map"]
        assert again["files"] == first["files"]
        assert (world / "out" / FACTS).stat().st_mtime_ns == before

    def test_tensorboard(self, world):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        training(world, "out", tensorboard=True).train()
        events = EventAccumulator(str(world / "out/tensorboard"))
        events.Reload()
        expected = [float(line[4]) for line in curves(world / "out")[1:]]
        assert [event.value for event in events.Scalars("validation_loss")] == pytest.approx(expected)


class TestStopped:
    @pytest.mark.parametrize("layers", ["output", "all"])
    def test_anywhere(self, world, layers):
        options = replace(QUICK, layers=layers)
        steps = training(world, "whole", options).train()["steps"]
        assert steps == 6
        for stopped in (0, 2, 3, 5) if layers == "output" else (1, 4):
            with pytest.raises(Stopped):
                training(world, "out", options, progress=stopping_after(stopped)).train()
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
        with pytest.raises(Stopped):
            training(world, "out", save_every=every, progress=stopping_after(2)).train()
        notes = []
        training(world, "out", other, note=notes.append).train()
        assert [note.rpartition(": ")[2] for note in notes] == said
        assert content(world / "out") == content(world / "whole")

    def test_a_damaged_checkpoint(self, world):
        (world / "out").mkdir()
        (world / "out" / CHECKPOINT).write_bytes(b"no tensors")
        with pytest.raises(ModelError, match="remove it to begin again"):
            training(world, "out").train()


class TestBadPictures:
    @pytest.mark.parametrize("options", [QUICK, TrainingOptions(epochs=2, batch=8, rate=0.05, held_out=0.25, views=1)])
    def test_counted_once_and_skipped(self, world, options):
        rows = pq.read_table(world / "c.parquet").to_pylist()
        rows += [{"image": name, "tags": ["red"], "user": "u"} for name in ("../c.parquet", "gone.png", "bad.png")]
        pq.write_table(pa.Table.from_pylist(rows), world / "c.parquet")
        (world / "photos/bad.png").write_bytes(b"no image")
        answer = training(world, "out", options).train()
        assert answer["unreadable"] == 3
        assert len(answer["lines"]) == 3
        assert any("outside" in line for line in answer["lines"])

    @pytest.mark.parametrize("options", [TrainingOptions(), TrainingOptions(views=1)])
    def test_not_one_can_be_read(self, world, options):
        (world / "nothing").mkdir()
        nothing = training(world, "out", options)
        nothing.images = open_images(world / "nothing")
        with pytest.raises(DataError, match="can be read; the first") as raised:
            nothing.train()
        assert "\n" not in str(raised.value)


class TestCommand:
    def run(self, arguments, capsys):
        app = typer.Typer()
        app.command()(train_tags.tags_command)
        app(arguments, standalone_mode=False, obj=["train", "tags", *arguments])
        return capsys.readouterr()

    def test_an_answer_as_json_and_for_people(self, world, capsys):
        (world / "photos/0.png").write_bytes(b"no image")
        arguments = [str(world / "c.parquet"), "--pictures", str(world / "photos"), "--out", str(world / "out")]
        arguments += ["--model", learning.NAME, "--min-count", "2", "--epochs", "1", "--batch", "8"]
        told = self.run([*arguments, "--json"], capsys)
        answer = json.loads(told.out)
        assert answer["unreadable"] == 1
        assert "0.png" in told.err
        assert read_saved(world / "out").training["map"] == answer["map"]
        assert "train tags" in (world / "out/README.md").read_text()
        told = self.run(arguments, capsys)
        assert "finished already" in told.out
        assert "x that of predicting by frequency" in told.out

    def test_options_that_do_not_go_together(self):
        with pytest.raises(ModelError, match="leave --views out"):
            TrainingOptions("all", views=2)
        with pytest.raises(ModelError, match="choose output or all"):
            TrainingOptions("some")


OTHER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import learning, time
from excite.models import MODELS
from excite.tags.corpus import Corpus
from excite.tags.images import open_images
from excite.training.tags.loop import TrainingOptions
from excite.training.tags.run import TagTraining
from excite.training.tags.model import distributed

def slowly(items, total, what):
    for item in items:
        time.sleep({pause})  # so that there is time to be killed in
        yield item

MODELS[learning.NAME] = learning.TINY
options = TrainingOptions(epochs=2, batch=12, rate=0.05, held_out=0.25, checks=2)
with distributed() as processes:
    TagTraining(
        Corpus(Path("c.parquet")), open_images("photos"), Path({out!r}), options, learning.NAME, min_count=2,
        save_every=0, processes=processes, progress=slowly,
    ).train()
"""


def start(world, out, pause=0.0, **environment):
    tests = str(Path(learning.__file__).parent)
    script = OTHER.format(tests=tests, out=out, pause=pause)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=world)  # noqa: S603 - ours


class TestProcesses:
    def test_killed_for_good(self, world):
        """SIGKILL while a training runs; the next one gives the same classifier, byte for byte."""
        training(world, "whole").train()
        process = start(world, "out", pause=0.15)
        deadline = time.monotonic() + PATIENCE
        while not (world / "out" / CHECKPOINT).exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
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
        process = start(world, "out", RANK="1", **facts)
        try:
            with distributed() as processes:
                assert processes.size == 2
                training(world, "out", processes=processes).train()
            assert process.wait(PATIENCE) == 0
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
