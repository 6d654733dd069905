"""What is kept within so many bytes, and what is forgotten."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from excite.io.cache import ByteCache


def test_a_thing_may_grow():
    cache = ByteCache(most_bytes=5)
    cache.put("a", "A", 2)
    cache.put("b", "B", 1)
    cache.put("a", "AA", 5)
    assert (cache.get("a"), cache.get("b"), cache.size) == ("AA", None, 5)
    cache.clear()
    assert (cache.get("a"), cache.size) == (None, 0)


@given(st.integers(0, 20), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))))
def test_it_never_holds_more_than_it_may(most, steps):
    cache = ByteCache(most)
    sizes = {}
    for key, size in steps:
        cache.put(key, key, size)
        sizes[key] = size
        kept = [one for one in range(6) if cache._items.get(one)]
        assert cache.size == sum(sizes[one] for one in kept) <= most
        assert size > most or key in kept


def test_several_threads():
    cache = ByteCache(most_bytes=50)

    def use(seed):
        for step in range(2000):
            cache.put((seed * step) % 97, step, step % 5)
            cache.get(step % 97)

    started = [threading.Thread(target=use, args=(seed,)) for seed in range(1, 9)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert cache.size == sum(size for _, size in cache._items.values()) <= 50
