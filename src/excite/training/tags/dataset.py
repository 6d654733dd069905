"""What a corpus of tags teaches, as arrays: six million images are a few hundred megabytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.jobs.parquet import arrow
from excite.training.examples import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from excite.tags.corpus import Corpus
    from excite.tags.dictionary import Dictionary

__all__ = ["FIRST", "Lessons", "read_lessons"]

FIRST = 5  # tags of an image that are learnt, as in the paper: people write the most telling ones first


@dataclass(frozen=True, eq=False)
class Lessons:
    """Pictures and the tags to learn from each.

    Attributes:
        names: of the images, an Arrow array of text; each is there once.
        units: [images, first], the places of their first tags in the dictionary; -1 where there is none.
        pairs: [n, 2], every (image, unit) of all tags listed; of held-out images only, to measure with.
        places: a number in 0..1 for each image, told by its name alone.
        left_out: how many rows of the corpus are not there, by reason.
    """

    names: Any
    units: NDArray[np.int32]
    pairs: NDArray[np.int64]
    places: NDArray[np.float64]
    left_out: dict[str, int]

    def __len__(self) -> int:
        return len(self.units)

    def name(self, row: int) -> str:
        """The name of an image."""
        name: str = self.names[row].as_py()
        return name

    def of(self, rows: NDArray[np.int64]) -> Lessons:
        """Some of these images, in this order; without the pairs."""
        nothing = np.zeros((0, 2), np.int64)
        return replace(
            self, names=self.names.take(rows), units=self.units[rows], places=self.places[rows], pairs=nothing
        )

    def digest(self) -> str:
        """Changes when the images, their order or their tags do."""
        content = hashlib.blake2b(self.places.tobytes(), digest_size=16)
        content.update(np.ascontiguousarray(self.units).data)
        content.update(self.pairs.tobytes())
        return content.hexdigest()

    def counts(self, tags: int) -> NDArray[np.int64]:
        """How many of the images have each tag among their first."""
        return np.bincount(self.units[self.units >= 0], minlength=tags)


def read_lessons(
    corpus: Corpus, dictionary: Dictionary, first: int = FIRST, held_out: float = 0
) -> tuple[Lessons, Lessons]:
    """The images to learn from, and those kept aside.

    Of the first so many tags of an image, as they are listed, those in the dictionary are learnt, each once. An image
    with none of them teaches nothing and is left out, and so is a row without a name or with one that was there before.

    Args:
        corpus: the images and their tags.
        dictionary: the tags to learn.
        first: how many of an image's tags count.
        held_out: the share of the images that is kept aside; which, depends on nothing but their names.

    Raises:
        DataError: nothing is left to learn from.

    Example:
        >>> learnt, aside = read_lessons(Corpus(Path("kept.parquet")), dictionary, held_out=0.1)  # doctest: +SKIP
    """
    parts = list(_parts(corpus, dictionary, first, held_out))
    whole = _joined(parts, first)
    aside = whole.places < held_out
    numbers = np.cumsum(aside) - 1  # of an image among those kept aside
    kept = whole.of(np.flatnonzero(~aside))
    if not len(kept):
        about = ", ".join(f"{count} {reason}" for reason, count in whole.left_out.items()) or "no rows"
        raise DataError(
            f"nothing in {corpus.path} teaches a tag of the dictionary: {corpus.rows} rows, {about}, "
            f"{aside.sum()} held out"
        )
    pairs = np.stack([numbers[whole.pairs[:, 0]], whole.pairs[:, 1]], axis=1)
    return kept, replace(whole.of(np.flatnonzero(aside)), pairs=pairs)


def _parts(corpus: Corpus, dictionary: Dictionary, first: int, held_out: float) -> Iterator[Lessons]:
    wanted = arrow().array(dictionary.tags)
    for batch in corpus.batches():
        yield _part(batch, wanted, first, held_out)


def _part(batch: Any, wanted: Any, first: int, held_out: float) -> Lessons:
    """The lessons of some rows; in Python only their names are looked at one by one."""
    pa = arrow()
    rows, places, units = _flat(batch.column("tags"), wanted)
    table = np.full((batch.num_rows, first), -1, np.int32)
    early = places < first
    table[rows[early], places[early]] = units[early]
    for place in range(1, first):  # each tag once
        table[(table[:, :place] == table[:, place, None]).any(1), place] = -1
    named = np.asarray(pa.compute.is_valid(batch.column("image")))
    useful = named & (table >= 0).any(1)
    kept = np.flatnonzero(useful)
    names = batch.column("image").take(pa.array(kept)).cast(pa.large_string())
    where = np.array([place_of(name) for name in names.to_pylist()], np.float64)
    left_out = {"without a name": int((~named).sum()), "without a tag to learn": int((named & ~useful).sum())}
    aside = np.full(batch.num_rows, -1, np.int64)
    aside[kept] = np.where(where < held_out, np.arange(len(kept)), -1)
    listed = (aside[rows] >= 0) & (units >= 0)
    pairs = np.unique(aside[rows][listed] * len(wanted) + units[listed])  # as one number each: quicker to sort
    return Lessons(names, table[kept], np.stack(np.divmod(pairs, len(wanted)), axis=1), where, left_out)


def _flat(tags: Any, wanted: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """For every tag its row, its place in the list and its unit; only distinct tags are looked up."""
    pc = arrow().compute
    lengths = np.asarray(pc.fill_null(pc.list_value_length(tags), 0), np.int64)
    encoded = tags.flatten().dictionary_encode()
    found = pc.fill_null(pc.index_in(encoded.dictionary, value_set=wanted), -1)
    known = np.append(np.asarray(found, np.int32), np.int32(-1))  # the last one is for tags that are null
    units = known[np.asarray(pc.fill_null(encoded.indices, -1))]
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return rows, places, units


def _joined(parts: list[Lessons], first: int) -> Lessons:
    """All parts as one, each name once: the first row of an image counts."""
    pa = arrow()
    names = pa.chunked_array([part.names for part in parts], pa.large_string()).combine_chunks()
    starts = np.cumsum([0, *(len(part) for part in parts)])
    pairs = [part.pairs + np.array([start, 0]) for part, start in zip(parts, starts, strict=False)]
    left_out: dict[str, int] = {}
    for part in parts:
        left_out |= {reason: left_out.get(reason, 0) + count for reason, count in part.left_out.items()}
    whole = Lessons(
        names,
        np.concatenate([np.zeros((0, first), np.int32), *(part.units for part in parts)]),
        np.concatenate([np.zeros((0, 2), np.int64), *pairs]),
        np.concatenate([np.zeros(0), *(part.places for part in parts)]),
        left_out,
    )
    return _once(whole)


def _once(lessons: Lessons) -> Lessons:
    codes = np.asarray(lessons.names.dictionary_encode().indices, np.int64)
    rows = np.unique(codes, return_index=True)[1]
    repeated = len(codes) - len(rows)
    left_out = {reason: count for reason, count in (*lessons.left_out.items(), ("named before", repeated)) if count}
    if not repeated:
        return replace(lessons, left_out=left_out)
    rows = np.sort(rows)
    number = np.full(len(codes), -1, np.int64)
    number[rows] = np.arange(len(rows))
    pairs = lessons.pairs[number[lessons.pairs[:, 0]] >= 0]
    pairs = np.stack([number[pairs[:, 0]], pairs[:, 1]], axis=1)
    return replace(lessons.of(rows), pairs=pairs, left_out=left_out)
