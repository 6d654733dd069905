"""What is kept within so many bytes, and what is forgotten."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excite.session_cache import Shelf


def test_the_least_recently_used_is_forgotten_first():
    shelf = Shelf(most_bytes=3)
    for key in "abc":
        shelf.put(key, key.upper(), 1)
    assert shelf.get("a") == "A"
    shelf.put("d", "D", 1)
    assert [shelf.get(key) for key in "abcd"] == ["A", None, "C", "D"]


def test_what_is_too_large_is_not_kept():
    shelf = Shelf(most_bytes=3)
    shelf.put("a", "A", 4)
    assert shelf.get("a") is None
    assert (len(shelf), shelf.size) == (0, 0)


def test_a_thing_may_grow():
    shelf = Shelf(most_bytes=5)
    shelf.put("a", "A", 2)
    shelf.put("b", "B", 1)
    shelf.put("a", "AA", 5)
    assert (shelf.get("a"), shelf.get("b"), shelf.size) == ("AA", None, 5)
    shelf.clear()
    assert (shelf.get("a"), shelf.size) == (None, 0)


@given(st.integers(0, 20), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))))
def test_it_never_holds_more_than_it_may(most, steps):
    shelf = Shelf(most)
    sizes = {}
    for key, size in steps:
        shelf.put(key, key, size)
        sizes[key] = size
        kept = [one for one in range(6) if shelf._kept.get(one)]
        assert shelf.size == sum(sizes[one] for one in kept) <= most
        assert size > most or key in kept


@pytest.mark.parametrize("threads", [8])
def test_several_threads(threads):
    shelf = Shelf(most_bytes=50)

    def use(seed):
        for step in range(2000):
            shelf.put((seed * step) % 97, step, step % 5)
            shelf.get(step % 97)

    started = [threading.Thread(target=use, args=(seed,)) for seed in range(1, threads + 1)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert shelf.size == sum(size for _, size in shelf._kept.values()) <= 50
