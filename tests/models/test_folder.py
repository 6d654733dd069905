"""A classifier in a folder: whole, strict, and nothing in it is run."""

import json
import pickle

import learning
import pytest
import torch

import excite
from excite.errors import ModelError
from excite.models import Choice
from excite.models.loading import FACTS, WEIGHTS, Saved, save_classifier
from excite.models.weights import filled_at_random

PICTURES = torch.randn(2, 3, 28, 40, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    base = learning.know_tiny(monkeypatch)
    network = filled_at_random(lambda: learning.Tiny(2))
    words = (("cat", "pussy"), ("dog",))
    facts = Saved(base, words, True, ("relu", "norm"), 24, False, training={"epochs": 3})
    files = save_classifier(tmp_path / "pets", network, facts)
    assert [file.name for file in files] == [WEIGHTS, FACTS]
    return tmp_path / "pets"


def change(folder, **facts):
    path = folder / FACTS
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


class TestLoading:
    def test_everything_comes_back(self, folder):
        classifier = excite.load(folder)
        expected = filled_at_random(lambda: learning.Tiny(2))
        assert torch.equal(classifier.module(PICTURES), expected(PICTURES))
        assert not classifier.module.training
        assert list(classifier.labels) == ["cat", "dog"]
        assert classifier.labels.find("pussy").units == (0,)
        assert classifier.multilabel is True
        assert (classifier.layer, classifier.layers) == ("relu", ("relu", "norm"))
        assert classifier.preprocess.shorter_side == 24
        assert classifier.name == str(folder)

    def test_the_key_of_a_choice_notices_other_files(self, folder):
        keys = [Choice(str(folder)).key()]
        for name in (WEIGHTS, FACTS):
            (folder / name).write_bytes((folder / name).read_bytes())
            keys.append(Choice(str(folder)).key())
        assert len({json.dumps(key) for key in keys}) == 3
        assert len(keys[0]["files"]) == 2


class TestDamage:
    def test_no_classifier_in_it(self, tmp_path):
        with pytest.raises(ModelError, match=r"a folder without classifier.json: `excite finetune --out` makes one"):
            excite.load(tmp_path)

    @pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"format": 2}', "{}"])
    def test_no_facts(self, folder, text):
        (folder / FACTS).write_text(text)
        with pytest.raises(ModelError, match=r"classifier\.json") as caught:
            excite.load(folder)
        assert "\n" not in str(caught.value)

    def test_missing_and_wrong_facts(self, folder):
        whole = json.loads((folder / FACTS).read_text())
        for name in whole.keys() - {"format"}:
            for facts in ({key: value for key, value in whole.items() if key != name}, {**whole, name: None}):
                (folder / FACTS).write_text(json.dumps(facts))
                with pytest.raises(ModelError, match=name):
                    excite.load(folder)

    @pytest.mark.parametrize(
        "facts", [{"size": 0}, {"size": True}, {"labels": []}, {"labels": [[]]}, {"layers": [1]}, {"more": 1}]
    )
    def test_impossible_facts(self, folder, facts):
        change(folder, **facts)
        with pytest.raises(ModelError, match=r"classifier\.json"):
            excite.load(folder)

    @pytest.mark.parametrize("base", ["nothing", "pets", "weights.pth", "net.caffemodel", "../pets"])
    def test_only_known_networks(self, folder, base, monkeypatch):
        monkeypatch.chdir(folder.parent)
        change(folder, base=base)
        with pytest.raises(ModelError, match="is for a network"):
            excite.load(folder)

    def test_weights_of_another_training(self, folder):
        change(folder, labels=["cat", "dog", "cow"])
        with pytest.raises(ModelError, match="does not fit Tiny: out"):
            excite.load(folder)
        content = bytearray((folder / WEIGHTS).read_bytes())
        content[-1] ^= 1
        (folder / WEIGHTS).write_bytes(content)
        with pytest.raises(ModelError, match=r"not the one that classifier\.json was written with"):
            excite.load(folder)

    def test_nothing_is_run(self, folder, tmp_path):
        class Evil:
            def __reduce__(self):
                return (open, (str(tmp_path / "run"), "w"))

        (folder / WEIGHTS).write_bytes(pickle.dumps({"out.weight": Evil()}))
        with pytest.raises(ModelError, match="could run any program"):
            excite.load(folder)
        assert not (tmp_path / "run").exists()
