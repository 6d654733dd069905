"""The facts about a phrase that records of grounding hold, for both readings of its truth."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from excite.datasets.phrases import union
from excite.errors import DataError
from excite.images import file_state
from excite.metrics.phrase_ranking import MATCH, is_small, overlaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from excite.datasets import Box
    from excite.datasets.phrases import Described, Phrase
    from excite.vocabulary import Reading

__all__ = ["OWN", "TRUTHS", "Asked", "check_size", "checked_truth", "matches_of", "phrase_facts", "pointed", "rank_of"]

TRUTHS = ("union", "any")
"""What has to be matched of what a phrase refers to: the box around all of it, or any of its boxes."""

OWN = "proposals"
"""The ranking by the proposals' own scores, which looks at no phrase (the paper's MCG_base)."""


@dataclass(frozen=True)
class Asked:
    """A picture and the phrases that are asked of it."""

    described: Described

    @property
    def name(self) -> str:
        """The picture's name within its data set."""
        return self.described.name

    def key(self, question: str) -> str:
        """Changes when the picture, what was said about it or the question does."""
        described = self.described
        phrases = [asdict(phrase) for phrase in described.phrases]
        facts = [question, *file_state(described.path), described.size, phrases]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def checked_truth(truth: str) -> str:
    """The name of a truth that there is.

    Example:
        >>> checked_truth("any")
        'any'
    """
    if truth not in TRUTHS:
        raise DataError(f"there is no truth {truth!r}: choose {' or '.join(TRUTHS)}")
    return truth


def check_size(described: Described, size: tuple[int, int]) -> None:
    """Raise a `DataError` if the picture has another size than its annotation says: its boxes would lie elsewhere.

    Example:
        >>> from pathlib import Path
        >>> from excite.datasets.phrases import Described
        >>> check_size(Described("a", Path("a.jpg"), (), size=(6, 4)), (6, 4))
    """
    if described.size not in {None, size}:
        told = " x ".join(map(str, described.size))
        raise DataError(
            f"{str(described.path)!r} is {size[0]} x {size[1]} pixels, but annotated for {told}: "
            "its boxes lie elsewhere; annotate it again"
        )


def phrase_facts(phrase: Phrase, reading: Reading, size: tuple[int, int]) -> dict[str, Any]:
    """What was said, what it refers to, and which of its words the classifier knows."""
    return {
        "text": phrase.text,
        "groups": list(phrase.groups),
        "sentence": phrase.sentence,
        "boxes": [list(box) for box in phrase.boxes],
        "small": {truth: is_small(phrase.boxes, size, any_box=truth == "any") for truth in TRUTHS},
        "known": bool(reading.words),
        "skipped": list(reading.skipped),
        "found": [],
    }


def matches_of(boxes: ArrayLike, truth: Sequence[Box]) -> Mapping[str, NDArray[np.bool_]]:
    """Which boxes match what a phrase refers to, for both truths: for all rankings of them at once.

    Example:
        >>> {truth: hits.tolist() for truth, hits in matches_of([(0, 0, 2, 2)], [(0, 0, 2, 2), (4, 0, 6, 2)]).items()}
        {'union': [False], 'any': [True]}
    """
    around = overlaps(boxes, [union(tuple(truth))])
    return {"union": around[:, 0] >= MATCH, "any": overlaps(boxes, truth).max(axis=1) >= MATCH}


def rank_of(matches: NDArray[np.bool_]) -> int | None:
    """The rank, counted from 1, of the first of ranked boxes that matches; None where none does.

    Example:
        >>> import numpy as np
        >>> rank_of(np.array([False, True, True])), rank_of(np.array([], bool))
        (2, None)
    """
    return int(matches.argmax()) + 1 if matches.any() else None


def pointed(point: tuple[int, int] | None, boxes: Sequence[Box]) -> Mapping[str, bool]:
    """Whether the centre of a pixel lies in what a phrase refers to; one that points nowhere misses.

    Example:
        >>> pointed((3, 0), [(0, 0, 2, 2), (4, 0, 6, 2)])
        {'union': True, 'any': False}
    """
    return {"union": _within(point, [union(tuple(boxes))]), "any": _within(point, boxes)}


def _within(point: tuple[int, int] | None, boxes: Sequence[Box]) -> bool:
    if point is None:
        return False
    x, y = point[0] + 0.5, point[1] + 0.5
    return any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in boxes)
