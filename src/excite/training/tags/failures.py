"""Pictures that cannot be read: counted once each, the first few named, never the end of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Failures"]

NAMED = 5


@dataclass
class Failures:
    """The pictures that could not be read so far.

    Attributes:
        rows: which, by their place in the corpus; pictures kept aside have negative ones.
        lines: what was wrong with the first few.

    Example:
        >>> failures = Failures()
        >>> failures.add([(3, "cat.jpg is empty"), (3, "cat.jpg is empty")])
        >>> len(failures)
        1
    """

    rows: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, failed: Iterable[tuple[int, str]]) -> None:
        """Note rows and reasons, those that are new."""
        for row, reason in failed:
            if row not in self.rows:
                self.rows.add(row)
                if len(self.lines) < NAMED:
                    self.lines.append(reason)
