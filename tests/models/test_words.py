"""The embedded classifier for phrases: everyday objects, ImageNet's classes and words of captions in one."""

import pytest
import torch

import excite
from excite.models.architectures import EVERYDAY_UNITS, WORDS_UNITS, embedded_labels, head_labels


@pytest.fixture(scope="module")
def classifier():
    return excite.load("words")


def test_there_is_a_word_for_each_output(classifier):
    assert classifier.module.classifier.out_features == WORDS_UNITS.stop == len(embedded_labels("everyday", "words"))
    assert len(head_labels("words")) == WORDS_UNITS.stop - EVERYDAY_UNITS.stop
    assert excite.MODELS["words"].build(None).classifier.out_features == WORDS_UNITS.stop


def test_the_first_outputs_are_those_of_everyday(classifier):
    pictures = torch.randn(1, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = (excite.load(name).module(pictures) for name in ("words", "everyday"))
    assert torch.allclose(ours[:, : EVERYDAY_UNITS.stop], theirs, atol=1e-5)
    probabilities = classifier.probabilities(ours)[0]
    assert probabilities[:1000].sum() == pytest.approx(1, abs=1e-5)
    assert torch.allclose(probabilities[1000:], ours[0, 1000:].sigmoid(), atol=1e-6)


def test_a_word_that_several_outputs_have_means_all_of_them():
    labels = embedded_labels("everyday", "words")
    person, woman = labels.word("person").units, labels.word("woman").units
    assert EVERYDAY_UNITS.start <= person[0] < EVERYDAY_UNITS.stop <= person[1]
    assert woman[0] == person[0]
    assert labels.name(woman[1]) == "woman"
