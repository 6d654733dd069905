"""The key of everything that is cached or resumed, and the cache in memory."""

import hashlib
import json
import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

Item = TypeVar("Item")


def fingerprint(facts: object, *content: bytes, digits: int = 16) -> str:
    """The key of a result: a hash of all that it depends on, plain values and further bytes, in hexadecimal digits.

    Example:
        >>> fingerprint({"method": "c-mwp"}), fingerprint(["dog.jpg"], b"pixels", digits=8)
        ('b370188e40176285', '74cefa89')
    """
    digest = hashlib.sha256(json.dumps(facts).encode())
    for each in content:
        digest.update(each)
    return digest.hexdigest()[:digits]


class ByteCache(Generic[Item]):
    """A least-recently-used cache with a byte limit, safe for threads; a single item that is larger is not kept."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._items: LRUCache[Hashable, tuple[Item, int]] = LRUCache(most_bytes, getsizeof=lambda kept: kept[1])
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Item | None:
        """The item of this key, or None."""
        with self._lock:
            kept = self._items.get(key)
        return None if kept is None else kept[0]

    def put(self, key: Hashable, item: Item, size: int) -> None:
        """Keep an item of so many bytes, in the place of an earlier one with the key."""
        with self._lock:
            self._items.pop(key, None)
            if size <= self.most_bytes:
                self._items[key] = item, size

    @property
    def size(self) -> int:
        """The bytes of all items."""
        return int(self._items.currsize)

    def __len__(self) -> int:
        return len(self._items)

    def clear(self) -> None:
        """Drop all items."""
        with self._lock:
            self._items.clear()
