"""Things kept for whoever asks for them again, within so many bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Shelf"]

Thing = TypeVar("Thing")


class Shelf(Generic[Thing]):
    """The things asked for lately; the least recently used are forgotten first. Several threads may use it.

    Args:
        most_bytes: how much they may hold together; a single one that holds more is not kept.

    Example:
        >>> shelf = Shelf(most_bytes=10)
        >>> shelf.put("a", "first", 6)
        >>> shelf.put("b", "second", 6)
        >>> shelf.get("a"), shelf.get("b"), shelf.size
        (None, 'second', 6)
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[Thing, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Thing | None:
        """What is kept under this key, or None."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, thing: Thing, size: int) -> None:
        """Keep a thing that holds so many bytes; what was there under the key is replaced."""
        with self._lock:
            self._size += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = thing, size
            while self._size > self.most_bytes:
                _, (_, gone) = self._kept.popitem(last=False)
                self._size -= gone

    @property
    def size(self) -> int:
        """How many bytes the things hold together."""
        return self._size

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._size = 0
