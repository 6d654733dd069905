"""Which of several objects a position means: their order, not their place in the image."""

import numpy as np
import pytest
import torch

from excite.attention import AttentionMap
from excite.grounding import PhraseMap
from excite.grounding.instances import TALL, TOUCHING, instance_weights, order_weights, shape_weights
from excite.grounding.phrase_maps import active_hints
from excite.vocabulary import Labels, read_phrase

MEN = np.array([[50, 0, 60, 50], [70, 0, 80, 50], [90, 50, 100, 100]], np.float32)  # all in the right half


def weights(phrase, hints=True, order=order_weights):
    evidence = torch.zeros(10, 10)
    for x0, y0, x1, y1 in (MEN / 10).astype(int):
        evidence[y0:y1, x0:x1] = 1
    reading = read_phrase(phrase, Labels(["man", "hat"]))
    hat = torch.zeros(10, 10)
    hat[:, 0] = 100  # the evidence for the hat is not that for the man
    maps = {"man": evidence, "hat": hat}
    words = tuple(AttentionMap(maps[word.text], word.text, "l", "mwp", 0.5, (100, 100)) for word in reading.words) or (
        AttentionMap(evidence, "anything", "l", "mwp", 0.5, (100, 100)),
    )
    return order(
        PhraseMap(reading, words, np.ones((100, 100)), active_hints(reading) if hints else ()), MEN, (100, 100)
    )


@pytest.mark.parametrize(
    ("phrase", "best"),
    [("left man", 0), ("man with the hat on the right", 2), ("the one on the left", 0), ("bottom right man", 2)],
)
def test_the_order_of_objects(phrase, best):
    found = weights(phrase)
    assert found.argmax() == best
    assert found[1] > 0.5 * found.max(), "only weighed: an order says nothing of who is a man"


@pytest.mark.parametrize(("phrase", "hints"), [("a man", True), ("left man", False), ("man left of the hat", True)])
def test_without_a_position_all_are_alike(phrase, hints):
    np.testing.assert_array_equal(weights(phrase, hints, instance_weights), 1)
    assert (weights("red man", order=instance_weights) != 1).all(), "of several, none fills the image"


def test_left_is_two_thirds_right_of_it():
    """Exactly: of the first man's middle, five sixths of the evidence lie to the right."""
    np.testing.assert_allclose(weights("left man"), (np.array([5, 3, 1]) / 6 + 0.05) ** 0.25)


def test_shapes():
    """Shapes are shares of the image: half its width and half its height is neither wide nor tall."""
    boxes = [[50, 25, 150, 75], [50, 10, 100, 90], [0, 25, 100, 75], [0, 0, 200, 100], [9, 9, 9, 20]]
    found = shape_weights(np.array(boxes, np.float32), (200, 100))
    np.testing.assert_allclose(found, [1, (0.8 / 0.25) ** TALL, TOUCHING, TOUCHING**4, 0])
