"""Real phrases that people wrote for real images; skipped where those are missing."""

import pytest
from described import first_hit

import excite
from excite.datasets.phrase_formats import open_phrases

PICTURES = 5


@pytest.fixture(scope="module")
def grounded(shared_data):
    classifier = excite.load("words")
    dataset = open_phrases(shared_data / "refcoco")
    described = [dataset.sample(name) for name in dataset.names[100 : 100 + PICTURES]]
    texts = {one.name: [phrase.text for phrase in one.phrases] for one in described}
    found = {one.name: excite.ground(classifier, one.path, texts[one.name], method="c-mwp") for one in described}
    return [(phrase, answer) for one in described for phrase, answer in zip(one.phrases, found[one.name], strict=True)]


def test_most_points_lie_in_the_right_box(grounded):
    inside = 0
    for phrase, answer in grounded:
        ((x0, y0, x1, y1),) = phrase.boxes
        x, y = answer.map.point
        inside += x0 <= x + 0.5 < x1 and y0 <= y + 0.5 < y1
    assert len(grounded) > 20
    assert inside / len(grounded) > 0.45


def test_many_of_the_first_five_regions_are_right(grounded):
    right = [first_hit([region.box for region in answer.regions[:5]], phrase.boxes) for phrase, answer in grounded]
    assert sum(rank is not None for rank in right) / len(right) > 0.35


def test_nearly_every_phrase_has_a_known_word(grounded):
    assert sum(answer.map.known for _, answer in grounded) / len(grounded) > 0.8
