"""The images and tags of a corpus as arrays: six million images take a few hundred megabytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.jobs.parquet import arrow
from excite.training.examples import uniform_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.tags.corpus import Corpus
    from excite.tags.dictionary import Dictionary

FIRST = 5  # tags of an image that are learnt, as in the paper: people write the most telling ones first


@dataclass(frozen=True, eq=False)
class TagDataset:
    """Images and their tags.

    Attributes:
        names: of the images, a distinct Arrow array of strings.
        units: [images, first], the outputs of their first tags; -1 where there are fewer.
        pairs: [n, 2], every (image, output) of all tags listed; for validation images only.
        fractions: [images], the `uniform_hash` of each name.
        left_out: the number of omitted rows of the corpus, by reason.
    """

    names: Any
    units: NDArray[np.int32]
    pairs: NDArray[np.int64]
    fractions: NDArray[np.float64]
    left_out: dict[str, int]

    def __len__(self) -> int:
        return len(self.units)

    def name(self, row: int) -> str:
        """The name of an image."""
        name: str = self.names[row].as_py()
        return name

    def of(self, rows: NDArray[np.int64]) -> TagDataset:
        """Some of the images, in this order; without the pairs."""
        nothing = np.zeros((0, 2), np.int64)
        return replace(
            self, names=self.names.take(rows), units=self.units[rows], fractions=self.fractions[rows], pairs=nothing
        )

    def digest(self) -> str:
        """Changes when the images, their order or their tags do."""
        content = hashlib.blake2b(self.fractions.tobytes(), digest_size=16)
        content.update(np.ascontiguousarray(self.units).data)
        content.update(self.pairs.tobytes())
        return content.hexdigest()

    def counts(self, tags: int) -> NDArray[np.int64]:
        """The number of images that have each tag among their first."""
        return np.bincount(self.units[self.units >= 0], minlength=tags)


def read_tag_dataset(
    corpus: Corpus, dictionary: Dictionary, first: int = FIRST, held_out: float = 0
) -> tuple[TagDataset, TagDataset]:
    """The training and the validation images of a corpus.

    Of the first tags of an image, as listed, those in the dictionary are learnt, each once. Images without any of them,
    and rows without a name or with a repeated one, are left out.

    Args:
        corpus: the images and their tags.
        dictionary: the tags to learn.
        first: the number of an image's tags that count.
        held_out: the share of validation images, chosen by the hash of their names.

    Raises:
        DataError: nothing is left to learn from.
    """
    wanted = arrow().array(dictionary.tags)
    whole = _joined([_part(batch, wanted, first, held_out) for batch in corpus.batches()], first)
    aside = whole.fractions < held_out
    training, validation = (whole.of(np.flatnonzero(chosen)) for chosen in (~aside, aside))
    if not len(training):
        about = ", ".join(f"{count} {reason}" for reason, count in whole.left_out.items()) or "no rows"
        raise DataError(
            f"nothing in {corpus.path} teaches a tag of the dictionary: {corpus.rows} rows, {about}, "
            f"{aside.sum()} held out"
        )
    numbers = np.cumsum(aside) - 1  # of an image among the validation images
    return training, replace(validation, pairs=np.stack([numbers[whole.pairs[:, 0]], whole.pairs[:, 1]], axis=1))


def _part(batch: Any, wanted: Any, first: int, held_out: float) -> TagDataset:
    """The images of a record batch; only their names become Python objects."""
    pa = arrow()
    rows, positions, units = _flat(batch.column("tags"), wanted)
    table = np.full((batch.num_rows, first), -1, np.int32)
    early = positions < first
    table[rows[early], positions[early]] = units[early]
    for position in range(1, first):  # each tag once
        table[(table[:, :position] == table[:, position, None]).any(1), position] = -1
    named = np.asarray(pa.compute.is_valid(batch.column("image")))
    useful = named & (table >= 0).any(1)
    kept = np.flatnonzero(useful)
    names = batch.column("image").take(pa.array(kept)).cast(pa.large_string())
    fractions = np.array([uniform_hash(name) for name in names.to_pylist()], np.float64)
    left_out = {"without a name": int((~named).sum()), "without a tag to learn": int((named & ~useful).sum())}
    aside = np.full(batch.num_rows, -1, np.int64)
    aside[kept] = np.where(fractions < held_out, np.arange(len(kept)), -1)
    listed = (aside[rows] >= 0) & (units >= 0)
    pairs = np.unique(aside[rows][listed] * len(wanted) + units[listed])  # as one number each: quicker to sort
    return TagDataset(names, table[kept], np.stack(np.divmod(pairs, len(wanted)), axis=1), fractions, left_out)


def _flat(tags: Any, wanted: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """For every listed tag its row, its position in the list and its output; only distinct tags are looked up."""
    pc = arrow().compute
    lengths = np.asarray(pc.fill_null(pc.list_value_length(tags), 0), np.int64)
    encoded = tags.flatten().dictionary_encode()
    found = pc.fill_null(pc.index_in(encoded.dictionary, value_set=wanted), -1)
    known = np.append(np.asarray(found, np.int32), np.int32(-1))  # the last one is for null tags
    units = known[np.asarray(pc.fill_null(encoded.indices, -1))]
    rows = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return rows, positions, units


def _joined(parts: list[TagDataset], first: int) -> TagDataset:
    """All parts as one, each name once: the first row of an image counts."""
    names = arrow().chunked_array([part.names for part in parts], arrow().large_string()).combine_chunks()
    starts = np.cumsum([0, *(len(part) for part in parts)])
    pairs = [part.pairs + np.array([start, 0]) for part, start in zip(parts, starts, strict=False)]
    left_out: dict[str, int] = {}
    for part in parts:
        left_out |= {reason: left_out.get(reason, 0) + count for reason, count in part.left_out.items()}
    whole = TagDataset(
        names,
        np.concatenate([np.zeros((0, first), np.int32), *(part.units for part in parts)]),
        np.concatenate([np.zeros((0, 2), np.int64), *pairs]),
        np.concatenate([np.zeros(0), *(part.fractions for part in parts)]),
        left_out,
    )
    return _without_repeated(whole)


def _without_repeated(whole: TagDataset) -> TagDataset:
    codes = np.asarray(whole.names.dictionary_encode().indices, np.int64)
    rows = np.unique(codes, return_index=True)[1]
    repeated = len(codes) - len(rows)
    left_out = {reason: count for reason, count in (*whole.left_out.items(), ("named before", repeated)) if count}
    if not repeated:
        return replace(whole, left_out=left_out)
    rows = np.sort(rows)
    number = np.full(len(codes), -1, np.int64)
    number[rows] = np.arange(len(rows))
    pairs = whole.pairs[number[whole.pairs[:, 0]] >= 0]
    pairs = np.stack([number[pairs[:, 0]], pairs[:, 1]], axis=1)
    return replace(whole.of(rows), pairs=pairs, left_out=left_out)
