"""A memory of forward passes: the same answers, fewer looks, bounded bytes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import excite
from excite import autolabel, grounding
from excite.errors import ExciteError


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return excite.wrap(nn.Sequential(*body, nn.Linear(8, 4)).eval(), labels=["cat", "dog", "owl", "cup"], layer="1")


def photo(seed, size=(40, 50)):
    return np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8)


def same(found, expected):
    assert [each.concept for each in found] == [each.concept for each in expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.values, other.values)
        assert one.probability == other.probability


@pytest.mark.parametrize("method", ["c-mwp", "mwp", "excite", "grad", "guided"])
def test_the_same_answers_from_one_look(classifier, method):
    memory = excite.SessionCache(classifier)
    for concepts in ("cat", ["dog", "owl"], None, "cat"):
        same(
            memory.attend(photo(1), concepts, method=method),
            excite.attend(classifier, photo(1), concepts, method=method),
        )
    assert memory.runs == 1


def test_what_is_asked_decides_what_is_another_look(classifier):
    memory = excite.SessionCache(classifier)
    memory.attend(photo(1), "cat")
    memory.attend(photo(1).copy(), "dog")
    assert memory.runs == 1
    memory.attend(photo(2), "cat")
    memory.attend(photo(1), "cat", layer="3")
    memory.attend(photo(1), "cat", method="mwp")
    memory.attend(photo(1), "cat", against="dog")
    assert memory.runs == 5
    assert len(memory) == 5


def test_changed_weights_are_looked_through_again(classifier):
    memory = excite.SessionCache(classifier)
    memory.attend(photo(1), "cat")
    with torch.no_grad():
        classifier.module[2].weight.neg_()
    same(memory.attend(photo(1), "cat"), excite.attend(classifier, photo(1), "cat"))
    assert memory.runs == 2


def test_bytes_are_bounded_and_the_oldest_goes_first(classifier):
    memory = excite.SessionCache(classifier)
    memory.attend(photo(0), "cat")
    one = memory.size
    assert one > 0
    memory = excite.SessionCache(classifier, most_bytes=int(2.5 * one))
    for seed in (0, 1, 0, 2):
        memory.attend(photo(seed), "cat")
    assert memory.size <= memory.most_bytes
    assert (len(memory), memory.runs) == (2, 3)
    memory.attend(photo(0), "dog")  # used lately: still there
    assert memory.runs == 3
    memory.attend(photo(1), "dog")
    assert memory.runs == 4


def test_a_picture_that_is_too_large_is_answered_and_forgotten(classifier):
    memory = excite.SessionCache(classifier, most_bytes=0)
    same(memory.attend(photo(1), "cat"), excite.attend(classifier, photo(1), "cat"))
    assert (len(memory), memory.size) == (0, 0)
    with pytest.raises(ExciteError, match="at least 0"):
        excite.SessionCache(classifier, most_bytes=-1)


def test_threads_may_ask(classifier):
    memory = excite.SessionCache(classifier)
    concepts = ["cat", "dog", "owl", "cup"] * 6
    expected = {name: excite.attend(classifier, photo(1), name) for name in concepts}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: memory.attend(photo(1), name), concepts))
    for answer, name in zip(found, concepts, strict=True):
        same(answer, expected[name])


def test_old_names_work_for_one_version(classifier):
    with pytest.warns(DeprecationWarning, match=r"excite\.Memory is now excite\.SessionCache"):
        cache = excite.Memory(classifier)
    with pytest.warns(DeprecationWarning, match="is now SessionCache.runs"):
        assert cache.looks == 0
    with pytest.warns(DeprecationWarning, match="is now excite.propagation.ExcitationPass"):
        assert excite.propagation.Sweep is excite.propagation.ExcitationPass
    with pytest.warns(DeprecationWarning, match="is now excite.autolabel.AutoLabeler"):
        assert autolabel.Boxing is autolabel.AutoLabeler
    with pytest.warns(DeprecationWarning, match="is now excite.grounding.map_phrases"):
        assert grounding.gaze is grounding.map_phrases
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        excite.Nonsense  # noqa: B018 - the access is what is tested
