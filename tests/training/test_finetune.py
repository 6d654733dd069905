"""Fine-tuning: what is learnt, what is kept on disk, and that it can be stopped anywhere."""

from dataclasses import replace

import learning
import numpy as np
import pytest
import torch

import excite
from excite.errors import DataError, ExciteError
from excite.models.loading import FACTS, WEIGHTS
from excite.training import features
from excite.training import finetune as finetuning
from excite.training.examples import read_examples
from excite.training.features import FeatureExtractor, FeatureStore, Views
from excite.training.finetune import FEATURES, FineTuning
from excite.training.sgd import SGDOptions
from excite.vocabulary import Labels

QUICK = SGDOptions(batch=8, rate=0.1)


@pytest.fixture
def data(tmp_path, monkeypatch):
    learning.know_tiny(monkeypatch)
    return learning.make_train(tmp_path / "data")


@pytest.fixture
def few_epochs(monkeypatch):
    monkeypatch.setattr(finetuning, "plateaued", lambda losses: len(losses) >= 5)


def tuning(data, out, **options):
    return FineTuning(learning.NAME, read_examples(data, "train"), out, **{"sgd": QUICK, **options})


def content(out):
    return [(out / name).read_bytes() for name in (WEIGHTS, FACTS)]


class TestLearning:
    def test_a_classifier_for_every_command(self, data, tmp_path):
        out = tmp_path / "out"
        about = tuning(data, out).train()
        classifier = excite.load(out)
        assert list(classifier.labels) == ["green", "red"]
        assert classifier.multilabel is True
        for k in (1, 2, 4, 5, 7, 8):  # with one colour each
            (best, *_) = excite.attend(classifier, data / f"JPEGImages/{k:06}.jpg", "red" if k % 2 else "green")
            assert best.probability > 0.5
        assert (about["pictures"], about["categories"]) == (12, ["green", "red"])
        assert about["epochs"] > 5
        assert [file.rpartition("/")[2] for file in about["files"]] == [WEIGHTS, FACTS]
        base, trained = (excite.load(name).module.state_dict() for name in (learning.NAME, out))
        assert [name for name in base if not torch.equal(base[name], trained[name])] == ["out.weight", "out.bias"]
        again = FineTuning(str(out), read_examples(data, "train"), tmp_path / "two", sgd=QUICK).train()
        assert again["model"] == learning.NAME  # also from a classifier that was trained before

    def test_as_if_trained_by_hand(self, data, tmp_path):
        """The same descent, written down with whole forward passes and nothing kept."""
        tuning(data, tmp_path / "out", views=2).train()
        trained = excite.load(tmp_path / "out").module
        examples = read_examples(data, "train")
        network = excite.load(learning.NAME).module
        network.out = torch.nn.Linear(8, 2)
        torch.nn.init.zeros_(network.out.bias)
        network.out.weight.data.normal_(std=0.01, generator=torch.Generator().manual_seed(0))
        sgd = torch.optim.SGD(network.out.parameters(), lr=0.1, momentum=0.9)
        views = Views(learning.TINY.preprocess)
        truth = torch.tensor([[float(c in p.present) for c in ("green", "red")] for p in examples.pictures])
        pictures = [views(excite.images.read_image(p.path), p.name, (0, 1)) for p in examples.pictures]
        for epoch in range(excite.models.loading.read_saved(tmp_path / "out").training["epochs"]):
            order = np.random.default_rng([0, epoch]).permutation(12)
            for batch in (order[:8], order[8:]):
                logits = network(torch.stack([pictures[k][(k + epoch) % 2] for k in batch]))
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth[batch], reduction="sum")
                sgd.zero_grad()
                (loss / len(batch)).backward()
                sgd.step()
        assert torch.allclose(trained.out.weight, network.out.weight, atol=2e-3)  # features were kept as halves
        assert torch.allclose(trained.out.bias, network.out.bias, atol=2e-3)

    def test_chosen_categories(self, data, tmp_path):
        labels = Labels([["Rot", "red"], "blue"])
        examples = replace(read_examples(data, "train"), labels=labels, categories=("red", "blue"))
        about = FineTuning(learning.NAME, examples, tmp_path / "out", sgd=QUICK).train()
        assert about["categories"] == ["red", "blue"]
        assert about["never_seen"] == ["blue"]
        assert excite.load(tmp_path / "out").labels.find("rot").units == (0,)

    def test_held_out_images(self, data, tmp_path):
        kept, held_out = read_examples(data, "train").split(0.4)
        work = FineTuning(learning.NAME, kept, tmp_path / "out")
        work.train()
        measured = work.measure(held_out)
        assert measured["held_out"] == len(held_out.pictures) > 2
        assert measured["map"] == sum(measured["precision"].values()) / 2 > 0.9


@pytest.mark.usefixtures("few_epochs")
class TestDeterminism:
    @pytest.mark.parametrize("augment", [False, True])
    def test_a_seed_says_it_all(self, data, tmp_path, augment):
        for name, seed in (("a", 0), ("b", 0), ("c", 1)):
            tuning(data, tmp_path / name, augment=augment, sgd=SGDOptions(8, 0.1, seed=seed)).train()
        assert content(tmp_path / "a") == content(tmp_path / "b")
        assert content(tmp_path / "a")[0] != content(tmp_path / "c")[0]

    @pytest.mark.usefixtures("quick_workers")
    def test_with_several_workers(self, data, tmp_path):
        tuning(data, tmp_path / "one").train()
        tuning(data, tmp_path / "two", workers=2).train()
        assert content(tmp_path / "one") == content(tmp_path / "two")

    @pytest.mark.parametrize(("augment", "stops"), [(False, [0, 7]), (True, [0, 5, 12, 41])])
    def test_stopped_anywhere(self, data, tmp_path, augment, stops):
        tuning(data, tmp_path / "whole", augment=augment).train()
        for stopped in stops:
            out = tmp_path / f"stopped-{stopped}"
            with pytest.raises(learning.Stopped):
                tuning(data, out, augment=augment, progress=learning.stopping_after(stopped)).train()
            tuning(data, out, augment=augment).train()
            assert content(out) == content(tmp_path / "whole")
            assert len(list((out / FEATURES).glob("epoch-*"))) == augment

    def test_a_training_with_other_settings_begins_anew(self, data, tmp_path):
        other = SGDOptions(batch=4, rate=0.05)
        for name, sgd in (("whole", other), ("out", QUICK), ("out", other)):
            tuning(data, tmp_path / name, augment=True, sgd=sgd).train()
        assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.usefixtures("few_epochs")
class TestKeptFeatures:
    def test_a_changed_image_and_lost_features_are_done_again(self, data, tmp_path, monkeypatch):
        tuning(data, tmp_path / "out").train()
        learning.make_voc(tmp_path / "other", [("000003", [("red", (0, 0, 30, 30))])])
        (tmp_path / "other/JPEGImages/000003.jpg").replace(data / "JPEGImages/000003.jpg")
        with (tmp_path / "out" / FEATURES / "features.bin").open("r+b") as file:
            file.truncate(file.seek(0, 2) - 1)  # the last image's are not all there
        seen, original = [], features.read_image
        monkeypatch.setattr(features, "read_image", lambda path: seen.append(path.stem) or original(path))
        tuning(data, tmp_path / "out").train()
        assert seen == ["000003", "000011"]
        seen.clear()
        tuning(data, tmp_path / "out", sgd=SGDOptions(rate=0.2)).train()
        tuning(data, tmp_path / "out").train()
        assert seen == []
        tuning(data, tmp_path / "whole").train()
        assert content(tmp_path / "out") == content(tmp_path / "whole")

    def test_other_views_and_other_weights_are_other_features(self, data):
        network = excite.load(learning.NAME).module
        example = read_examples(data, "train").pictures[0]

        def key(network=network, numbers=(0, 1), seed=0):
            return FeatureExtractor(network, "out", Views(learning.TINY.preprocess, seed), numbers).key(example)

        same = excite.load(learning.NAME).module
        torch.nn.init.ones_(same.out.weight)  # the output layer may be any
        other = excite.load(learning.NAME).module
        torch.nn.init.ones_(other.conv.weight)
        keys = [key(), key(numbers=(0, 2)), key(seed=1), key(network=other)]
        assert len(set(keys)) == 4
        assert key(network=same) == keys[0]


@pytest.mark.usefixtures("few_epochs")
class TestBrokenPictures:
    def test_told_once_and_left_out(self, data, tmp_path):
        (data / "JPEGImages/000004.jpg").write_bytes(b"no image")
        (data / "JPEGImages/000007.jpg").unlink()
        work = tuning(data, tmp_path / "out", augment=True)
        assert work.train()["pictures"] == 10
        assert len(work.failures) == 2
        examples = read_examples(data, "train")
        readable = tuple(one for one in examples.pictures if one.name not in {"000004", "000007"})
        same = replace(examples, pictures=readable)
        FineTuning(learning.NAME, same, tmp_path / "same", sgd=QUICK, augment=True).train()
        assert content(tmp_path / "same")[0] == content(tmp_path / "out")[0]

    def test_not_one_can_be_read(self, data, tmp_path):
        for path in (data / "JPEGImages").iterdir():
            path.write_bytes(b"no image")
        with pytest.raises(DataError, match="none of 12 images can be read"):
            tuning(data, tmp_path / "out").train()
        with pytest.raises(DataError, match="no images to learn from"):
            FineTuning(learning.NAME, replace(read_examples(data, "train"), pictures=()), tmp_path / "out").train()


def entry(number):
    """The features of an image: nothing but its number."""
    return {"key": f"k{number}", "picture": f"{number}.jpg", "features": np.full((2, 4), number, np.float16)}


@pytest.fixture
def store(tmp_path):
    """Features of two images, kept by an earlier run."""
    store = FeatureStore(tmp_path / "features")
    for number in (1, 2):
        store.add(entry(number))
    store.close()
    return FeatureStore(tmp_path / "features")


def stored_numbers(store, *keys):
    return store.features(keys)[:, 0, 0].tolist()


def test_numbers_without_a_line_are_dropped(store):
    """A kill between the two."""
    with store.numbers.open("ab") as file:
        file.write(b"half of th")
    store.add(entry(3))
    assert stored_numbers(store, "k1", "k2", "k3") == [1, 2, 3]
    assert store.numbers.stat().st_size == 3 * 16


def test_a_line_whose_numbers_got_lost_is_forgotten(store):
    """A power cut: the numbers of the second image were never on the disk. Those of the third come in their place."""
    with store.numbers.open("ab") as file:
        file.truncate(20)
    assert set(store.read()) == {"k1"}
    store.add(entry(3))
    store.close()
    assert set(FeatureStore(store.numbers.parent).read()) == {"k1", "k3"}
    assert stored_numbers(store, "k1", "k3") == [1, 3]


def test_two_runs_at_once(store):
    store.add(entry(3))
    other = FeatureStore(store.numbers.parent)
    with pytest.raises(ExciteError, match="another run is writing"):
        other.add(entry(4))
    store.close()
    other.add(entry(4))
    assert stored_numbers(other, "k1", "k2", "k3", "k4") == [1, 2, 3, 4]
