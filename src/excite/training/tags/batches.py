"""Pictures that are ready when a step needs them: in which order, and who decodes them."""

from __future__ import annotations

import signal
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import ExciteError, ImageError
from excite.jobs.notes import note
from excite.jobs.processes import ctrl_c_for_parent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from excite.tags.images import Pictures
    from excite.training.augmentation import Views, Whole
    from excite.training.tags.dataset import Lessons

__all__ = ["Decoded", "Decoder", "Request", "epoch_order", "groups_of"]

WINDOW = 8  # groups that are open at the same time: enough to mix, few enough to be read one after the other
AHEAD = 2  # batches on their way for each worker

Request = tuple[int, str, int]
"""A picture that is asked for: its row, its name and the number of the view."""


def groups_of(lessons: Lessons, pictures: Pictures) -> NDArray[np.int64]:
    """The group of each picture; one that is in none is counted when it is read."""
    if pictures.groups <= 1:
        return np.zeros(len(lessons), np.int64)

    def group(name: str) -> int:
        try:
            return pictures.group(name)
        except ImageError:
            return 0

    return np.fromiter((group(name.as_py()) for name in lessons.names), np.int64, len(lessons))


def epoch_order(groups: NDArray[np.int64], seed: int, epoch: int, window: int = WINDOW) -> NDArray[np.int64]:
    """The order of the pictures in an epoch, told by the seed and the epoch's number alone.

    Groups come in a random order; the pictures of a few of them together are shuffled. With one group that is a plain
    permutation.

    Example:
        >>> epoch_order(np.array([0, 0, 1, 1]), seed=0, epoch=0, window=1).tolist()
        [1, 0, 2, 3]
    """
    random = np.random.default_rng([seed, epoch])
    distinct, index = np.unique(groups, return_inverse=True)
    turns = random.permutation(len(distinct))[index] // window
    return np.lexsort((random.random(len(groups)), turns))


@dataclass(frozen=True)
class Decoded:
    """The pictures of a batch.

    Attributes:
        pictures: [n, 3, side, side]; None where not one can be read.
        rows: which rows of the lessons they are.
        failures: the rows that cannot be read, and why.
    """

    pictures: Tensor | None
    rows: NDArray[np.int64]
    failures: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Decoder:
    """Reads pictures and makes their views, in this process or in several others.

    What it gives does not depend on their number. Workers are begun anew, so nothing of this process is copied, and
    they are sent names, not the corpus.

    Attributes:
        pictures: where the pictures are.
        views: makes the view of a number.
        workers: how many processes; up to 1, this one.
    """

    pictures: Pictures
    views: Views | Whole
    workers: int = 1
    _reading: _Reading = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reading", _Reading(self.pictures, self.views))

    def __call__(self, batches: Iterable[list[Request]]) -> Iterator[Decoded]:
        """The batches in their order; workers live as long as somebody reads."""
        from torch.utils.data import DataLoader

        several = self.workers > 1
        loader: Any = DataLoader(
            self._reading,  # type: ignore[arg-type]  # a data set is whatever can be indexed
            batch_sampler=batches,  # an index may be anything
            num_workers=self.workers if several else 0,
            collate_fn=_stacked,
            multiprocessing_context="spawn" if several else None,
            prefetch_factor=AHEAD if several else None,
            worker_init_fn=_begin if several else None,
        )
        try:
            with ctrl_c_for_parent():
                decoded = iter(loader)
            yield from decoded
        except ExciteError as error:  # of a worker, torch tells it with the worker's whole trace
            raise type(error)(str(error).strip().rpartition(f"{type(error).__name__}: ")[2]) from None
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise ExciteError(
                "a worker that reads pictures ended without an answer, perhaps for want of memory: use fewer "
                "--workers; what was learnt is kept"
            ) from None


@dataclass(frozen=True)
class _Reading:
    """What a worker does for a request."""

    pictures: Pictures
    views: Views | Whole

    def __getitem__(self, request: Request) -> tuple[int, Tensor | str]:
        row, name, number = request
        try:
            return row, self.views(self.pictures.read(name), name, (number,))[0]
        except ImageError as error:
            return row, str(error)


def _stacked(read: list[tuple[int, Tensor | str]]) -> Decoded:
    """The pictures that could be read, as one tensor."""
    good = [(row, picture) for row, picture in read if not isinstance(picture, str)]
    failures = tuple((row, reason) for row, reason in read if isinstance(reason, str))
    stacked = torch.stack([picture for _, picture in good]) if good else None
    return Decoded(stacked, np.array([row for row, _ in good], np.int64), failures)


def _begin(_worker: int) -> None:
    """A worker's first step: Ctrl-C is for the parent, who tells the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = note
