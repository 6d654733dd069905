"""The batches of a training: the order of the images, their decoding in worker processes, and their features."""

from __future__ import annotations

import signal
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import ExciteError, ImageError
from excite.jobs.executor import ctrl_c_for_parent, note
from excite.training.features import job_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from excite.tags.images import ImageSource
    from excite.training.augmentation import Views, WholeImage
    from excite.training.features import FeatureExtractor
    from excite.training.tags.dataset import TagDataset
    from excite.training.tags.model import Model

WINDOW = 8  # groups that are mixed: enough to shuffle well, few enough for sequential reading
PREFETCH = 2  # batches under way for each worker

Request = tuple[int, str, int]
"""The row of an image, its name and the number of the view."""

StepPlan = tuple[int, "NDArray[np.int64]"]
"""The number of the epoch, and the rows of this process in one step."""


def image_groups(dataset: TagDataset, images: ImageSource) -> NDArray[np.int64]:
    """The group (shard) of each image; 0 for one that is missing, which is counted when it is read."""
    if images.groups <= 1:
        return np.zeros(len(dataset), np.int64)

    def group(name: str) -> int:
        try:
            return images.group(name)
        except ImageError:
            return 0

    return np.fromiter((group(name.as_py()) for name in dataset.names), np.int64, len(dataset))


def epoch_order(groups: NDArray[np.int64], seed: int, epoch: int, window: int = WINDOW) -> NDArray[np.int64]:
    """The order of the images in an epoch, determined by the seed and the epoch's number.

    Groups come in random order; the images of ``window`` groups are shuffled together.
    """
    random = np.random.default_rng([seed, epoch])
    distinct, index = np.unique(groups, return_inverse=True)
    turns = random.permutation(len(distinct))[index] // window
    return np.lexsort((random.random(len(groups)), turns))


@dataclass(frozen=True)
class Batch:
    """The images of a step, decoded or as features.

    Attributes:
        values: [n, ...]; None where no image can be read.
        rows: of the data set.
        failures: the rows that cannot be read, and why.
    """

    values: Tensor | None
    rows: NDArray[np.int64]
    failures: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class ImageLoader:
    """Reads and augments images, in this process or in several workers; the result is the same.

    Workers are spawned, so nothing of this process is copied, and receive names, not the corpus.

    Attributes:
        images: the image source.
        views: the augmentation.
        workers: the number of processes; up to 1, this one.
    """

    images: ImageSource
    views: Views | WholeImage
    workers: int = 1
    _dataset: _ImageDataset = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_dataset", _ImageDataset(self.images, self.views))

    def __call__(self, batches: Iterable[list[Request]]) -> Iterator[Batch]:
        """The batches in order; workers live as long as the iterator."""
        from torch.utils.data import DataLoader

        several = self.workers > 1
        loader: Any = DataLoader(
            self._dataset,  # type: ignore[arg-type]  # a data set is whatever can be indexed
            batch_sampler=batches,  # an index may be anything
            num_workers=self.workers if several else 0,
            collate_fn=_stacked,
            multiprocessing_context="spawn" if several else None,
            prefetch_factor=PREFETCH if several else None,
            worker_init_fn=_start_worker if several else None,
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


@dataclass(frozen=True)
class _ImageDataset:
    """The data set of a `DataLoader`, indexed by requests; an error message in place of an unreadable image."""

    images: ImageSource
    views: Views | WholeImage

    def __getitem__(self, request: Request) -> tuple[int, Tensor | str]:
        row, name, number = request
        try:
            return row, self.views(self.images.read(name), name, (number,))[0]
        except ImageError as error:
            return row, str(error)


def _stacked(read: list[tuple[int, Tensor | str]]) -> Batch:
    good = [(row, picture) for row, picture in read if not isinstance(picture, str)]
    failures = tuple((row, reason) for row, reason in read if isinstance(reason, str))
    stacked = torch.stack([picture for _, picture in good]) if good else None
    return Batch(stacked, np.array([row for row, _ in good], np.int64), failures)


def _start_worker(_worker: int) -> None:
    """Leave Ctrl-C to the parent, which stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = note


@dataclass(frozen=True, eq=False)
class FreshViews:
    """The features of a new view of each image in each epoch, the paper's procedure: its number is the epoch's."""

    dataset: TagDataset
    loader: ImageLoader
    model: Model

    def __call__(self, plans: Iterable[StepPlan]) -> Iterator[Batch]:
        """The features for each step; images of later steps are decoded meanwhile."""
        name = self.dataset.name
        for batch in self.loader([(int(row), name(row), epoch) for row in rows] for epoch, rows in plans):
            yield batch if batch.values is None else replace(batch, values=self.model.features(batch.values))


class FixedViews:
    """The features of some views of each image, computed once; each epoch takes the next view.

    Args:
        features: [images, views, ...] of the readable images,
        rows: which these are, in order.
        pictures: the number of all images.
    """

    def __init__(self, features: Tensor, rows: NDArray[np.int64], pictures: int) -> None:
        self._features = features
        self._index = np.full(pictures, -1, np.int64)
        self._index[rows] = np.arange(len(rows))

    def __call__(self, plans: Iterable[StepPlan]) -> Iterator[Batch]:
        """The features for each step; neighbouring rows have different views, so an epoch has all kinds."""
        for epoch, rows in plans:
            read = rows[self._index[rows] >= 0]
            views = torch.from_numpy((read + epoch) % self._features.shape[1])
            chosen = self._features[torch.from_numpy(self._index[read]), views]
            yield Batch(chosen.float() if len(read) else None, read)


@dataclass(frozen=True, eq=False)
class CorpusFeatureExtractor:
    """Computes the features of the images of a corpus by their names, as work for `excite.jobs.loop.run`."""

    extractor: FeatureExtractor
    images: ImageSource

    def key(self, task: str) -> str:
        """Changes when the image, the network below its output layer or the views do."""
        return job_key(self.extractor.identity, task, self.images.state(task))

    def __call__(self, task: str) -> dict[str, Any]:
        """The features, for a `FeatureStore`."""
        return self.extractor.extract(self.images.read(task), task)
