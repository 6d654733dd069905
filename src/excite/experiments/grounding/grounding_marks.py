"""What ranked boxes are worth over many phrases: recall, average precision and pointing, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.metrics.phrase_classes import phrase_class
from excite.metrics.phrase_ranking import recall_at
from excite.metrics.phrases import class_precisions
from excite.metrics.pointing_bootstrap import interval, resampled_means
from excite.metrics.statistics import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["CURVE", "RANKS", "Marks", "Mention", "Standing", "group_recalls"]

RANKS = (1, 5, 10)
"""The paper's N of R@N."""

CURVE = range(1, 11)


@dataclass(frozen=True, eq=False)
class Mention:
    """A phrase of a picture, and what a ranking of boxes makes of it.

    Attributes:
        picture: the number of its picture, from 0.
        text: as it was written.
        groups: the kinds of things that it counts for.
        small: whether what it refers to takes less than a quarter of the picture.
        hit: the rank of the first box that matches, from 1; None where none does.
        scores: of the first boxes, best first.
        pointed: whether the map's maximum lies in what it refers to; None where there is no map.
    """

    picture: int
    text: str
    groups: tuple[str, ...]
    small: bool
    hit: int | None
    scores: Sequence[float]
    pointed: bool | None

    @property
    def scored_hit(self) -> int | None:
        """The first hit, where its score was written down: for average precision later ones do not matter."""
        return self.hit if self.hit is not None and self.hit <= len(self.scores) else None


@dataclass(frozen=True)
class Marks:
    """What a ranking is worth over some phrases, in percent.

    Attributes:
        phrases: how many.
        recalls: R@N for each N of `RANKS`: how many phrases have a right box among the first N.
        map_group: the mean over groups of their average precision; None where the data know no groups.
        map_phrase: the mean over different phrases of theirs.
        pointing: how often the map's maximum lies in what is meant; None where there are no maps.
        curve: the recall at each number of boxes of `CURVE`.
    """

    phrases: int
    recalls: Mapping[int, Estimate]
    map_group: float | None
    map_phrase: float
    pointing: Estimate | None
    curve: tuple[float, ...]


class Standing:
    """How several rankings stand on the same phrases: each by itself, and one against the other.

    Phrases of one picture are no independent draws, so whole pictures are drawn again for intervals. All rankings are
    drawn alike: what is hard for both leaves their difference as it is.

    Args:
        mentions: what each ranking makes of the phrases, by its name; all in the same order. There is at least one.

    Raises:
        DataError: the rankings are not of the same phrases.

    Example:
        >>> dog, it = Mention(0, "a dog", (), False, 2, [0.9, 0.8], True), Mention(1, "it", (), False, None, [], False)
        >>> marks = Standing({"mwp": [dog, it]}).marks("mwp")
        >>> marks.recalls[1].value, marks.recalls[5].value, marks.pointing.value, marks.map_group
        (0.0, 50.0, 50.0, None)
    """

    def __init__(self, mentions: Mapping[str, Sequence[Mention]]) -> None:
        self._mentions = mentions
        places = [[(one.picture, one.text) for one in each] for each in mentions.values()]
        if any(each != places[0] for each in places):
            raise DataError("these rankings are of different phrases: compare those of one experiment")
        _, pictures = np.unique([picture for picture, _ in places[0]], return_inverse=True)
        tests = [*map(_within, RANKS), _pointed]
        passed = [[test(mention) for mention in each] for each in mentions.values() for test in tests]
        hits = [np.bincount(pictures, weights=each).astype(np.int64)[:, None] for each in passed]
        drawn = resampled_means(np.bincount(pictures)[:, None], hits)
        shares = [sum(each) / len(each) for each in passed]
        rows = range(0, len(passed), len(tests))
        self._shares = {name: shares[k : k + len(tests)] for name, k in zip(mentions, rows, strict=True)}
        self._drawn = {name: drawn[k : k + len(tests)] for name, k in zip(mentions, rows, strict=True)}

    def marks(self, name: str) -> Marks:
        """What one ranking is worth."""
        mentions = self._mentions[name]
        estimates = [_estimate(*both) for both in zip(self._shares[name], self._drawn[name], strict=True)]
        points = all(mention.pointed is not None for mention in mentions)
        hits = [mention.hit for mention in mentions]
        return Marks(
            len(mentions),
            dict(zip(RANKS, estimates, strict=False)),
            _mean_precision(mentions, [mention.groups for mention in mentions]),
            _mean_precision(mentions, [(phrase_class(mention.text),) for mention in mentions]) or 0.0,
            estimates[-1] if points else None,
            tuple(100 * (recall_at(hits, rank) or 0.0) for rank in CURVE),
        )

    def lead(self, one: str, other: str, rank: int = 1) -> Estimate:
        """By how many points the recall of one ranking is higher than that of another.

        Example:
            >>> hit, missed = (Mention(0, "a dog", (), False, rank, [], None) for rank in (1, None))
            >>> Standing({"mwp": [hit, hit], "grad": [hit, missed]}).lead("mwp", "grad").value
            50.0
        """
        at = RANKS.index(rank)
        return _estimate(self._shares[one][at] - self._shares[other][at], self._drawn[one][at] - self._drawn[other][at])


def group_recalls(mentions: Sequence[Mention], groups: Iterable[str], rank: int = 5) -> dict[str, float | None]:
    """The recall among the first boxes for each group, in percent; None for a group without phrases.

    Example:
        >>> group_recalls([Mention(0, "a dog", ("animals",), False, 2, [0.9, 0.8], True)], ["animals", "people"])
        {'animals': 100.0, 'people': None}
    """
    recalls = {group: recall_at((each.hit for each in mentions if group in each.groups), rank) for group in groups}
    return {group: None if recall is None else 100 * recall for group, recall in recalls.items()}


def _within(rank: int) -> Callable[[Mention], bool]:
    return lambda mention: mention.hit is not None and mention.hit <= rank


def _pointed(mention: Mention) -> bool:
    return bool(mention.pointed)


def _estimate(share: float, drawn: NDArray[np.float64]) -> Estimate:
    low, high = interval(drawn)
    return Estimate(100 * share, 100 * low, 100 * high)


def _mean_precision(mentions: Sequence[Mention], classes: Sequence[Sequence[str]]) -> float | None:
    """The mean over classes of their average precision, in percent; None without classes."""
    scores: list[Any] = [mention.scores for mention in mentions]
    found = class_precisions(classes, scores, [mention.scored_hit for mention in mentions])
    return 100 * sum(found.values()) / len(found) if found else None
