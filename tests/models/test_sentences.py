"""The embedded classifier for any words, with its real text tower."""

import pytest
import torch
from PIL import Image
from skimage import data
from torch.nn import functional
from zoo import torchvision_models

import excite
from excite.models.architectures import shipped_weights
from excite.models.dual_encoder import prompts


@pytest.fixture(scope="module")
def any_words():
    torchvision_models()  # its warning, where it does not fit this torch, is not of interest here
    return excite.load("open")


def test_it_answers_as_its_two_towers_say(any_words):
    network, stored = any_words.network, shipped_weights("open")
    picture = any_words.prepared(Image.fromarray(data.chelsea()))[None]
    phrases = ["a cat on the grass", "two zebras"]
    units = [any_words.labels.find(phrase).units[0] for phrase in phrases]
    with torch.no_grad():
        logits = network(picture)[0, units]
        pooled = network.image.pool(network.image.head(network.image.blocks(network.image.stem(picture)))).flatten()
        image = functional.normalize(stored["weight"] @ pooled, dim=0)
        for phrase, logit in zip(phrases, logits, strict=True):
            texts = functional.normalize(network.text.embed(network.text.tokens(prompts(phrase))), dim=1)
            cosine = image @ functional.normalize(texts.mean(0), dim=0)
            assert float(logit) == pytest.approx(float(stored["scale"] * cosine + stored["bias"]), abs=1e-3)


@pytest.mark.parametrize(
    ("photograph", "phrase", "other"),
    [
        ("chelsea", "a kitten that looks at you", "a cup of espresso"),
        ("coffee", "a hot drink in a mug", "a striped cat"),
        ("rocket", "a tower under a blue sky", "a striped cat"),
    ],
)
def test_phrases_that_nobody_listed_fit_their_photographs(any_words, photograph, phrase, other):
    right, wrong = excite.attend(any_words, getattr(data, photograph)(), [phrase, other])
    assert right.probability > wrong.probability
    assert right.mass > 0


def test_the_text_tower_averages_over_the_tokens_that_are_there(any_words):
    tower = any_words.network.text
    alone, beside = tower.embed(tower.tokens(["dog"])), tower.embed(tower.tokens(["dog", "a dog on a long beach"]))
    torch.testing.assert_close(alone[0], beside[0], atol=1e-5, rtol=0)
