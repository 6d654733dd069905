"""Pictures of a corpus that look like an earlier one, whoever showed it: the paper compares tags only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from excite.jobs.ledger_init import open_ledger
from excite.jobs.loop import answered
from excite.tags.cleaning.likeness import Hashing
from excite.tags.cleaning.near import MOST_BITS, near_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.jobs import Crew
    from excite.jobs.loop import Watch
    from excite.tags.images import Pictures

__all__ = ["Alike"]


@dataclass(frozen=True)
class Alike:
    """Looks at pictures to tell which are nearly the same.

    Attributes:
        pictures: where they lie.
        most: how many of 63 bits of two likenesses may differ.
        failures: gets a line for each picture that cannot be read.
    """

    pictures: Pictures
    most: int = MOST_BITS
    failures: list[str] = field(default_factory=list)

    def __call__(
        self,
        names: Iterable[str],
        total: int,
        ledger: Path,
        workers: int | Crew,
        watch: Watch,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """For each picture the place of the one it repeats, or -1; and which pictures can be read at all.

        Args:
            names: of the pictures, all different, in the order of the corpus.
            total: how many.
            ledger: a file for the likenesses, so that a run that was stopped goes on.
            workers: who looks.
            watch: shows how far the work is.
        """
        hashes, known, read = np.zeros(total, np.uint64), np.zeros(total, bool), np.zeros(total, bool)
        waiting: dict[str, int] = {}

        def tasks() -> Iterator[str]:
            for place, name in enumerate(names):
                waiting[name] = place
                yield name

        book = open_ledger(ledger, ("picture", "hash"))
        pairs = answered(Hashing(self.pictures), tasks(), book, workers=workers, failures=self.failures)
        for name, entry in watch(pairs, total, "pictures looked at"):
            place = waiting.pop(name)
            read[place], known[place] = True, entry["hash"] is not None
            hashes[place] = int(entry["hash"] or "0", 16)
        return near_duplicates(hashes, self.most, known), read
