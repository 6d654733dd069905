"""Pictures of a corpus that look like an earlier one, whoever showed it: the paper compares tags only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from excite.errors import DataError
from excite.jobs import open_results
from excite.jobs.loop import answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from excite.jobs import Executor
    from excite.jobs.loop import Progress
    from excite.tags.images import Pictures


# How alike two images are, by 64 bits each that survive another size, another JPEG quality, another brightness.
#
# An image is made 32 pixels wide and high, grey, and is taken apart into waves (the discrete cosine transform). Of
# each of the 63 longest, all but the constant one, a bit says whether it is stronger than their median.

SIDE = 32
WAVES = 8
TEXTURE = 8.0  # how far the waves lie from their median, typically; below that, JPEG decides some of the bits
VERSION = 1


def likeness(picture: Image.Image) -> int | None:
    """The image's 64 bits; None for one without texture, such as a single colour, whose bits would mean nothing.

    The lowest bit stands for the constant wave and is always 0.

    Example:
        >>> print(likeness(Image.new("RGB", (64, 64), "red")))
        None
    """
    small = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=3)
    waves = _cosines() @ np.asarray(small, np.float64) @ _cosines().T
    strengths = waves.ravel()[1:]
    differences = strengths - np.median(strengths)
    if np.median(np.abs(differences)) < TEXTURE:
        return None
    return int(np.packbits(np.concatenate([[False], differences > 0]), bitorder="little").view("<u8")[0])


@cache
def _cosines() -> NDArray[np.float64]:
    """The longest waves along one side, one a row, each of length 1."""
    wave, place = np.arange(WAVES)[:, None], np.arange(SIDE)[None]
    cosines = np.cos(np.pi * wave * (2 * place + 1) / (2 * SIDE)) * np.sqrt(2 / SIDE)
    cosines[0] /= np.sqrt(2)
    return np.asarray(cosines)


@dataclass(frozen=True)
class Hashing:
    """The likeness of each image as work for `excite.jobs.loop.run`, whose tasks are the names of images.

    Args:
        pictures: where they lie.

    Example:
        >>> Hashing(open_pictures("photos"))("cat.jpg")  # doctest: +SKIP
        {'picture': 'cat.jpg', 'hash': '3f1c0a9be2d47790'}
    """

    pictures: Pictures

    def key(self, task: str) -> str:
        """Changes when the image does, or the way it is looked at."""
        facts = f"likeness {VERSION} {task} {self.pictures.state(task)}"
        return hashlib.sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def __call__(self, task: str) -> dict[str, Any]:
        """The hash in hexadecimal, or None for an image without texture."""
        bits = likeness(self.pictures.read(task))
        return {"picture": task, "hash": None if bits is None else f"{bits:016x}"}


# Images that are nearly another one, by their likeness, among millions.
#
# Two hashes that differ in at most M bits, cut into M + A bands, agree in at least A of them. So only hashes are
# compared that agree in some A bands: they are brought together by sorting, once for each choice of A bands. A is
# taken such that the sorting and the comparing cost the least.

Hashes = NDArray[np.uint64]
Rows = NDArray[np.int64]

MOST_BITS = 4
BITS = 63  # the lowest of the 64 is always 0
MOST_PAIRS = 20_000_000  # held at a time: 320 MB while they are sorted
SORTING = 8  # what sorting costs for each hash, if comparing two costs 1


class _TooManyError(Exception):
    """More pairs than are held at a time."""


def near_duplicates(hashes: Hashes, most: int = MOST_BITS, known: NDArray[np.bool_] | None = None) -> Rows:
    """For each image the earliest one before it that is kept and nearly the same; -1 for those that are kept.

    An image is dropped when it lies within ``most`` bits of an earlier image that is kept. So the first of a family
    stays, and a chain of small changes is not dropped as a whole: what is far enough from the first stays as well.

    Args:
        hashes: those of `excite.tags.cleaning.duplicates`, in the order of the corpus.
        most: how many bits may differ.
        known: which images have a hash; those without are always kept and nobody's double. All, if none.

    Returns:
        The row of the image that each repeats, or -1.

    Raises:
        DataError: so many bits cannot be meant.

    Example:
        >>> near_duplicates(np.array([0b0000, 0b1110, 0b0010, 0b1111], np.uint64), most=1)
        array([-1, -1,  0,  1])
    """
    if not 0 <= most < BITS // 2:
        raise DataError(f"{most} bits of {BITS} cannot tell near from far: choose 0 to {BITS // 2 - 1}")
    answer = np.full(len(hashes), -1, np.int64)
    rows = np.arange(len(hashes)) if known is None else np.flatnonzero(known)
    distinct, first, which = np.unique(hashes[rows], return_index=True, return_inverse=True)
    order = np.argsort(first)  # the distinct hashes in the order of the corpus
    double = _first_kept(distinct[order], most)
    # equal hashes have the same fate as the first of them, and those of a kept one repeat it
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    mine = place[which]
    kept = np.where(double[mine] < 0, mine, double[mine])
    origin = rows[first[order]][kept]
    answer[rows] = np.where(origin == rows, -1, origin)
    return answer


def _first_kept(hashes: Hashes, most: int) -> Rows:
    """As `near_duplicates`, for hashes that all differ."""
    try:
        return _one_by_one(hashes, most)
    except _TooManyError:  # half of them first: of many that are all alike, only few are kept and compared further
        middle = len(hashes) // 2
        answer = np.full(len(hashes), -1, np.int64)
        answer[:middle] = _first_kept(hashes[:middle], most)
        kept = np.flatnonzero(answer[:middle] < 0)
        answer[middle:] = _nearest_before(hashes, kept, middle, most)
        rest = middle + np.flatnonzero(answer[middle:] < 0)
        inner = _first_kept(hashes[rest], most)
        answer[rest] = np.where(inner < 0, -1, rest[inner])
        return answer


def _one_by_one(hashes: Hashes, most: int) -> Rows:
    """Decide in order: when an image's turn comes, those before it are decided."""
    answer = [-1] * len(hashes)
    laters, earliers = np.divmod(_all_pairs(hashes, most), max(len(hashes), 1))
    for later, earlier in zip(laters.tolist(), earliers.tolist(), strict=True):
        if answer[later] < 0 and answer[earlier] < 0:
            answer[later] = earlier
    return np.array(answer, np.int64)


def _all_pairs(hashes: Hashes, most: int) -> Rows:
    """Each pair once, as one number: the later row times the count of hashes, plus the earlier row; increasing."""
    pairs = np.empty(0, np.int64)
    parts, found = [], 0
    for earlier, later in _pairs(hashes, most):
        parts.append(later * len(hashes) + earlier)
        found += len(earlier)
        if found > MOST_PAIRS:
            pairs = np.unique(np.concatenate([pairs, *parts]))
            parts, found = [], 0
            if len(pairs) > MOST_PAIRS and len(hashes) > 1:
                raise _TooManyError
    return np.unique(np.concatenate([pairs, *parts]))


def _nearest_before(hashes: Hashes, kept: Rows, middle: int, most: int) -> Rows:
    """For each hash from the middle on, the first of the kept ones before the middle that is near; -1 without."""
    rows = np.concatenate([kept, np.arange(middle, len(hashes))])
    nearest = np.full(len(hashes), len(hashes), np.int64)
    for earlier, later in _pairs(hashes[rows], most):
        across = (earlier < len(kept)) & (later >= len(kept))
        np.minimum.at(nearest, rows[later[across]], rows[earlier[across]])
    nearest[nearest == len(hashes)] = -1
    return nearest[middle:]


def _pairs(hashes: Hashes, most: int) -> Iterator[tuple[Rows, Rows]]:
    """The rows of near hashes, the earlier and the later; some pairs several times."""
    for mask in _masks(most, len(hashes)):
        order = np.argsort(hashes & mask, kind="stable")  # so that equal ones stay in the order of the corpus
        ordered = hashes[order]
        keys = ordered & mask
        first, step = np.arange(len(hashes) - 1), 1
        while len(first := first[keys[first] == keys[first + step]]):
            near = first[np.bitwise_count(ordered[first] ^ ordered[first + step]) <= most]
            if len(near):
                yield order[near], order[near + step]
            step += 1
            first = first[first + step < len(hashes)]


def _masks(most: int, count: int) -> list[np.uint64]:
    """The bits to agree in: each choice of bands. Neighbouring bits are in different bands, for they are alike."""
    agreeing = min(range(1, 5), key=lambda agreeing: _cost(most, agreeing, count))
    bands = [sum(1 << bit for bit in range(64 - BITS + band, 64, most + agreeing)) for band in range(most + agreeing)]
    return [np.uint64(sum(choice)) for choice in combinations(bands, agreeing)]


def _cost(most: int, agreeing: int, count: int) -> float:
    """Of sorting and comparing, were the hashes random."""
    bits = BITS * agreeing / (most + agreeing)
    return comb(most + agreeing, agreeing) * (SORTING * count + count**2 / 2 ** (bits + 1))


# Images of a corpus that look like an earlier one, whoever showed it: the paper compares tags only.


@dataclass(frozen=True)
class Alike:
    """Looks at images to tell which are nearly the same.

    Attributes:
        pictures: where they lie.
        most: how many of 63 bits of two likenesses may differ.
        failures: gets a line for each image that cannot be read.
    """

    pictures: Pictures
    most: int = MOST_BITS
    failures: list[str] = field(default_factory=list)

    def __call__(
        self,
        names: Iterable[str],
        total: int,
        store: Path,
        workers: int | Executor,
        progress: Progress,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """For each image the place of the one it repeats, or -1; and which images can be read at all.

        Args:
            names: of the images, all different, in the order of the corpus.
            total: how many.
            store: a file for the likenesses, so that a run that was stopped goes on.
            workers: who looks.
            progress: shows how far the work is.
        """
        hashes, known, read = np.zeros(total, np.uint64), np.zeros(total, bool), np.zeros(total, bool)
        waiting: dict[str, int] = {}

        def tasks() -> Iterator[str]:
            for place, name in enumerate(names):
                waiting[name] = place
                yield name

        book = open_results(store, ("picture", "hash"))
        pairs = answered(Hashing(self.pictures), tasks(), book, workers=workers, failures=self.failures)
        for name, entry in progress(pairs, total, "pictures looked at"):
            place = waiting.pop(name)
            read[place], known[place] = True, entry["hash"] is not None
            hashes[place] = int(entry["hash"] or "0", 16)
        return near_duplicates(hashes, self.most, known), read
