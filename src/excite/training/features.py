"""What an output layer reads, computed image by image and kept on disk: killed and started again, it goes on."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import DataError, ExciteError, ImageError, ModelError
from excite.images import read_image
from excite.io.locks import Lock
from excite.jobs import JsonLinesStore
from excite.jobs.loop import no_progress, run
from excite.models.classifier import network_identity
from excite.training.output_layer import features_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from PIL import Image
    from torch import Tensor, nn

    from excite.jobs import Entry, Executor
    from excite.jobs.loop import Progress
    from excite.training.augmentation import Views, Whole
    from excite.training.examples import Example, Examples


@dataclass(frozen=True, eq=False)
class Extraction:
    """The work done for each image: the features of some of its views.

    Attributes:
        network: the classifier; its output layer may be any.
        layer: the name of that layer.
        views: makes the views,
        numbers: of these numbers.
    """

    network: nn.Module
    layer: str
    views: Views | Whole
    numbers: tuple[int, ...]
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = [network_identity(self.network, self.layer), repr(self.views), self.numbers]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Example) -> str:
        """Changes when the image, the network below its output layer or the views do."""
        facts = [self.question, task.name, state_of(task.path)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def __call__(self, task: Example) -> dict[str, Any]:
        """The features of an image, for a `Shelf`."""
        return self.answer(read_image(task.path), task.name)

    def answer(self, picture: Image.Image, name: str) -> dict[str, Any]:
        """The same for an image that was read."""
        pictures = self.views(picture, name, self.numbers)
        features = features_of(self.network, self.layer, pictures).half()  # more digits change no classifier
        if not features.isfinite().all():
            raise ModelError(f"the features of {name!r} are beyond all numbers: is it a network with weights?")
        return {"picture": name, "features": features.numpy()}


class Shelf(JsonLinesStore):
    """Where features are kept: their numbers one after the other in a file, and a ledger that says what is where."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "index.jsonl", required=("picture", "start", "shape"))
        self.numbers = folder / "features.bin"
        self._lock = Lock(folder, trace=False)

    def read(self) -> dict[str, Entry]:
        """The images whose features are there, by key; lines about numbers that got lost are forgotten.

        Otherwise those that come later would lie where such a line says, and be taken for others.
        """
        noted = super().read()
        size = self.numbers.stat().st_size if self.numbers.is_file() else 0
        entries = {key: entry for key, entry in noted.items() if _is_place(entry) and _end(entry) <= size}
        if len(entries) < len(noted):
            self.rewrite(entries)
        return entries

    def add(self, entry: Entry) -> None:
        """Keep the features of one more image; first the numbers, so that every line is true."""
        features: np.ndarray[Any, np.dtype[np.float16]] = entry["features"]
        begun = self._lock.take()  # of two runs each would mistake the other's numbers for its own
        try:
            with self.numbers.open("ab") as file:
                if begun:  # what a kill left without a line is of no use
                    file.truncate(max(map(_end, self.read().values()), default=0))
                    file.seek(0, os.SEEK_END)
                start = file.tell()
                file.write(features.tobytes())
        except OSError as error:
            raise ExciteError(f"cannot write {str(self.numbers)!r}: {error.strerror or error}; has it room?") from None
        super().add({"key": entry["key"], "picture": entry["picture"], "start": start, "shape": features.shape})

    def close(self) -> None:
        """Let others add features."""
        self._lock.release()

    def features(self, keys: Sequence[str]) -> Tensor:
        """The features of these images, [images, views, ...], in half precision."""
        entries = super().read()
        shape = tuple(entries[keys[0]]["shape"])
        stacked = torch.empty(len(keys), *shape, dtype=torch.float16)
        for place, key in enumerate(keys):
            read = np.fromfile(self.numbers, np.float16, math.prod(shape), offset=entries[key]["start"])
            stacked[place] = torch.from_numpy(read.reshape(shape))
        return stacked


def _is_place(entry: Entry) -> bool:
    """Whether an entry says where features are; a damaged one says anything, and they are computed again."""
    start, shape = entry["start"], entry["shape"]
    numbers = [start, *shape] if isinstance(shape, list) else [None]
    return all(type(number) is int and number >= 0 for number in numbers)


def _end(entry: Entry) -> int:
    """Where the numbers of an entry end, in bytes."""
    end: int = entry["start"] + 2 * math.prod(entry["shape"])
    return end


def state_of(path: Path) -> list[Any]:
    """What changes when an image does."""
    try:
        state = path.stat()
    except OSError as error:
        raise ImageError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    return [str(path.resolve()), state.st_mtime_ns, state.st_size]


# Where the features of an epoch come from: views that were fixed once, or new ones each time.

Lesson = tuple["Tensor", "Tensor", "Tensor"]
"""Features, what is present and what is sure, as `excite.training.sgd.Fit.epoch` takes them."""


@dataclass(frozen=True)
class Gathering:
    """Computes the features of images, those that are kept on disk aside.

    Attributes:
        examples: the images, and what they show.
        workers: who does it: how many processes of this machine, or a crew.
        progress: shows how far the work is.
        failures: gets a line for each image that cannot be read, once; it is left out.
    """

    examples: Examples
    workers: int | Executor = 1
    progress: Progress = no_progress
    failures: list[str] = field(default_factory=list)

    def __call__(self, work: Extraction, folder: Path, what: str) -> Lesson:
        """The features of all views, and the truth, of all images that can be read."""
        pictures, failures = self.examples.pictures, list[str]()
        shelf = Shelf(folder)
        entries = self.progress(
            run(work, pictures, shelf, workers=self.workers, failures=failures), len(pictures), what
        )
        keys = {entry["picture"]: entry["key"] for entry in entries}
        self.failures.extend(failure for failure in failures if failure not in self.failures)
        if not keys:
            reason = f"none of {len(pictures)} can be read; the first: {failures[0]}" if failures else "there are none"
            raise DataError(f"no images to learn from: {reason}")
        return shelf.features(list(keys.values())), *self._truth([p for p in pictures if p.name in keys])

    def _truth(self, pictures: list[Example]) -> tuple[Tensor, Tensor]:
        categories = self.examples.categories
        present = torch.tensor([[float(one in picture.present) for one in categories] for picture in pictures])
        unsure = torch.tensor([[float(one in picture.unsure) for one in categories] for picture in pictures])
        return present, 1 - unsure


class FixedViews:
    """All views are looked at once, before the first epoch; each epoch takes the next one of each image."""

    def __init__(self, work: Extraction, gather: Gathering, folder: Path) -> None:
        self._features, self._present, self._sure = gather(work, folder, "pictures")

    def __call__(self, epoch: int) -> Lesson:
        """Neighbours are at different views, so that an epoch sees all kinds."""
        pictures, views = self._features.shape[:2]
        chosen = self._features[torch.arange(pictures), (torch.arange(pictures) + epoch) % views]
        return chosen, self._present, self._sure


class FreshViews:
    """Every epoch looks at a new view of each image, whose number is the epoch's."""

    def __init__(self, work: Extraction, gather: Gathering, folder: Path) -> None:
        self._work, self._gather, self._folder = work, gather, folder
        self._failed: int | None = None  # images that could not be read in the epoch before

    def __call__(self, epoch: int) -> Lesson:
        """The features of an earlier epoch are no longer needed; those of this one, if it was stopped, are.

        Raises:
            DataError: an image is gone that the epoch before has read. To go on would be another training.
        """
        here = self._folder / f"epoch-{epoch}"
        for folder in self._folder.glob("epoch-*"):
            if folder != here:
                shutil.rmtree(folder)
        work = replace(self._work, numbers=(epoch,))
        features, present, sure = self._gather(work, here, f"epoch {epoch + 1}: images")
        failures = self._gather.failures
        if self._failed is not None and len(failures) > self._failed:
            raise DataError(f"an image got lost while it is learnt from: {failures[-1]}; put it back, and start again")
        self._failed = len(failures)
        return features[:, 0], present, sure
