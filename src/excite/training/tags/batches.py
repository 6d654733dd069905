"""Pictures that are ready when a step needs them: in which order, and who decodes them."""

from __future__ import annotations

import hashlib
import json
import signal
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import DataError, ExciteError, ImageError
from excite.jobs.executor import ctrl_c_for_parent, note
from excite.jobs.loop import run
from excite.training.features import Shelf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

    from excite.jobs import Executor
    from excite.jobs.loop import Progress
    from excite.tags.images import Pictures
    from excite.training.augmentation import Views, Whole
    from excite.training.features import Extraction
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee


WINDOW = 8  # groups that are open at the same time: enough to mix, few enough to be read one after the other
AHEAD = 2  # batches on their way for each worker

Request = tuple[int, str, int]
"""An image that is asked for: its row, its name and the number of the view."""


def groups_of(lessons: Lessons, pictures: Pictures) -> NDArray[np.int64]:
    """The group of each image; one that is in none is counted when it is read."""
    if pictures.groups <= 1:
        return np.zeros(len(lessons), np.int64)

    def group(name: str) -> int:
        try:
            return pictures.group(name)
        except ImageError:
            return 0

    return np.fromiter((group(name.as_py()) for name in lessons.names), np.int64, len(lessons))


def epoch_order(groups: NDArray[np.int64], seed: int, epoch: int, window: int = WINDOW) -> NDArray[np.int64]:
    """The order of the images in an epoch, told by the seed and the epoch's number alone.

    Groups come in a random order; the images of a few of them together are shuffled. With one group that is a plain
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
    """The images of a batch.

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
    """Reads images and makes their views, in this process or in several others.

    What it gives does not depend on their number. Workers are begun anew, so nothing of this process is copied, and
    they are sent names, not the corpus.

    Attributes:
        pictures: where the images are.
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
                "a worker that reads images ended without an answer, perhaps for want of memory: use fewer "
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
    """The images that could be read, as one tensor."""
    good = [(row, picture) for row, picture in read if not isinstance(picture, str)]
    failures = tuple((row, reason) for row, reason in read if isinstance(reason, str))
    stacked = torch.stack([picture for _, picture in good]) if good else None
    return Decoded(stacked, np.array([row for row, _ in good], np.int64), failures)


def _begin(_worker: int) -> None:
    """A worker's first step: Ctrl-C is for the parent, who tells the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = note


# Where the features of a step come from: views looked at once, or a new one of each image in each epoch.

Plan = tuple[int, "NDArray[np.int64]"]
"""A step: the number of the epoch, and the rows of the lessons that this process looks at."""


@dataclass(frozen=True)
class Given:
    """What a step learns from.

    Attributes:
        features: what the output layer reads; None where no image can be read.
        rows: of which images.
        failures: the rows that cannot be read, and why.
    """

    features: Tensor | None
    rows: NDArray[np.int64]
    failures: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, eq=False)
class FreshViews:
    """A new view of each image in each epoch, the paper's way: its number is the epoch's."""

    lessons: Lessons
    decoder: Decoder
    trainee: Trainee

    def __call__(self, plans: Iterable[Plan]) -> Iterator[Given]:
        """What each step learns from; images of later steps are being decoded meanwhile."""
        names = self.lessons.name
        requests = ([(int(row), names(row), epoch) for row in rows] for epoch, rows in plans)
        for batch in self.decoder(requests):
            features = None if batch.pictures is None else self.trainee.features(batch.pictures)
            yield Given(features, batch.rows, batch.failures)


class FixedViews:
    """Some views of each image, looked at once; each epoch takes the next one.

    Args:
        features: [images, views, ...] of those images that can be read,
        rows: which these are, in order.
        pictures: how many there are in all.
    """

    def __init__(self, features: Tensor, rows: NDArray[np.int64], pictures: int) -> None:
        self._features = features
        self._places = np.full(pictures, -1, np.int64)
        self._places[rows] = np.arange(len(rows))

    def __call__(self, plans: Iterable[Plan]) -> Iterator[Given]:
        """Neighbours are at different views, so that an epoch sees all kinds."""
        for epoch, rows in plans:
            read = rows[self._places[rows] >= 0]
            views = torch.from_numpy((read + epoch) % self._features.shape[1])
            chosen = self._features[torch.from_numpy(self._places[read]), views]
            yield Given(chosen.float() if len(read) else None, read)


@dataclass(frozen=True, eq=False)
class NamedExtraction:
    """The features of an image, wherever the images lie: the work done for each name."""

    extraction: Extraction
    pictures: Pictures

    def key(self, task: str) -> str:
        """Changes when the image, the network below its output layer or the views do."""
        facts = [self.extraction.question, task, self.pictures.state(task)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def __call__(self, task: str) -> dict[str, Any]:
        """The features, for a `Shelf`."""
        picture: Image = self.pictures.read(task)
        return self.extraction.answer(picture, task)


@dataclass(frozen=True, eq=False)
class Shelving:
    """Computes the features of images; what is kept on disk is not computed again.

    Attributes:
        pictures: where the images are.
        executor: who does the work.
        progress: shows how far it is.
    """

    pictures: Pictures
    executor: int | Executor
    progress: Progress

    def __call__(
        self, work: Extraction, lessons: Lessons, folder: Path, what: str
    ) -> tuple[Tensor, NDArray[np.int64], list[tuple[int, str]]]:
        """The features of all images that can be read, their rows, and the rows that cannot be read.

        Raises:
            DataError: not one can be read.
        """
        shelf, reasons = Shelf(folder), list[str]()
        names: list[str] = lessons.names.to_pylist()
        entries = run(NamedExtraction(work, self.pictures), names, shelf, workers=self.executor, failures=reasons)
        keys = {entry["picture"]: entry["key"] for entry in self.progress(entries, len(names), what)}
        failures = list(zip((row for row, name in enumerate(names) if name not in keys), reasons, strict=True))
        if not keys:
            raise DataError(f"not one of {len(names)} {what} can be read; the first: {reasons[0]}")
        rows = np.array([row for row, name in enumerate(names) if name in keys], np.int64)
        return shelf.features(list(keys.values())), rows, failures
