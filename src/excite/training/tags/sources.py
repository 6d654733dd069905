"""Where the features of a step come from: views looked at once, or a new one of each picture in each epoch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import DataError
from excite.jobs.loop import run
from excite.training.features import Shelf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

    from excite.jobs import Crew
    from excite.jobs.loop import Watch
    from excite.tags.images import Pictures
    from excite.training.features import Extraction
    from excite.training.tags.batches import Decoder
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee

__all__ = ["FixedViews", "FreshViews", "Given", "NamedExtraction", "Plan", "Shelving"]

Plan = tuple[int, "NDArray[np.int64]"]
"""A step: the number of the epoch, and the rows of the lessons that this process looks at."""


@dataclass(frozen=True)
class Given:
    """What a step learns from.

    Attributes:
        features: what the output layer reads; None where no picture can be read.
        rows: of which pictures.
        failures: the rows that cannot be read, and why.
    """

    features: Tensor | None
    rows: NDArray[np.int64]
    failures: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, eq=False)
class FreshViews:
    """A new view of each picture in each epoch, the paper's way: its number is the epoch's."""

    lessons: Lessons
    decoder: Decoder
    trainee: Trainee

    def __call__(self, plans: Iterable[Plan]) -> Iterator[Given]:
        """What each step learns from; pictures of later steps are being decoded meanwhile."""
        names = self.lessons.name
        requests = ([(int(row), names(row), epoch) for row in rows] for epoch, rows in plans)
        for batch in self.decoder(requests):
            features = None if batch.pictures is None else self.trainee.features(batch.pictures)
            yield Given(features, batch.rows, batch.failures)


class FixedViews:
    """Some views of each picture, looked at once; each epoch takes the next one.

    Args:
        features: [pictures, views, ...] of those pictures that can be read,
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
    """The features of a picture, wherever the pictures lie: the work done for each name."""

    extraction: Extraction
    pictures: Pictures

    def key(self, task: str) -> str:
        """Changes when the picture, the network below its output layer or the views do."""
        facts = [self.extraction.question, task, self.pictures.state(task)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def __call__(self, task: str) -> dict[str, Any]:
        """The features, for a `Shelf`."""
        picture: Image = self.pictures.read(task)
        return self.extraction.answer(picture, task)


@dataclass(frozen=True, eq=False)
class Shelving:
    """Computes the features of pictures; what is kept on disk is not computed again.

    Attributes:
        pictures: where the pictures are.
        crew: who does the work.
        watch: shows how far it is.
    """

    pictures: Pictures
    crew: int | Crew
    watch: Watch

    def __call__(
        self, work: Extraction, lessons: Lessons, folder: Path, what: str
    ) -> tuple[Tensor, NDArray[np.int64], list[tuple[int, str]]]:
        """The features of all pictures that can be read, their rows, and the rows that cannot be read.

        Raises:
            DataError: not one can be read.
        """
        shelf, reasons = Shelf(folder), list[str]()
        names: list[str] = lessons.names.to_pylist()
        entries = run(NamedExtraction(work, self.pictures), names, shelf, workers=self.crew, failures=reasons)
        keys = {entry["picture"]: entry["key"] for entry in self.watch(entries, len(names), what)}
        failures = list(zip((row for row, name in enumerate(names) if name not in keys), reasons, strict=True))
        if not keys:
            raise DataError(f"not one of {len(names)} {what} can be read; the first: {reasons[0]}")
        rows = np.array([row for row, name in enumerate(names) if name in keys], np.int64)
        return shelf.features(list(keys.values())), rows, failures
