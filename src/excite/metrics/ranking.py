"""Average precision of scores, recall and average precision of ranked boxes for phrases, rank correlation of maps.

Those of phrases are as in Flickr30k Entities' own evaluation (Plummer et al., ICCV 2015, version 1.0), which the paper
used: the boxes of all mentions of a class are ranked together by their scores. The first matching box of each mention
is right; all its others are wrong, also those that match again. A mention counts for each of its groups. Precision is
read at eleven recalls (0, 0.1, ... 1), as in VOC 2007.

Two things differ. Equal scores count as seen together, so that the order of the mentions makes no difference (there,
better ranks come first, then earlier mentions). And a mention of several groups counts once in the overall recall.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from excite.errors import DataError
from excite.metrics.boxes import as_boxes, box_areas

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


def average_precision(scores: ArrayLike, truth: ArrayLike) -> float | None:
    """The mean, over all positives, of the precision among everything scored at least as high; None without positives.

    This is the area under the precision-recall curve at all of its points, not interpolated. Equal scores count as seen
    together, so the order of the samples makes no difference.

    Example:
        >>> average_precision([0.9, 0.8, 0.7, 0.1], [True, False, True, False])
        0.8333333333333333
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if values.shape != positive.shape or values.ndim != 1:
        raise DataError(
            f"scores {values.shape} and truth {positive.shape} do not fit: give one of each for each sample"
        )
    _check_numbers(values)
    if not positive.any():
        return None
    hits, seen = _hits_by_score(values, positive)
    return float((np.diff(hits, prepend=0) * hits / seen).sum() / hits[-1])


def _check_numbers(scores: NDArray[np.float64]) -> None:
    if np.isnan(scores).any():
        raise DataError("some scores are no numbers: nothing can be ranked by them")


def _hits_by_score(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each distinct score, best first: the hits, and the samples, that are scored at least as high."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], np.ones(min(len(ranked), 1), bool)))  # of equal scores
    return np.cumsum(right[order])[last], last + 1


def mean_average_precision(each: Sequence[float | None]) -> float | None:
    """The mean over the categories that have positives; None where none has."""
    known = [value for value in each if value is not None]
    return sum(known) / len(known) if known else None


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's rank correlation of two maps of one shape; 0 if one of them is constant."""
    from scipy.stats import rankdata

    if one.shape != other.shape:
        raise ValueError(f"maps of {list(one.shape)} and {list(other.shape)} have no positions in common")
    first, second = (rankdata(values.detach().double().cpu().numpy()) for values in (one.flatten(), other.flatten()))
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(np.clip(first @ second / size, -1.0, 1.0)) if size else 0.0


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
    """
    boxes = as_boxes(truth)
    if not any_box:
        boxes = np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])[None]
    return bool(box_areas(boxes).mean() < SMALL * size[0] * size[1])


def class_precisions(
    classes: Sequence[Iterable[str]], scores: Sequence[ArrayLike], first_hits: Sequence[int | None]
) -> Mapping[str, float]:
    """Average precision in 0..1 over the mentions of each class, in the order in which classes first occur.

    Args:
        classes: for each mention the classes it counts for: its groups, or its text; none to leave it out.
        scores: for each mention those of its boxes, best first.
        first_hits: for each mention the rank, counted from 1, of its first right box; None if there is none.

    Raises:
        DataError: scores that are no numbers or not best first, or a hit beyond the end of its boxes.

    Example:
        >>> dict(class_precisions([["people"], ["animals"], ["people"]], [[0.9], [0.8, 0.6], [0.1]], [1, 2, None]))
        {'people': 0.5454545454545454, 'animals': 0.5}
    """
    if not len(classes) == len(scores) == len(first_hits):
        counts = f"{len(classes)} classes, {len(scores)} lists of scores and {len(first_hits)} hits"
        raise DataError(f"{counts} do not fit: give each mention one of each")
    members: dict[str, list[int]] = defaultdict(list)
    for number, names in enumerate(classes):
        for name in dict.fromkeys(names):
            members[name].append(number)
    return {
        name: _eleven_points([scores[k] for k in numbers], [first_hits[k] for k in numbers])
        for name, numbers in members.items()
    }


def _eleven_points(scores: Sequence[ArrayLike], first_hits: Sequence[int | None]) -> float:
    """The mean of the interpolated precision at the recalls 0, 0.1, ... 1 of all boxes of several mentions."""
    lists = [np.asarray(values, dtype=np.float64).reshape(-1) for values in scores]
    right = [np.zeros(len(values), dtype=bool) for values in lists]
    for number, (rank, marks) in enumerate(zip(first_hits, right, strict=True)):
        if rank is not None and not 1 <= rank <= len(marks):
            raise DataError(f"mention {number} has {len(marks)} scores, but its first hit is number {rank}")
        if rank is not None:
            marks[rank - 1] = True
    pooled = np.concatenate(lists)
    _check_numbers(pooled)
    if any((values[1:] > values[:-1]).any() for values in lists):
        raise DataError("the scores of a mention rise: rank its boxes best first")
    found, seen = _hits_by_score(pooled, np.concatenate(right))
    best_from_here = np.maximum.accumulate((found / seen)[::-1])[::-1]
    reached = np.searchsorted(10 * found, np.arange(11) * len(first_hits))  # whole numbers: exact
    return float(np.append(best_from_here, 0.0)[reached].mean())


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
