"""The images and tags of a corpus as arrays, six million in a few hundred megabytes, and their batches in training."""

from __future__ import annotations

import hashlib
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from excite.errors import DataError, ExciteError, ImageError
from excite.jobs.executor import ctrl_c_for_parent, note
from excite.jobs.parquet import arrow
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary
from excite.tags.images import ImageSource
from excite.training.examples import uniform_hash
from excite.training.features import Views, WholeImage
from excite.training.tags.model import Distributed

FIRST = 5  # tags of an image that are learnt, as in the paper: people write the most telling ones first
WINDOW = 8  # groups that are mixed: enough to shuffle well, few enough for sequential reading

Request = tuple[int, str, int]
"""The row of an image, its name and the number of the view."""

StepPlan = tuple[int, "NDArray[np.int64]"]
"""The number of the epoch, and the rows of this process in one step."""


@dataclass(frozen=True, eq=False)
class TagDataset:
    """Images and their tags."""

    names: Any  # of the images, a distinct Arrow array of strings
    units: NDArray[np.int32]  # [images, first], the outputs of their first tags; -1 where there are fewer
    pairs: NDArray[np.int64]  # [n, 2], every (image, output) of all tags listed; for validation images only
    fractions: NDArray[np.float64]  # [images], the `uniform_hash` of each name
    left_out: dict[str, int]  # the number of omitted rows of the corpus, by reason

    def __len__(self) -> int:
        return len(self.units)

    def requests(self, rows: NDArray[np.int64], number: int) -> list[Request]:
        """One view of each of these images."""
        return [(int(row), self.names[row].as_py(), number) for row in rows]

    def of(self, rows: NDArray[np.int64]) -> TagDataset:
        """Some of the images, in increasing order, with their pairs."""
        number = np.full(len(self), -1, np.int64)
        number[rows] = np.arange(len(rows))
        pairs = self.pairs[number[self.pairs[:, 0]] >= 0]
        pairs = np.stack([number[pairs[:, 0]], pairs[:, 1]], axis=1)
        return replace(
            self, names=self.names.take(rows), units=self.units[rows], fractions=self.fractions[rows], pairs=pairs
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

    def groups(self, images: ImageSource) -> NDArray[np.int64]:
        """The group (shard) of each image; 0 for one that is missing, which is counted when it is read."""
        if images.groups <= 1:
            return np.zeros(len(self), np.int64)

        def group(name: str) -> int:
            try:
                return images.group(name)
            except ImageError:
                return 0

        return np.fromiter((group(name.as_py()) for name in self.names), np.int64, len(self))


def read_tag_dataset(
    corpus: Corpus, dictionary: Dictionary, first: int = FIRST, held_out: float = 0
) -> tuple[TagDataset, TagDataset]:
    """The training images of a corpus, and a share of validation images, chosen by the hash of their names.

    Of the first tags of an image, as listed, those in the dictionary are learnt, each once. Images without any of them,
    and rows without a name or with a repeated one, are left out.
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
    return training, validation


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
    codes = np.asarray(names.dictionary_encode().indices, np.int64)
    rows = np.sort(np.unique(codes, return_index=True)[1])
    left_out = {
        reason: sum(part.left_out[reason] for part in parts) for reason in ("without a name", "without a tag to learn")
    }
    left_out["named before"] = len(codes) - len(rows)
    whole = TagDataset(
        names,
        np.concatenate([np.zeros((0, first), np.int32), *(part.units for part in parts)]),
        np.concatenate([np.zeros((0, 2), np.int64), *pairs]),
        np.concatenate([np.zeros(0), *(part.fractions for part in parts)]),
        {reason: count for reason, count in left_out.items() if count},
    )
    return whole.of(rows) if left_out["named before"] else whole


# Batches.


def epoch_order(groups: NDArray[np.int64], seed: int, epoch: int, window: int = WINDOW) -> NDArray[np.int64]:
    """The order of the images in an epoch: groups in random order, those of ``window`` groups shuffled together."""
    random = np.random.default_rng([seed, epoch])
    distinct, index = np.unique(groups, return_inverse=True)
    turns = random.permutation(len(distinct))[index] // window
    return np.lexsort((random.random(len(groups)), turns))


def batch_sampler(
    groups: NDArray[np.int64], seed: int, batch: int, epochs: int, step: int, processes: Distributed
) -> Iterator[StepPlan]:
    """All steps of a training behind the first ``step``, with this process's share of the images of each."""
    epoch_steps = -(-len(groups) // batch)
    for epoch in range(step // epoch_steps, epochs):
        order = epoch_order(groups, seed, epoch)
        for start in range(max(step - epoch * epoch_steps, 0) * batch, len(groups), batch):
            yield epoch, order[start : start + batch][processes.rank :: processes.size]


@dataclass(frozen=True)
class Batch:
    """The images of a step, decoded or as features."""

    values: Tensor | None  # [n, ...]; None where no image can be read
    rows: NDArray[np.int64]  # of the data set
    failures: tuple[tuple[int, str], ...] = ()  # the rows that cannot be read, and why

    def pin_memory(self) -> Batch:
        """The same in memory from which a GPU can copy while it computes; the `DataLoader` calls it."""
        return self if self.values is None else replace(self, values=self.values.pin_memory())

    @classmethod
    def of(cls, read: list[tuple[int, Tensor | str]]) -> Batch:
        """From each row and its image, or an error message in its place."""
        good = [(row, picture) for row, picture in read if not isinstance(picture, str)]
        failures = tuple((row, reason) for row, reason in read if isinstance(reason, str))
        stacked = torch.stack([picture for _, picture in good]) if good else None
        return cls(stacked, np.array([row for row, _ in good], np.int64), failures)


@dataclass(frozen=True)
class ImageLoader:
    """Reads and augments images by a `DataLoader`, in this process or in spawned workers; the result is the same."""

    images: ImageSource  # the image source
    views: Views | WholeImage  # the augmentation
    workers: int = 1  # the number of processes; up to 1, this one

    def __getitem__(self, request: Request) -> tuple[int, Tensor | str]:
        row, name, number = request
        try:
            return row, self.views(self.images.read(name), name, (number,))[0]
        except ImageError as error:
            return row, str(error)

    def __call__(self, batches: Iterable[list[Request]]) -> Iterator[Batch]:
        """The batches in order; workers live as long as the iterator."""
        from torch.utils.data import DataLoader

        several: dict[str, Any] = {
            "num_workers": self.workers,
            "multiprocessing_context": "spawn",
            "prefetch_factor": 2,  # batches under way for each worker
            "worker_init_fn": _start_worker,
        }
        loader: Any = DataLoader(
            self,  # type: ignore[arg-type]  # a data set is whatever can be indexed
            batch_sampler=batches,  # an index may be anything
            collate_fn=Batch.of,
            pin_memory=torch.cuda.is_available(),
            **(several if self.workers > 1 else {}),
        )
        try:
            with ctrl_c_for_parent():
                loaded = iter(loader)
            yield from loaded
        except ExciteError as error:  # torch adds the worker's traceback to the message
            raise type(error)(str(error).strip().rpartition(f"{type(error).__name__}: ")[2]) from None
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise ExciteError(
                "a worker that reads images ended without an answer, perhaps for want of memory: use fewer "
                "--workers; what was learnt is kept"
            ) from None


def _start_worker(_worker: int) -> None:
    """Leave Ctrl-C to the parent, which stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = note


def fresh_views(
    dataset: TagDataset, loader: ImageLoader, features: Callable[[Tensor], Tensor], plans: Iterable[StepPlan]
) -> Iterator[Batch]:
    """The features of a new view of each image in each epoch, the paper's procedure: its number is the epoch's."""
    for batch in loader(dataset.requests(rows, epoch) for epoch, rows in plans):
        yield batch if batch.values is None else replace(batch, values=features(batch.values))


def fixed_views(
    features: Tensor, readable: NDArray[np.int64], pictures: int, plans: Iterable[StepPlan]
) -> Iterator[Batch]:
    """Features that were computed once, [images, views, ...] of the readable ones; each epoch takes the next view."""
    index = np.full(pictures, -1, np.int64)
    index[readable] = np.arange(len(readable))
    for epoch, rows in plans:
        read = rows[index[rows] >= 0]
        views = torch.from_numpy((read + epoch) % features.shape[1])
        chosen = features[torch.from_numpy(index[read]), views]
        yield Batch(chosen.float() if len(read) else None, read)
