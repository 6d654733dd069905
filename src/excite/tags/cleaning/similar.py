"""Pictures of one user that begin with nearly the same tags, found without comparing all with all.

Two pictures share at least k of their first tags exactly when they have a set of k tags in common. So each picture is
put under all sets of k of its first tags (with five tags and k = 4, five sets), and similar pictures meet there. The
work grows with the number of pictures, not with its square.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["candidate_type", "equal_rows", "similar_to"]

NONE = -1
SEEDS = 100


def candidate_type(first: int) -> np.dtype[Any]:
    """What is known of a picture that came as far as being compared: its row, whose it is, its first tags as numbers.

    Example:
        >>> candidate_type(5).names
        ('row', 'user', 'tags')
    """
    return np.dtype([("row", np.int64), ("user", np.int32), ("tags", np.int32, (first,))])


def similar_to(candidates: NDArray[Any], shared: int, against: str = "seen") -> NDArray[np.int64]:
    """For each picture the row of the earliest one before it, of the same user, that it is similar to; -1 for none.

    Args:
        candidates: pictures of type `candidate_type` in the order of the corpus; -1 for a tag that is not there.
        shared: how many different first tags two must share.
        against: "seen", all pictures before it count; or "kept", only those that are not similar to a kept one.

    Example:
        >>> pictures = np.zeros(3, candidate_type(5))
        >>> pictures["row"], pictures["tags"] = [10, 11, 12], [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [3, 4, 5, 6, 7]]
        >>> similar_to(pictures, 4).tolist(), similar_to(pictures, 4, "kept").tolist()
        ([-1, 10, 11], [-1, 10, -1])
    """
    sets, there = _sets(candidates, shared)
    number, width = there.shape
    firsts = np.arange(number * width)
    firsts[there.ravel()] = firsts[there.ravel()][equal_rows(sets[there])]
    earliest = np.where(there, (firsts // width).reshape(there.shape), np.arange(number)[:, None])
    found = (
        earliest.min(axis=1, initial=number) if against == "seen" else _kept_only(firsts.reshape(there.shape), there)
    )
    return np.where(found < np.arange(number), candidates["row"][np.minimum(found, number - 1)], NONE)


def _sets(candidates: NDArray[Any], shared: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """[pictures, sets, 1 + shared]: the user and the tags of each set, in order; and which sets there really are."""
    tags = np.sort(candidates["tags"], axis=1)
    again = np.zeros(tags.shape, bool)
    again[:, 1:] = tags[:, 1:] == tags[:, :-1]
    tags = np.sort(np.where(again, NONE, tags), axis=1)
    chosen = np.array(list(combinations(range(tags.shape[1]), shared)))
    sets = tags[:, chosen]
    users = np.broadcast_to(candidates["user"][:, None, None], (*sets.shape[:2], 1))
    return np.concatenate([users, sets], axis=2), sets[:, :, 0] != NONE  # the least is missing if any is


def equal_rows(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each row of a matrix the number of the first one that is equal to it.

    Rows are brought together by a 64-bit number made of them; should two different rows have the same, which is seen,
    it is made in another way.

    Example:
        >>> equal_rows(np.array([[1, 2], [3, 4], [1, 2]], np.int32)).tolist()
        [0, 1, 0]
    """
    for seed in range(SEEDS):
        keys = _mixed(rows, seed)
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        if (rows[order][1:][same] == rows[order][:-1][same]).all():
            starts = np.concatenate([[True], ~same])[: len(rows)]
            firsts = np.empty(len(rows), np.int64)
            firsts[order] = order[starts][np.cumsum(starts) - 1]
            return firsts
    raise AssertionError("no way to number rows apart")  # pragma: no cover - once in many lives of the universe


def _mixed(rows: NDArray[np.int32], seed: int) -> NDArray[np.uint64]:
    """A number of 64 bits for each row, all of which depend on all of the row."""
    keys = np.full(len(rows), 0x9E3779B97F4A7C15 * (seed + 1) % 2**64, np.uint64)
    for column in range(rows.shape[1]):
        keys = (keys ^ rows[:, column].astype(np.uint64)) * np.uint64(0xFF51AFD7ED558CCD)
        keys ^= keys >> np.uint64(32)
    return keys


def _kept_only(firsts: NDArray[np.int64], there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each picture the earliest kept one that it shares a set with; itself if there is none."""
    number, width = there.shape
    found = np.arange(number)
    members = np.bincount(firsts[there], minlength=number * width)
    shares = (members[firsts] > 1) & there  # only these pictures have to be gone through one by one
    kept: dict[int, int] = {}
    for picture in np.flatnonzero(shares.any(axis=1)).tolist():
        sets = firsts[picture][shares[picture]].tolist()
        found[picture] = min([kept[one] for one in sets if one in kept], default=picture)
        if found[picture] == picture:
            for one in sets:
                kept.setdefault(one, picture)
    return found
