"""Near duplicates: images of a corpus that look like an earlier one, by perceptual hashes of 64 bits.

An image is reduced to 32 x 32 grey pixels and transformed by the discrete cosine transform (DCT). Each of the 63 lowest
coefficients but the constant one gives a bit: whether it is above their median. The bits survive another size, another
JPEG quality and another brightness.
"""

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
    from excite.tags.images import ImageSource

SIDE = 32
COEFFICIENTS = 8  # along each side
TEXTURE = 8.0  # median distance of the coefficients from their median; below it, JPEG noise decides some bits
VERSION = 1

Hashes = NDArray[np.uint64]
Rows = NDArray[np.int64]

MOST_BITS = 4
BITS = 63  # the lowest of the 64 is always 0
MOST_PAIRS = 20_000_000  # held at a time: 320 MB while they are sorted
SORTING = 8  # cost of sorting per hash, relative to the comparison of two


@dataclass(frozen=True)
class DuplicateFilter:
    """Finds near duplicates among images.

    Attributes:
        images: the image source.
        most: the number of differing bits, of 63, up to which two images are duplicates.
        failures: receives a line for each image that cannot be read.
    """

    images: ImageSource
    most: int = MOST_BITS
    failures: list[str] = field(default_factory=list)

    def __call__(
        self, names: Iterable[str], total: int, store: Path, workers: int | Executor, progress: Progress
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """For each image the index of the one it repeats, or -1; and which images can be read at all.

        The names are distinct, in the order of the corpus; the hashes are stored, so that a stopped run is resumed.
        """
        hashes, known, read = np.zeros(total, np.uint64), np.zeros(total, bool), np.zeros(total, bool)
        waiting: dict[str, int] = {}

        def tasks() -> Iterator[str]:
            for index, name in enumerate(names):
                waiting[name] = index
                yield name

        results = open_results(store, ("picture", "hash"))
        pairs = answered(PerceptualHasher(self.images), tasks(), results, workers=workers, failures=self.failures)
        for name, entry in progress(pairs, total, "images hashed"):
            index = waiting.pop(name)
            read[index], known[index] = True, entry["hash"] is not None
            hashes[index] = int(entry["hash"] or "0", 16)
        return near_duplicates(hashes, self.most, known), read


@dataclass(frozen=True)
class PerceptualHasher:
    """The perceptual hash of each image, by name, as work for `excite.jobs.loop.run`."""

    images: ImageSource

    def key(self, task: str) -> str:
        """Changes when the image does, or the algorithm."""
        facts = f"likeness {VERSION} {task} {self.images.state(task)}"
        return hashlib.sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def __call__(self, task: str) -> dict[str, Any]:
        """The hash in hexadecimal, or None for an image without texture."""
        bits = perceptual_hash(self.images.read(task))
        return {"picture": task, "hash": None if bits is None else f"{bits:016x}"}


def perceptual_hash(picture: Image.Image) -> int | None:
    """The image's 64 bits, the lowest of which is 0; None without texture, such as for a single colour.

    Example:
        >>> print(perceptual_hash(Image.new("RGB", (64, 64), "red")))
        None
    """
    small = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=3)
    coefficients = (_cosines() @ np.asarray(small, np.float64) @ _cosines().T).ravel()[1:]
    differences = coefficients - np.median(coefficients)
    if np.median(np.abs(differences)) < TEXTURE:
        return None
    return int(np.packbits(np.concatenate([[False], differences > 0]), bitorder="little").view("<u8")[0])


@cache
def _cosines() -> NDArray[np.float64]:
    """The first rows of the orthonormal DCT-II matrix."""
    wave, position = np.arange(COEFFICIENTS)[:, None], np.arange(SIDE)[None]
    cosines = np.cos(np.pi * wave * (2 * position + 1) / (2 * SIDE)) * np.sqrt(2 / SIDE)
    cosines[0] /= np.sqrt(2)
    return np.asarray(cosines)


# Two hashes that differ in at most M bits, cut into M + A bands, agree in at least A bands. So only hashes are compared
# that agree in some A bands: sorting brings them together, once for each choice of A bands. A minimises the cost of
# sorting and comparing.


class _TooManyError(Exception):
    """More pairs than are held at a time."""


def near_duplicates(hashes: Hashes, most: int = MOST_BITS, known: NDArray[np.bool_] | None = None) -> Rows:
    """For each image the earliest kept near duplicate before it; -1 for images that are kept.

    An image is dropped when it lies within ``most`` bits of an earlier image that is kept. So the first of a family
    stays, and so does the end of a chain of small changes once it is far enough from the first.

    Args:
        hashes: in the order of the corpus.
        most: the number of bits that may differ.
        known: which images have a hash; the others are always kept. All, if None.

    Raises:
        DataError: ``most`` is out of range.

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
    # equal hashes share the fate of the first of them, and those of a kept one repeat it
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    mine = rank[which]
    kept = np.where(double[mine] < 0, mine, double[mine])
    origin = rows[first[order]][kept]
    answer[rows] = np.where(origin == rows, -1, origin)
    return answer


def _first_kept(hashes: Hashes, most: int) -> Rows:
    """As `near_duplicates`, for distinct hashes."""
    try:
        return _one_by_one(hashes, most)
    except _TooManyError:  # halve: of many that are all alike, only few are kept and compared further
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
    """Decide in order, so that all earlier images are decided."""
    answer = [-1] * len(hashes)
    laters, earliers = np.divmod(_all_pairs(hashes, most), max(len(hashes), 1))
    for later, earlier in zip(laters.tolist(), earliers.tolist(), strict=True):
        if answer[later] < 0 and answer[earlier] < 0:
            answer[later] = earlier
    return np.array(answer, np.int64)


def _all_pairs(hashes: Hashes, most: int) -> Rows:
    """Each near pair once, increasing, as later row x number of hashes + earlier row."""
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
    """For each hash from the middle on, the first near one of those kept before the middle; -1 without."""
    rows = np.concatenate([kept, np.arange(middle, len(hashes))])
    nearest = np.full(len(hashes), len(hashes), np.int64)
    for earlier, later in _pairs(hashes[rows], most):
        across = (earlier < len(kept)) & (later >= len(kept))
        np.minimum.at(nearest, rows[later[across]], rows[earlier[across]])
    nearest[nearest == len(hashes)] = -1
    return nearest[middle:]


def _pairs(hashes: Hashes, most: int) -> Iterator[tuple[Rows, Rows]]:
    """The earlier and the later rows of near hashes; some pairs several times."""
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
    """The bits to agree in, for each choice of bands; neighbouring bits, which correlate, are in different bands."""
    agreeing = min(range(1, 5), key=lambda agreeing: _cost(most, agreeing, count))
    bands = [sum(1 << bit for bit in range(64 - BITS + band, 64, most + agreeing)) for band in range(most + agreeing)]
    return [np.uint64(sum(choice)) for choice in combinations(bands, agreeing)]


def _cost(most: int, agreeing: int, count: int) -> float:
    """Of sorting and comparing random hashes."""
    bits = BITS * agreeing / (most + agreeing)
    return comb(most + agreeing, agreeing) * (SORTING * count + count**2 / 2 ** (bits + 1))
