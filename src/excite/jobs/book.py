"""What all ledgers can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Book", "Entry"]

Entry = dict[str, Any]


class Book(Protocol):
    """Where answers are kept."""

    def read(self) -> Mapping[str, Entry]:
        """The answers so far, by key."""

    def add(self, entry: Entry) -> None:
        """Write one more answer down, at once or within seconds."""

    def close(self) -> None:
        """Write down what is not yet; it may be used again afterwards."""

    def clear(self) -> None:
        """Forget all answers."""
