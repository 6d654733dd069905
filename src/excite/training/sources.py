"""Where the features of an epoch come from: views that were fixed once, or new ones each time."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from excite.errors import DataError
from excite.jobs.loop import run, unwatched
from excite.training.features import Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from excite.jobs import Crew
    from excite.jobs.loop import Watch
    from excite.training.examples import Example, Examples
    from excite.training.features import Extraction

__all__ = ["FixedViews", "FreshViews", "Gathering", "Lesson"]

Lesson = tuple["Tensor", "Tensor", "Tensor"]
"""Features, what is present and what is sure, as `excite.training.sgd.Fit.epoch` takes them."""


@dataclass(frozen=True)
class Gathering:
    """Computes the features of pictures, those that are kept on disk aside.

    Attributes:
        examples: the pictures, and what they show.
        workers: who does it: how many processes of this machine, or a crew.
        watch: shows how far the work is.
        failures: gets a line for each picture that cannot be read, once; it is left out.
    """

    examples: Examples
    workers: int | Crew = 1
    watch: Watch = unwatched
    failures: list[str] = field(default_factory=list)

    def __call__(self, work: Extraction, folder: Path, what: str) -> Lesson:
        """The features of all views, and the truth, of all pictures that can be read."""
        pictures, failures = self.examples.pictures, list[str]()
        shelf = Shelf(folder)
        entries = self.watch(run(work, pictures, shelf, workers=self.workers, failures=failures), len(pictures), what)
        keys = {entry["picture"]: entry["key"] for entry in entries}
        self.failures.extend(failure for failure in failures if failure not in self.failures)
        if not keys:
            reason = f"none of {len(pictures)} can be read; the first: {failures[0]}" if failures else "there are none"
            raise DataError(f"no pictures to learn from: {reason}")
        return shelf.features(list(keys.values())), *self._truth([p for p in pictures if p.name in keys])

    def _truth(self, pictures: list[Example]) -> tuple[Tensor, Tensor]:
        categories = self.examples.categories
        present = torch.tensor([[float(one in picture.present) for one in categories] for picture in pictures])
        unsure = torch.tensor([[float(one in picture.unsure) for one in categories] for picture in pictures])
        return present, 1 - unsure


class FixedViews:
    """All views are looked at once, before the first epoch; each epoch takes the next one of each picture."""

    def __init__(self, work: Extraction, gather: Gathering, folder: Path) -> None:
        self._features, self._present, self._sure = gather(work, folder, "pictures")

    def __call__(self, epoch: int) -> Lesson:
        """Neighbours are at different views, so that an epoch sees all kinds."""
        pictures, views = self._features.shape[:2]
        chosen = self._features[torch.arange(pictures), (torch.arange(pictures) + epoch) % views]
        return chosen, self._present, self._sure


class FreshViews:
    """Every epoch looks at a new view of each picture, whose number is the epoch's."""

    def __init__(self, work: Extraction, gather: Gathering, folder: Path) -> None:
        self._work, self._gather, self._folder = work, gather, folder
        self._failed: int | None = None  # pictures that could not be read in the epoch before

    def __call__(self, epoch: int) -> Lesson:
        """The features of an earlier epoch are no longer needed; those of this one, if it was stopped, are.

        Raises:
            DataError: a picture is gone that the epoch before has read. To go on would be another training.
        """
        here = self._folder / f"epoch-{epoch}"
        for folder in self._folder.glob("epoch-*"):
            if folder != here:
                shutil.rmtree(folder)
        work = replace(self._work, numbers=(epoch,))
        features, present, sure = self._gather(work, here, f"epoch {epoch + 1}: pictures")
        failures = self._gather.failures
        if self._failed is not None and len(failures) > self._failed:
            raise DataError(f"a picture got lost while it is learnt from: {failures[-1]}; put it back, and start again")
        self._failed = len(failures)
        return features[:, 0], present, sure
