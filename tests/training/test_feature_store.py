"""Features on disk after a kill, a power cut, and with two concurrent runs."""

import numpy as np
import pytest

from excite.errors import ExciteError
from excite.training.features import FeatureStore


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


def numbers(store, *keys):
    return store.features(keys)[:, 0, 0].tolist()


def test_numbers_without_a_line_are_dropped(store):
    """A kill between the two."""
    with store.numbers.open("ab") as file:
        file.write(b"half of th")
    store.add(entry(3))
    assert numbers(store, "k1", "k2", "k3") == [1, 2, 3]
    assert store.numbers.stat().st_size == 3 * 16


def test_a_line_whose_numbers_got_lost_is_forgotten(store):
    """A power cut: the numbers of the second image were never on the disk. Those of the third come in their place."""
    with store.numbers.open("ab") as file:
        file.truncate(20)
    assert set(store.read()) == {"k1"}
    store.add(entry(3))
    store.close()
    assert set(FeatureStore(store.numbers.parent).read()) == {"k1", "k3"}
    assert numbers(store, "k1", "k3") == [1, 3]


def test_two_runs_at_once(store):
    store.add(entry(3))
    other = FeatureStore(store.numbers.parent)
    with pytest.raises(ExciteError, match="another run is writing"):
        other.add(entry(4))
    store.close()
    other.add(entry(4))
    assert numbers(other, "k1", "k2", "k3", "k4") == [1, 2, 3, 4]
