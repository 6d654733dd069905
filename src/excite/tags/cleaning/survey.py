"""The rules of the paper's appendix, the survey of a batch that they need, and the search for similar tag lists."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from hashlib import blake2b
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from excite.errors import DataError
from excite.io.files import atomic_write
from excite.jobs.parquet import arrow
from excite.tags.dictionary import CHANGES, TagNormaliser, are_normalised

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

RULES = ("no_image", "repeated_image", "few_tags", "alphabetical", "similar", "unreadable", "near_duplicate")
"""Why an image is dropped, in the order of the rules; the first that applies is the reason."""

AGAINST = ("seen", "kept")
NONE = -1
KINDS = {
    "counts": "int64",
    "user": "int32",
    "lengths": "uint16",
    "alphabetical": "bool",
    "firsts": "int32",
    "images": "uint64",
}
MAX_LENGTH = 65535  # of a list of tags, as it is stored
MOST_KNOWN = 1_000_000  # normalised tags in the cache of a process: some 200 MB
SEEDS = 100


@dataclass(frozen=True)
class Rules:
    """The thresholds, by default the paper's.

    Attributes:
        least_count: the dictionary holds the tags listed at least so often in the raw corpus,
        most_tags: and of these the most frequent; None for all.
        least_tags: an image with fewer tags is dropped.
        alphabetical: whether an image with tags in alphabetical order is dropped.
        similar: whether an image is dropped if of its ``first`` tags
        first: the number of compared tags
        overlap: more than so many are those of an earlier image of the same user.
        against: the earlier images compared: "seen", all that reach this rule, or "kept" ones.
    """

    least_count: int = 1000
    most_tags: int | None = None
    least_tags: int = 5
    alphabetical: bool = True
    similar: bool = True
    first: int = 5
    overlap: int = 3
    against: str = "seen"

    def __post_init__(self) -> None:
        if self.against not in AGAINST:
            raise DataError(f"images are compared with those {' or '.join(AGAINST)} before, not {self.against!r}")
        if not 0 <= self.overlap < self.first <= 20:
            raise DataError(
                f"of {self.first} first tags more than {self.overlap} cannot be shared, or it costs too much"
            )

    @property
    def shared(self) -> int:
        """The number of shared first tags that makes two images similar."""
        return self.overlap + 1


@dataclass(frozen=True, eq=False)
class Survey:
    """What the rules need to know of a batch.

    Attributes:
        words: the distinct tags, normalised, in code point order,
        counts: and how often each is listed.
        users: the distinct users.
        user: [images], the index of its user, or -1.
        lengths: [images], the number of tags.
        alphabetical: [images], whether they are in alphabetical order.
        firsts: [images, first], the indices of the first tags among the words, or -1.
        images: [images, 2], the names of the images as 128-bit hashes; 0 without a name.
        changes: the numbers of normalised tags, by change.
    """

    words: list[str]
    counts: NDArray[np.int64]
    users: list[str]
    user: NDArray[np.int32]
    lengths: NDArray[np.uint16]
    alphabetical: NDArray[np.bool_]
    firsts: NDArray[np.int32]
    images: NDArray[np.uint64]
    changes: dict[str, int]

    def save(self, path: Path) -> Path:
        """Write it as NumPy arrays (.npz), text as JSON in them."""
        content: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("words", "users", "changes"):
            content[name] = np.frombuffer(json.dumps(content[name]).encode(), np.uint8)
        return atomic_write(path, lambda file: np.savez(file, **content))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a saved survey.

        Raises:
            DataError: the file is damaged.
        """
        found: dict[str, Any] = _arrays(path, [one.name for one in fields(cls)])
        try:
            found |= {name: json.loads(found[name].tobytes()) for name in ("words", "users", "changes")}
        except (ValueError, RecursionError) as error:
            raise _damaged(path, error) from None
        read = cls(**found)
        if not read.is_consistent():
            raise _damaged(path, "its parts do not fit together")
        return read

    def is_consistent(self) -> bool:
        """Whether types and shapes fit, and every index is in range."""
        texts = all(
            isinstance(part, list) and all(isinstance(one, str) for one in part) for part in (self.words, self.users)
        )
        changes = isinstance(self.changes, dict) and all(type(one) is int for one in self.changes.values())
        if not texts or not changes or any(getattr(self, name).dtype != kind for name, kind in KINDS.items()):
            return False
        pictures = self.lengths.shape
        shapes = self.user.shape == self.alphabetical.shape == pictures and self.counts.shape == (len(self.words),)
        if not shapes or len(pictures) != 1 or self.firsts.ndim != 2 or self.images.shape != (*pictures, 2):
            return False
        return len(self.firsts) == pictures[0] and all(
            index.size == 0 or (index.min() >= NONE and index.max() < len(texts))
            for index, texts in ((self.firsts, self.words), (self.user, self.users))
        )

    @staticmethod
    def read_images(path: Path) -> NDArray[np.uint64]:
        """Only the hashes of the images' names."""
        return _arrays(path, ["images"])["images"]


def _arrays(path: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {name: file[name] for name in names}
    except Exception as error:  # noqa: BLE001 - zipfile and numpy raise errors of all kinds for a damaged file
        raise _damaged(path, error) from None
    if not all(isinstance(value, np.ndarray) for value in found.values()):
        raise _damaged(path, "it holds no arrays")
    return found


def _damaged(path: Path, reason: object) -> DataError:
    return DataError(f"{path} is damaged ({str(reason)[:200]}): remove it and start again")


def survey(batch: Any, normaliser: TagNormaliser, first: int = 5) -> Survey:
    """Survey a record batch of a corpus.

    Example:
        >>> pa = arrow()
        >>> columns = {"image": ["a.jpg"], "tags": [["Sea", "sky "]], "user": ["ann"]}
        >>> seen = survey(pa.RecordBatch.from_pydict(columns), TagNormaliser())
        >>> seen.words, seen.lengths.tolist(), seen.alphabetical.tolist(), seen.changes
        (['sea', 'sky'], [2], [True], {'case': 1, 'spaces': 1})
    """
    tags = _Tags(batch.column("tags"), normaliser)
    users, user = _distinct(batch.column("user"))
    return Survey(
        words=tags.words.to_pylist(),
        counts=np.bincount(tags.numbers, minlength=len(tags.words)),
        users=users.to_pylist(),
        user=user,
        lengths=tags.lengths.clip(max=MAX_LENGTH).astype(np.uint16),
        alphabetical=tags.alphabetical(),
        firsts=tags.firsts(first),
        images=_hashes(batch.column("image").to_pylist()),
        changes=tags.changes,
    )


def normalised(tags: Any, normaliser: TagNormaliser) -> Any:
    """A column of tag lists, normalised and without empty tags."""
    return _Tags(tags, normaliser).column()


class _Tags:
    """The normalised tags of a batch, flat, as ranks: numbers in the order of the words."""

    def __init__(self, column: Any, normaliser: TagNormaliser) -> None:
        lengths = column.value_lengths().fill_null(0).to_numpy()
        written, codes = _distinct(column.flatten())
        times = np.bincount(codes[codes >= 0], minlength=len(written))
        used = np.flatnonzero(times)  # a file's dictionary may hold words of other batches
        names, masks = _normalised(written.take(arrow().array(used)), normaliser)
        ranks = np.full(len(written) + 1, NONE, np.int32)  # the last one for null
        self.words, ranks[used] = _ranked(names)
        counted = {name: int(times[used][masks & (1 << bit) > 0].sum()) for bit, name in enumerate(CHANGES)}
        self.changes = {name: number for name, number in counted.items() if number}
        numbers = ranks[codes]
        there = numbers >= 0
        if not there.all():
            gone = np.concatenate([[0], np.cumsum(~there)])
            ends = np.cumsum(lengths)
            lengths = lengths - (gone[ends] - gone[ends - lengths])
        self.numbers, self.lengths = numbers[there], lengths
        self.starts = np.cumsum(lengths) - lengths

    def alphabetical(self) -> NDArray[np.bool_]:
        """Whether no tag of a list sorts before its predecessor."""
        descents = np.concatenate([[0, 0], np.cumsum(self.numbers[1:] < self.numbers[:-1])])  # before each tag
        ends = self.starts + self.lengths
        inner = descents[ends] - descents[np.minimum(self.starts + 1, ends)]
        return np.asarray(inner == 0)

    def firsts(self, first: int) -> NDArray[np.int32]:
        """[images, first], the first tags; -1 where there are fewer."""
        index = self.starts[:, None] + np.arange(first)
        there = np.arange(first) < self.lengths[:, None]
        padded = np.append(self.numbers, np.int32(NONE))
        return np.where(there, padded[np.where(there, index, 0)], np.int32(NONE))

    def column(self) -> Any:
        """The tags as an Arrow list array."""
        pa = arrow()
        offsets = pa.array(np.append(self.starts, len(self.numbers)).astype(np.int32))
        words = pa.DictionaryArray.from_arrays(pa.array(self.numbers), self.words)
        return pa.ListArray.from_arrays(offsets, words)


def _distinct(column: Any) -> tuple[Any, NDArray[np.int32]]:
    """The distinct values, and the index of each value among them; -1 for null."""
    encoded = column if arrow().types.is_dictionary(column.type) else column.dictionary_encode()
    return encoded.dictionary, encoded.indices.fill_null(NONE).to_numpy(zero_copy_only=False)


_KNOWN: dict[TagNormaliser, dict[str, tuple[str, int]]] = {}  # the next batch has nearly the same tags


def _normalised(written: Any, normaliser: TagNormaliser) -> tuple[Any, NDArray[np.uint8]]:
    """Distinct tags in normal form, and the changes made; only those that may change become Python objects."""
    pa = arrow()
    odd = ~are_normalised(written, normaliser)
    known = _KNOWN.setdefault(normaliser, {})
    if len(known) > MOST_KNOWN:
        known.clear()
    tags = written.filter(pa.array(odd)).to_pylist()
    known.update((tag, normaliser(tag)) for tag in tags if tag not in known)
    names = pa.array([known[tag][0] for tag in tags], pa.string())
    masks = np.zeros(len(written), np.uint8)
    masks[odd] = [known[tag][1] for tag in tags]
    return pa.compute.replace_with_mask(written, pa.array(odd), names), masks


def _ranked(names: Any) -> tuple[Any, NDArray[np.int32]]:
    """The distinct names in code point order, and the rank of each name; -1 for the empty one."""
    encoded = names.dictionary_encode()
    order = arrow().compute.sort_indices(encoded.dictionary).to_numpy()  # UTF-8 sorts by code points
    words = encoded.dictionary.take(arrow().array(order))
    empty = int(len(words) > 0 and words[0].as_py() == "")  # it sorts first
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order)) - empty
    return words.slice(empty), ranks[encoded.indices.to_numpy()]


def _hashes(names: list[str | None]) -> NDArray[np.uint64]:
    digests = [blake2b(name.encode(), digest_size=16).digest() if name else bytes(16) for name in names]
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


# Similar images of one user, without comparing all pairs: two images share at least k of their first tags exactly when
# they have a set of k tags in common. So each image is filed under all sets of k of its first tags (five sets for five
# tags and k = 4). The work is linear in the number of images.


def candidate_type(first: int) -> np.dtype[Any]:
    """The NumPy type of an image to be compared: its row, its user and its first tags, as numbers."""
    return np.dtype([("row", np.int64), ("user", np.int32), ("tags", np.int32, (first,))])


def similar_to(candidates: NDArray[Any], shared: int, against: str = "seen") -> NDArray[np.int64]:
    """For each image the row of the earliest similar image of the same user before it; -1 for none.

    Args:
        candidates: images of type `candidate_type` in the order of the corpus; -1 for a missing tag.
        shared: the number of distinct first tags that similar images share.
        against: "seen", compare with all images before it; or "kept", only with those that are not similar themselves.

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
    firsts = firsts.reshape(there.shape)
    if against == "seen":
        earliest = np.where(there, firsts // width, np.arange(number)[:, None])
        found = earliest.min(axis=1, initial=number)
    else:
        found = _earliest_kept(firsts, there)
    return np.where(found < np.arange(number), candidates["row"][np.minimum(found, number - 1)], NONE)


def _sets(candidates: NDArray[Any], shared: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """[images, sets, 1 + shared]: the user and the sorted tags of each set; and which sets are complete."""
    tags = np.sort(candidates["tags"], axis=1)
    again = np.zeros(tags.shape, bool)
    again[:, 1:] = tags[:, 1:] == tags[:, :-1]
    tags = np.sort(np.where(again, NONE, tags), axis=1)
    chosen = np.array(list(combinations(range(tags.shape[1]), shared)))
    sets = tags[:, chosen]
    users = np.broadcast_to(candidates["user"][:, None, None], (*sets.shape[:2], 1))
    return np.concatenate([users, sets], axis=2), sets[:, :, 0] != NONE  # the smallest is missing if any is


def equal_rows(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each row of a matrix the index of the first equal row, by 64-bit hashes; collisions are detected."""
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
    """A 64-bit hash of each row."""
    keys = np.full(len(rows), 0x9E3779B97F4A7C15 * (seed + 1) % 2**64, np.uint64)
    for column in range(rows.shape[1]):
        keys = (keys ^ rows[:, column].astype(np.uint64)) * np.uint64(0xFF51AFD7ED558CCD)
        keys ^= keys >> np.uint64(32)
    return keys


def _earliest_kept(firsts: NDArray[np.int64], there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each image the earliest kept one that it shares a set with; itself if there is none."""
    number, width = there.shape
    found = np.arange(number)
    members = np.bincount(firsts[there], minlength=number * width)
    shares = (members[firsts] > 1) & there  # only these images are visited one by one
    kept: dict[int, int] = {}
    for picture in np.flatnonzero(shares.any(axis=1)).tolist():
        sets = firsts[picture][shares[picture]].tolist()
        found[picture] = min([kept[one] for one in sets if one in kept], default=picture)
        if found[picture] == picture:
            for one in sets:
                kept.setdefault(one, picture)
    return found
