"""Recall and average precision of ranked boxes for phrases.

As in Flickr30k Entities' own evaluation (Plummer et al., ICCV 2015, version 1.0: CoarseCategoryEval, WordEval, getAP),
which the paper used:

* Each mention of a phrase has its own ranked boxes and one truth, the union of its boxes; a box matches at an IoU of at
  least 0.5.
* For average precision the boxes of all mentions of a class are ranked together by their scores. The first matching
  box of each mention is right; all its others are wrong, also those that match again. A mention counts for each of its
  groups. Precision is read at eleven recalls (0, 0.1, ... 1), as in VOC 2007.

Two things differ. Equal scores count as seen together, so that the order of the mentions makes no difference (there,
better ranks come first, then earlier mentions). And a mention of several groups counts once in the overall recall.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from excite.errors import DataError
from excite.metrics.boxes import MATCH, as_boxes, box_areas, box_iou
from excite.metrics.ranking import hits_by_score

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]


Points = Literal["all", "eleven"]

SMALL = 0.25
"""The share of the image below which the paper calls an instance small."""

WORD = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}-][^\W_]+)*")

DROPPED = frozenset(
    """
    a an the this that these those some any no every each another either neither both all one and or
    i me my you your he him his she her it its we us our they them their who whom whose which what himself herself
    itself themselves is are was were be been being am has have had do does did can could will would there not
    """.split()
)


def first_hit(ranked: ArrayLike, truth: ArrayLike, iou: float = MATCH, *, any_box: bool = False) -> int | None:
    """The rank, counted from 1, of the first box that matches; None if none does.

    Args:
        ranked: boxes, best first [n, 4].
        truth: the boxes that the phrase refers to, at least one [m, 4].
        iou: the least IoU at which a box matches.
        any_box: match any of the true boxes instead of the smallest box around them all.

    Example:
        >>> two_dogs = [(0, 0, 2, 2), (4, 0, 6, 2)]
        >>> ranked = [(0, 0, 2, 2), (0, 0, 6, 2)]
        >>> first_hit(ranked, two_dogs), first_hit(ranked, two_dogs, any_box=True)
        (2, 1)
    """
    return first_match(box_iou(ranked, _truth(truth, any_box=any_box)).max(axis=1) >= iou)


def first_match(matches: NDArray[np.bool_]) -> int | None:
    """The rank, counted from 1, of the first true value; None if there is none."""
    return int(matches.argmax()) + 1 if matches.any() else None


def recall_at(first_hits: Iterable[int | None], n: int) -> float | None:
    """R@n: the share of the mentions whose first hit is among the first n boxes; None without mentions.

    Example:
        >>> recall_at([1, 7, None, 5], 5)
        0.5
    """
    found = [rank is not None and rank <= n for rank in first_hits]
    return sum(found) / len(found) if found else None


def is_small(truth: ArrayLike, size: tuple[int, int], *, any_box: bool = False) -> bool:
    """Whether the referred object covers less than a quarter of the image: the paper's subset of small instances.

    The area is that of the box around all true ones, or with ``any_box`` their mean area.

    Example:
        >>> is_small([(0, 0, 10, 10)], (40, 20)), is_small([(0, 0, 10, 10), (30, 10, 40, 20)], (40, 20))
        (True, False)
    """
    return bool(box_areas(_truth(truth, any_box=any_box)).mean() < SMALL * size[0] * size[1])


def _truth(truth: ArrayLike, *, any_box: bool) -> Floats:
    """The boxes to be matched: all of them, or the smallest one around them."""
    boxes = as_boxes(truth)
    if not len(boxes):
        raise DataError("a phrase without a true box cannot be judged: leave it out")
    return boxes if any_box else np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])[None]


def ranked_precision(
    scores: Sequence[ArrayLike], first_hits: Sequence[int | None], points: Points = "all"
) -> float | None:
    """Average precision in 0..1 of the boxes of several mentions, ranked together; None without mentions.

    Args:
        scores: for each mention those of its boxes, best first.
        first_hits: for each mention the result of `first_hit`.
        points: "all" for the area under the interpolated precision-recall curve (VOC since 2010), "eleven" for the mean
            of its precision at the recalls 0, 0.1, ... 1 (VOC 2007).

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
    """`ranked_precision` over the mentions of each class, in the order in which classes first occur.

    Args:
        classes: for each mention the classes it counts for: its groups, or its text; none to leave it out.
        scores: see `ranked_precision`.
        first_hits: see `ranked_precision`.
        points: see `ranked_precision`; eleven as in the published evaluation.

    Example:
        >>> dict(class_precisions([["people"], ["animals"], ["people"]], [[0.9], [0.8, 0.6], [0.1]], [1, 2, None]))
        {'people': 0.5454545454545454, 'animals': 0.5}
    """
    if len(classes) != len(scores):
        raise DataError(f"{len(classes)} classes and {len(scores)} lists of scores do not fit: give each mention both")
    members: dict[str, list[int]] = defaultdict(list)
    for number, names in enumerate(classes):
        for name in dict.fromkeys(names):
            members[name].append(number)
    return {
        name: _precision([scores[k] for k in numbers], [first_hits[k] for k in numbers], points)
        for name, numbers in members.items()
    }


def _precision(scores: Sequence[ArrayLike], first_hits: Sequence[int | None], points: Points) -> float:
    """`ranked_precision` of at least one mention."""
    if points not in get_args(Points):
        raise DataError(f"points must be one of {', '.join(get_args(Points))}, not {points!r}")
    found, seen = hits_by_score(*_pooled(scores, first_hits))
    best_from_here = np.maximum.accumulate((found / seen)[::-1])[::-1]
    if points == "all":
        return float((np.diff(found, prepend=0) * best_from_here).sum() / len(first_hits))
    reached = np.searchsorted(10 * found, np.arange(11) * len(first_hits))  # whole numbers: exact
    return float(np.append(best_from_here, 0.0)[reached].mean())


def _pooled(scores: Sequence[ArrayLike], first_hits: Sequence[int | None]) -> tuple[Floats, NDArray[np.bool_]]:
    """The scores of all boxes of all mentions, and which of the boxes are right."""
    if len(scores) != len(first_hits):
        raise DataError(f"{len(scores)} lists of scores and {len(first_hits)} hits do not fit: give each mention both")
    lists = [np.asarray(values, dtype=np.float64).reshape(-1) for values in scores]
    right = [np.zeros(len(values), dtype=bool) for values in lists]
    for number, (rank, marks) in enumerate(zip(first_hits, right, strict=True)):
        if rank is not None and not 1 <= rank <= len(marks):
            raise DataError(f"mention {number} has {len(marks)} scores, but its first hit is number {rank}")
        if rank is not None:
            marks[rank - 1] = True
    if any(np.isnan(values).any() for values in lists):
        raise DataError("some scores are no numbers: nothing can be ranked by them")
    if any((values[1:] > values[:-1]).any() for values in lists):
        raise DataError("the scores of a mention rise: rank its boxes best first")
    return np.concatenate(lists), np.concatenate(right)


def phrase_class(text: str) -> str:
    """The class of a phrase, for an average precision of each phrase: its content words in lower case.

    Flickr30k Entities' own evaluation keeps nouns, adjectives, prepositions and numbers above one, told apart by a
    tagger; phrases without any form one class. Here, without a tagger, articles and other determiners, pronouns,
    conjunctions and auxiliary verbs are dropped, and verbs and adverbs stay. Nothing is made singular.

    Example:
        >>> [phrase_class(text) for text in ("A man", "the two young Men", "his hat on one side", "It")]
        ['man', 'two young men', 'hat on side', '']
    """
    return " ".join(word for word in WORD.findall(text.lower()) if word not in DROPPED)
