"""The embedded classifier with everyday objects beside ImageNet's classes."""

import pytest
import torch

import excite
from excite.datasets import open_dataset
from excite.jobs import JsonLinesStore
from excite.jobs.loop import run
from excite.metrics.ranking import mean_average_precision
from excite.models.architectures import EVERYDAY_UNITS, WORDS_UNITS, embedded_labels, head_labels
from excite.training.examples import read_examples
from excite.training.finetune import CategoryScorer, precisions
from excite.vocabulary import Labels, imagenet_labels


@pytest.fixture(scope="module")
def classifier():
    return excite.load("everyday")


class TestNetwork:
    def test_imagenets_answers_are_those_of_the_network_it_is_made_from(self, classifier):
        pictures = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
        base = excite.load("efficientnet-lite0")
        with torch.no_grad():
            ours, theirs = classifier.module(pictures), base.module(pictures)
        assert ours.shape == (1, 1080)
        assert torch.allclose(ours[:, :1000], theirs, atol=1e-5)
        found = classifier.probabilities(ours)
        assert torch.allclose(found[:, :1000], theirs.softmax(1), atol=1e-6)
        assert torch.allclose(found[:, 1000:], ours[:, 1000:].sigmoid(), atol=1e-6)


class TestWords:
    def test_an_everyday_word_means_the_everyday_object(self):
        labels = embedded_labels("everyday")
        words = "person bottle dog cat orange zebra people sofa television aeroplane motorbikes".split()
        assert all(labels.find(word).units[0] in EVERYDAY_UNITS for word in [*words, "dining table", "Potted_Plant"])
        assert labels.find("television") == labels.find("tv") == labels.find("tv monitor")
        assert all(len(labels.find(words[0]).units) == 1 for words in head_labels("everyday"))

    def test_all_other_words_mean_what_they_meant(self):
        taken = {word for words in head_labels("everyday") for word in words}
        ours, theirs = embedded_labels("everyday"), imagenet_labels()
        for unit in range(1000):
            for word in theirs.synonyms(unit):
                if word.lower() not in taken:
                    assert ours.find(word) == theirs.find(word), word
        for word in ("terrier", "snake", "phone", "chairs", "ball", "fruit"):
            assert ours.find(word) == theirs.find(word) or word == "chairs"

    def test_every_category_of_voc_and_coco(self, shared_data):
        for folder in ("VOCdevkit", "coco"):
            dataset = open_dataset(shared_data / folder, "val")
            units = [dataset.concept(category, embedded_labels("everyday")).units for category in dataset.categories]
            assert all(len(unit) == 1 and unit[0] in EVERYDAY_UNITS for unit in units)
            assert len(set(units)) == len(units)


def test_the_head_is_as_good_as_the_documentation_says(classifier, shared_data, tmp_path):
    """On a few of the images kept aside; docs/finetune.md has the figure for all of them."""
    _, aside = read_examples(shared_data / "coco", "train2017").of(Labels(head_labels("everyday"))).split(0.1)
    few = type(aside)(aside.labels, aside.categories, aside.pictures[:60])
    entries = run(
        CategoryScorer(classifier), few.pictures, JsonLinesStore(tmp_path / "scores.jsonl", required=("scores",))
    )
    everyday = ({**entry, "scores": entry["scores"][EVERYDAY_UNITS.start :]} for entry in entries)
    assert mean_average_precision(list(precisions(few, everyday).values())) > 0.5


@pytest.fixture(scope="module")
def words():
    return excite.load("words")


def test_there_is_a_word_for_each_output(words):
    assert words.module.classifier.out_features == WORDS_UNITS.stop == len(embedded_labels("everyday", "words"))
    assert len(head_labels("words")) == WORDS_UNITS.stop - EVERYDAY_UNITS.stop
    assert excite.MODELS["words"].build(None).classifier.out_features == WORDS_UNITS.stop


def test_the_first_outputs_are_those_of_everyday(words, classifier):
    pictures = torch.randn(1, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = (one.module(pictures) for one in (words, classifier))
    assert torch.allclose(ours[:, : EVERYDAY_UNITS.stop], theirs, atol=1e-5)
    probabilities = words.probabilities(ours)[0]
    assert probabilities[:1000].sum() == pytest.approx(1, abs=1e-5)
    assert torch.allclose(probabilities[1000:], ours[0, 1000:].sigmoid(), atol=1e-6)


def test_a_word_that_several_outputs_have_means_all_of_them():
    labels = embedded_labels("everyday", "words")
    person, woman = labels.word("person").units, labels.word("woman").units
    assert EVERYDAY_UNITS.start <= person[0] < EVERYDAY_UNITS.stop <= person[1]
    assert woman[0] == person[0]
    assert labels.name(woman[1]) == "woman"
