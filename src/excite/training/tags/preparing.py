"""What a training reads: the source of its steps, and the pictures kept aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from excite.models import Preprocess
from excite.training.augmentation import Views, Whole
from excite.training.features import Extraction
from excite.training.tags.batches import Decoder
from excite.training.tags.sources import FixedViews, FreshViews, Shelving
from excite.training.tags.validation import Aside

if TYPE_CHECKING:
    from pathlib import Path

    from excite.jobs.loop import Watch
    from excite.models import Classifier
    from excite.tags.images import Pictures
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee
    from excite.training.tags.options import Options

__all__ = ["Preparing"]

LEARNT, ASIDE = "features/views", "features/held-out"


@dataclass(eq=False)
class Preparing:
    """Prepares features before the first step, where they are looked at once.

    With several processes the first one computes them and the others read what it has written.

    Attributes:
        trainee: the network with its new output layer.
        base: the network with its own: the layers below are the same, and it is smaller to send to workers.
        pictures: where the pictures are.
        out: the folder in which features are kept.
        options: how to train.
        workers: how many processes do the work.
        watch: shows how far it is.
        failures: rows that cannot be read, and why; those of pictures kept aside are negative.
    """

    trainee: Trainee
    base: Classifier
    pictures: Pictures
    out: Path
    options: Options
    workers: int
    watch: Watch
    failures: list[tuple[int, str]] = field(default_factory=list)

    def source(self, lessons: Lessons) -> FreshViews | FixedViews:
        """Where the features of the steps come from."""
        views = Views(self._preprocess, self.options.seed)
        if not self.options.views:
            return FreshViews(lessons, Decoder(self.pictures, views, self.workers), self.trainee)
        numbers = tuple(range(self.options.views))
        features, rows, failures = self._shelved(views, numbers, lessons, LEARNT, "pictures")
        self.failures += failures
        return FixedViews(features, rows, len(lessons))

    def aside(self, lessons: Lessons) -> Aside:
        """The pictures kept aside, each seen as a whole."""
        whole = Whole(self._preprocess)
        kept = None
        if self.options.views and len(lessons):
            features, rows, failures = self._shelved(whole, (0,), lessons, ASIDE, "pictures kept aside")
            self.failures += [(~row, reason) for row, reason in failures]
            kept = features[:, 0], rows
        return Aside(lessons, self.trainee, Decoder(self.pictures, whole, self.workers), kept)

    @property
    def _preprocess(self) -> Preprocess:
        assert isinstance(self.base.preprocess, Preprocess)  # noqa: S101 - or nothing could be prepared
        return self.base.preprocess

    def _shelved(self, views: Views | Whole, numbers: tuple[int, ...], lessons: Lessons, folder: str, what: str) -> Any:
        processes = self.trainee.processes
        shelve = Shelving(self.pictures, max(1, self.workers), self.watch)
        work = Extraction(self.base.module, self.trainee.layer, views, numbers)
        if not processes.first:
            processes.wait()
        answer = shelve(work, lessons, self.out / folder, what)
        if processes.first:
            processes.wait()
        return answer
