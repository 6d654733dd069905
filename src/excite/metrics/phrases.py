"""Average precision of ranked boxes for the phrases of a class.

As in Flickr30k Entities' own evaluation (Plummer et al., ICCV 2015, version 1.0: CoarseCategoryEval, WordEval, getAP):

* The boxes of all mentions of a class are ranked together by their scores. Of each mention the first box that matches
  is right; all its others are wrong, also those that match again.
* A mention counts for each group that it was given.
* Precision is read at eleven recalls (0, 0.1, ... 1), as in VOC 2007.

One thing was chosen otherwise: equal scores count as seen together, so that the order of the mentions makes no
difference. There, boxes of a better rank come first, then those of an earlier mention.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Points", "class_precisions", "ranked_precision"]

Points = Literal["all", "eleven"]


def ranked_precision(
    scores: Sequence[ArrayLike], first_hits: Sequence[int | None], points: Points = "all"
) -> float | None:
    """Average precision of the boxes of some mentions, ranked together; each mention is to be found once.

    Args:
        scores: for each mention those of its boxes, best first.
        first_hits: for each mention what `excite.metrics.phrase_ranking.first_hit` gave.
        points: "all" for the area under the curve whose precision never rises again with recall (VOC since 2010),
            "eleven" for the mean of its precision at the recalls 0, 0.1, ... 1 (VOC 2007).

    Returns:
        A number in 0..1; None where there are no mentions.

    Raises:
        DataError: scores that are no numbers or not best first, or a hit beyond the end of its boxes.

    Example:
        >>> ranked_precision([[0.9, 0.8], [0.7, 0.1]], [2, 1])
        0.6666666666666666
    """
    return _precision(scores, first_hits, points) if len(first_hits) else None


def class_precisions(
    classes: Sequence[Iterable[str]],
    scores: Sequence[ArrayLike],
    first_hits: Sequence[int | None],
    points: Points = "eleven",
) -> Mapping[str, float]:
    """What `ranked_precision` gives for the mentions of each class, in the order in which classes first come.

    Args:
        classes: for each mention the classes that it counts for: its groups, or its text; none to leave it out.
        scores: see `ranked_precision`.
        first_hits: see `ranked_precision`.
        points: as in the published evaluation, if nothing else is said.

    Example:
        >>> dict(class_precisions([["people"], ["animals"], ["people"]], [[0.9], [0.8, 0.6], [0.1]], [1, 2, None]))
        {'people': 0.5454545454545454, 'animals': 0.5}
    """
    if len(classes) != len(scores):
        raise DataError(f"{len(classes)} classes and {len(scores)} lists of scores do not fit: give each mention both")
    members: dict[str, list[int]] = defaultdict(list)
    for place, names in enumerate(classes):
        for name in dict.fromkeys(names):
            members[name].append(place)
    return {
        name: _precision([scores[place] for place in places], [first_hits[place] for place in places], points)
        for name, places in members.items()
    }


def _precision(scores: Sequence[ArrayLike], first_hits: Sequence[int | None], points: Points) -> float:
    """What `ranked_precision` gives for at least one mention."""
    if points not in get_args(Points):
        raise DataError(f"points must be one of {', '.join(get_args(Points))}, not {points!r}")
    values, right = _pooled(scores, first_hits)
    order = np.argsort(-values, kind="stable")
    ranked = values[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], np.ones(min(len(ranked), 1), bool)))  # of equal scores
    found = np.cumsum(right[order])[last]
    precision = found / (last + 1)
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    if points == "all":
        return float((np.diff(found, prepend=0) * best_from_here).sum() / len(first_hits))
    reached = np.searchsorted(10 * found, np.arange(11) * len(first_hits))  # whole numbers: exact
    return float(np.append(best_from_here, 0.0)[reached].mean())


def _pooled(
    scores: Sequence[ArrayLike], first_hits: Sequence[int | None]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The scores of all boxes of all mentions, and which of the boxes are right."""
    if len(scores) != len(first_hits):
        raise DataError(f"{len(scores)} lists of scores and {len(first_hits)} hits do not fit: give each mention both")
    lists = [np.asarray(values, dtype=np.float64).reshape(-1) for values in scores]
    right = [np.zeros(len(values), dtype=bool) for values in lists]
    for place, (rank, marks) in enumerate(zip(first_hits, right, strict=True)):
        if rank is not None and not 1 <= rank <= len(marks):
            raise DataError(f"mention {place} has {len(marks)} scores, but its first hit is number {rank}")
        if rank is not None:
            marks[rank - 1] = True
    if any(np.isnan(values).any() for values in lists):
        raise DataError("some scores are no numbers: nothing can be ranked by them")
    if any((values[1:] > values[:-1]).any() for values in lists):
        raise DataError("the scores of a mention rise: rank its boxes best first")
    return np.concatenate(lists), np.concatenate(right)
