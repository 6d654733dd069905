"""What the rules need to know of a batch of images: everything of a corpus that is looked at, but its text."""

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
from excite.tags.dictionary import CHANGES, Normalising, are_in_order, normalise_distinct

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


NONE = -1
KINDS = {
    "counts": "int64",
    "user": "int32",
    "lengths": "uint16",
    "alphabetical": "bool",
    "firsts": "int32",
    "images": "uint64",
}
MOST_TAGS = 65535  # more are not told apart
MOST_KNOWN = 1_000_000  # tags that a process remembers: some 200 MB


@dataclass(frozen=True, eq=False)
class Survey:
    """What was seen in a batch.

    Attributes:
        words: the different tags, normalised, in the order of their code points,
        counts: and how often each is listed.
        users: the different users.
        user: [images], whose each is: its place among the users, or -1.
        lengths: [images], how many tags each has.
        alphabetical: [images], whether they stand in alphabetical order.
        firsts: [images, first], the places of the first tags among the words, or -1.
        images: [images, 2], the names of the images as 128-bit hashes; 0 for one without a name.
        changes: what was done to the tags, and how often.
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
        """Write it down as NumPy's arrays, text as JSON in them."""
        content: dict[str, Any] = {
            one.name: value if isinstance(value := getattr(self, one.name), np.ndarray) else _bytes(value)
            for one in fields(self)
        }
        return atomic_write(path, lambda file: np.savez(file, **content))

    @classmethod
    def read(cls, path: Path) -> Self:
        """What was written down."""
        found: dict[str, Any] = _arrays(path, [one.name for one in fields(cls)])
        try:
            found |= {name: json.loads(found[name].tobytes()) for name in ("words", "users", "changes")}
        except (ValueError, RecursionError) as error:
            raise _damaged(path, error) from None
        read = cls(**found)
        if not read.holds_together():
            raise _damaged(path, "its parts do not fit together")
        return read

    def holds_together(self) -> bool:
        """Whether every number stands for something that is there.

        Example:
            >>> columns = {"image": ["a.jpg"], "tags": [["sea"]], "user": ["ann"]}
            >>> survey(arrow().RecordBatch.from_pydict(columns), Normalising()).holds_together()
            True
        """
        texts = all(
            isinstance(part, list) and all(isinstance(one, str) for one in part) for part in (self.words, self.users)
        )
        if (
            not texts
            or not isinstance(self.changes, dict)
            or not all(type(one) is int for one in self.changes.values())
        ):
            return False
        kinds = {name: np.dtype(kind) for name, kind in KINDS.items()}
        if any(getattr(self, name).dtype != kind for name, kind in kinds.items()):
            return False
        pictures = self.lengths.shape
        shapes = self.user.shape == self.alphabetical.shape == pictures and self.counts.shape == (len(self.words),)
        if not shapes or len(pictures) != 1 or self.firsts.ndim != 2 or self.images.shape != (*pictures, 2):
            return False
        return (
            len(self.firsts) == pictures[0]
            and _are_within(self.firsts, self.words)
            and _are_within(self.user, self.users)
        )

    @staticmethod
    def read_images(path: Path) -> NDArray[np.uint64]:
        """Only the names of the images, as hashes."""
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


def _are_within(places: NDArray[np.int32], things: list[str]) -> bool:
    return bool(places.size == 0 or (places.min() >= NONE and places.max() < len(things)))


def _bytes(value: object) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def survey(batch: Any, normalising: Normalising, first: int = 5) -> Survey:
    """Look at a batch of a corpus.

    Example:
        >>> pa = arrow()
        >>> columns = {"image": ["a.jpg"], "tags": [["Sea", "sky "]], "user": ["ann"]}
        >>> seen = survey(pa.RecordBatch.from_pydict(columns), Normalising())
        >>> seen.words, seen.lengths.tolist(), seen.alphabetical.tolist(), seen.changes
        (['sea', 'sky'], [2], [True], {'case': 1, 'spaces': 1})
    """
    tags = _Tags(batch.column("tags"), normalising)
    users, user = _distinct(batch.column("user"))
    return Survey(
        words=tags.words.to_pylist(),
        counts=np.bincount(tags.numbers, minlength=len(tags.words)),
        users=users.to_pylist(),
        user=user,
        lengths=tags.lengths.clip(max=MOST_TAGS).astype(np.uint16),
        alphabetical=tags.alphabetical(),
        firsts=tags.firsts(first),
        images=_hashes(batch.column("image").to_pylist()),
        changes=tags.changes,
    )


def normalised(tags: Any, normalising: Normalising) -> Any:
    """A column of lists of tags as they are called after normalising; those left empty are gone."""
    return _Tags(tags, normalising).column()


class _Tags:
    """All tags of a batch one after the other, as numbers: in the order of the words they stand for."""

    def __init__(self, column: Any, normalising: Normalising) -> None:
        lengths = column.value_lengths().fill_null(0).to_numpy()
        written, places = _distinct(column.flatten())
        times = np.bincount(places[places >= 0], minlength=len(written))
        used = np.flatnonzero(times)  # a file's words need not all be in this batch
        names, masks = _called(written.take(arrow().array(used)), normalising)
        ranks = np.full(len(written) + 1, NONE, np.int32)  # the last one for what is null
        self.words, ranks[used] = _ranked(names)
        self.changes = _counted(masks, times[used])
        numbers = ranks[places]
        there = numbers >= 0
        if not there.all():
            gone = np.concatenate([[0], np.cumsum(~there)])
            ends = np.cumsum(lengths)
            lengths = lengths - (gone[ends] - gone[ends - lengths])
        self.numbers, self.lengths = numbers[there], lengths
        self.starts = np.cumsum(lengths) - lengths

    def alphabetical(self) -> NDArray[np.bool_]:
        """Whether no tag of a list comes before the one in front of it."""
        descents = np.concatenate([[0, 0], np.cumsum(self.numbers[1:] < self.numbers[:-1])])  # before each tag
        ends = self.starts + self.lengths
        inner = descents[ends] - descents[np.minimum(self.starts + 1, ends)]
        return np.asarray(inner == 0)

    def firsts(self, first: int) -> NDArray[np.int32]:
        """[images, first], the first tags; -1 where there are fewer."""
        places = self.starts[:, None] + np.arange(first)
        there = np.arange(first) < self.lengths[:, None]
        padded = np.append(self.numbers, np.int32(NONE))
        return np.where(there, padded[np.where(there, places, 0)], np.int32(NONE))

    def column(self) -> Any:
        """The tags as Arrow holds them."""
        pa = arrow()
        offsets = pa.array(np.append(self.starts, len(self.numbers)).astype(np.int32))
        words = pa.DictionaryArray.from_arrays(pa.array(self.numbers), self.words)
        return pa.ListArray.from_arrays(offsets, words)


def _distinct(column: Any) -> tuple[Any, NDArray[np.int32]]:
    """The different values, and the place of each among them; -1 for null."""
    encoded = column if arrow().types.is_dictionary(column.type) else column.dictionary_encode()
    return encoded.dictionary, encoded.indices.fill_null(NONE).to_numpy(zero_copy_only=False)


_KNOWN: dict[Normalising, dict[str, tuple[str, int]]] = {}  # the next batch has nearly the same tags


def _called(written: Any, normalising: Normalising) -> tuple[Any, NDArray[np.uint8]]:
    """What these tags are called, as Arrow holds them, and how each was changed; only odd ones are looked at."""
    pa = arrow()
    odd = ~are_in_order(written, normalising)
    known = _KNOWN.setdefault(normalising, {})
    if len(known) > MOST_KNOWN:
        known.clear()
    tags = written.filter(pa.array(odd)).to_pylist()
    new = [tag for tag in tags if tag not in known]
    found, changed = normalise_distinct(new, normalising)
    known.update(zip(new, zip(found, changed.tolist(), strict=True), strict=True))
    names = pa.array([known[tag][0] for tag in tags], pa.string())
    masks = np.zeros(len(written), np.uint8)
    masks[odd] = [known[tag][1] for tag in tags]
    return pa.compute.replace_with_mask(written, pa.array(odd), names), masks


def _ranked(names: Any) -> tuple[Any, NDArray[np.int32]]:
    """The different names in the order of their code points, and the place of each name; -1 for the empty one."""
    encoded = names.dictionary_encode()
    order = arrow().compute.sort_indices(encoded.dictionary).to_numpy()  # UTF-8 has the order of the code points
    words = encoded.dictionary.take(arrow().array(order))
    empty = int(len(words) > 0 and words[0].as_py() == "")  # it comes first
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order)) - empty
    return words.slice(empty), ranks[encoded.indices.to_numpy()]


def _counted(masks: NDArray[np.uint8], times: NDArray[np.int64]) -> dict[str, int]:
    """How many tags were changed in each way."""
    counted = {name: int(times[masks & (1 << bit) > 0].sum()) for bit, name in enumerate(CHANGES)}
    return {name: number for name, number in counted.items() if number}


def _hashes(names: list[str | None]) -> NDArray[np.uint64]:
    """[names, 2]: equal for equal names only, as far as anybody can find out."""
    digests = [blake2b(name.encode(), digest_size=16).digest() if name else bytes(16) for name in names]
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


# Which images of a corpus are worth learning from: the rules of the paper's appendix.

RULES = ("no_image", "repeated_image", "few_tags", "alphabetical", "similar", "unreadable", "near_duplicate")
"""Why an image is dropped, in the order in which the rules are asked; the first that holds is the reason."""

AGAINST = ("seen", "kept")


@dataclass(frozen=True)
class Rules:
    """The thresholds, by default the paper's.

    Attributes:
        least_count: a tag seen at least so often in the corpus as read is in the dictionary.
        most_tags: the dictionary has at most so many, the most frequent; None for no bound.
        least_tags: an image with fewer is dropped.
        alphabetical: whether one whose tags stand in alphabetical order is dropped.
        similar: whether one is dropped that begins like an earlier image of the same user:
        first: when of so many first tags
        overlap: more than so many are shared.
        against: the earlier images it is compared with: "seen", all that came as far as this rule, or "kept" ones.

    Example:
        >>> Rules().shared
        4
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
            raise DataError(f"pictures are compared with those {' or '.join(AGAINST)} before, not {self.against!r}")
        if not 0 <= self.overlap < self.first <= 20:
            raise DataError(
                f"of {self.first} first tags more than {self.overlap} cannot be shared, or it costs too much"
            )

    @property
    def shared(self) -> int:
        """How many first tags make two images similar."""
        return self.overlap + 1


# Images of one user that begin with nearly the same tags, found without comparing all with all.
#
# Two images share at least k of their first tags exactly when they have a set of k tags in common. So each image
# is put under all sets of k of its first tags (with five tags and k = 4, five sets), and similar images meet there.
# The work grows with the number of images, not with its square.

SEEDS = 100


def candidate_type(first: int) -> np.dtype[Any]:
    """What is known of an image that came as far as being compared: its row, whose it is, its first tags as numbers.

    Example:
        >>> candidate_type(5).names
        ('row', 'user', 'tags')
    """
    return np.dtype([("row", np.int64), ("user", np.int32), ("tags", np.int32, (first,))])


def similar_to(candidates: NDArray[Any], shared: int, against: str = "seen") -> NDArray[np.int64]:
    """For each image the row of the earliest one before it, of the same user, that it is similar to; -1 for none.

    Args:
        candidates: images of type `candidate_type` in the order of the corpus; -1 for a tag that is not there.
        shared: how many different first tags two must share.
        against: "seen", all images before it count; or "kept", only those that are not similar to a kept one.

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
    """[images, sets, 1 + shared]: the user and the tags of each set, in order; and which sets there really are."""
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
    """For each image the earliest kept one that it shares a set with; itself if there is none."""
    number, width = there.shape
    found = np.arange(number)
    members = np.bincount(firsts[there], minlength=number * width)
    shares = (members[firsts] > 1) & there  # only these images have to be gone through one by one
    kept: dict[int, int] = {}
    for picture in np.flatnonzero(shares.any(axis=1)).tolist():
        sets = firsts[picture][shares[picture]].tolist()
        found[picture] = min([kept[one] for one in sets if one in kept], default=picture)
        if found[picture] == picture:
            for one in sets:
                kept.setdefault(one, picture)
    return found
