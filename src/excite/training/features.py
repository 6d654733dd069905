"""The input of the output layer ("features") of each image, computed once and stored on disk; resumable."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from excite.errors import DataError, ExciteError, ModelError
from excite.images import file_state, read_image
from excite.io.cache import fingerprint
from excite.io.locks import Lock
from excite.jobs import ResultStore
from excite.jobs.loop import run
from excite.models.classifier import network_identity
from excite.training.output_layer import features_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from PIL import Image
    from torch import Tensor, nn

    from excite.jobs import Entry, Executor
    from excite.jobs.loop import Progress, Work
    from excite.training.augmentation import Views, WholeImage
    from excite.training.examples import Example

Task = TypeVar("Task")


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """Computes the features of some views of each image, as work for `excite.jobs.loop.run`.

    Attributes:
        network: the classifier; the weights of its output layer do not matter.
        layer: the name of its output layer.
        views: the augmentation.
        numbers: of the views.
    """

    network: nn.Module
    layer: str
    views: Views | WholeImage
    numbers: tuple[int, ...]
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        facts = [network_identity(self.network, self.layer), repr(self.views), self.numbers]
        object.__setattr__(self, "identity", json.dumps(facts))

    def key(self, task: Example) -> str:
        """Changes when the image, the network below its output layer or the views do."""
        return job_key(self.identity, task.name, file_state(task.path))

    def __call__(self, task: Example) -> dict[str, Any]:
        """The features of an image, for a `FeatureStore`."""
        return self.extract(read_image(task.path), task.name)

    def extract(self, picture: Image.Image, name: str) -> dict[str, Any]:
        """The features of a decoded image, in half precision."""
        features = features_of(self.network, self.layer, self.views(picture, name, self.numbers)).half()
        if not features.isfinite().all():
            raise ModelError(f"the features of {name!r} are beyond all numbers: is it a network with weights?")
        return {"picture": name, "features": features.numpy()}


class FeatureStore(ResultStore):
    """Features on disk: their values one after the other in ``features.bin``, their offsets in ``index.jsonl``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "index.jsonl", required=("picture", "start", "shape"))
        self.numbers = folder / "features.bin"
        self._lock = Lock(folder, trace=False)

    def read(self) -> dict[str, Entry]:
        """The index, by key; entries that point behind the end of ``features.bin`` are removed.

        Otherwise features written later at that offset would be attributed to the wrong image.
        """
        indexed = super().read()
        size = self.numbers.stat().st_size if self.numbers.is_file() else 0
        entries = {key: entry for key, entry in indexed.items() if _is_valid(entry) and _end(entry) <= size}
        if len(entries) < len(indexed):
            self.rewrite(entries)
        return entries

    def add(self, entry: Entry) -> None:
        """Store the features of one more image: the values first, so that the index is always true."""
        features: np.ndarray[Any, np.dtype[np.float16]] = entry["features"]
        begun = self._lock.take()  # two runs would interleave their values
        try:
            with self.numbers.open("ab") as file:
                if begun:  # drop values without an index entry, left by a kill
                    file.truncate(max(map(_end, self.read().values()), default=0))
                    file.seek(0, os.SEEK_END)
                start = file.tell()
                file.write(features.tobytes())
        except OSError as error:
            raise ExciteError(f"cannot write {str(self.numbers)!r}: {error.strerror or error}; has it room?") from None
        super().add({"key": entry["key"], "picture": entry["picture"], "start": start, "shape": features.shape})

    def close(self) -> None:
        """Write the index, and release the lock."""
        try:
            super().close()
        finally:
            self._lock.release()

    def features(self, keys: Sequence[str]) -> Tensor:
        """The features of these images, [images, views, ...], in half precision."""
        entries = super().read()
        shape = tuple(entries[keys[0]]["shape"])
        stacked = torch.empty(len(keys), *shape, dtype=torch.float16)
        for row, key in enumerate(keys):
            read = np.fromfile(self.numbers, np.float16, math.prod(shape), offset=entries[key]["start"])
            stacked[row] = torch.from_numpy(read.reshape(shape))
        return stacked


def _is_valid(entry: Entry) -> bool:
    """Whether offset and shape are whole numbers; a damaged entry is computed again."""
    start, shape = entry["start"], entry["shape"]
    numbers = [start, *shape] if isinstance(shape, list) else [None]
    return all(type(number) is int and number >= 0 for number in numbers)


def _end(entry: Entry) -> int:
    """The offset behind the values of an entry, in bytes."""
    end: int = entry["start"] + 2 * math.prod(entry["shape"])
    return end


def extract_features(
    work: Work[Task],
    tasks: Sequence[Task],
    folder: Path,
    what: str,
    failures: list[str],
    workers: int | Executor,
    progress: Progress,
) -> tuple[list[str], Tensor]:
    """The names of all images that can be read, and their features [images, views, ...].

    Features in the `FeatureStore` of the folder are not computed again. ``failures`` receives a line for each image
    that cannot be read; ``what`` names the images in messages.

    Raises:
        DataError: no image can be read.
    """
    if not tasks:
        raise DataError("there are no images to learn from")
    store, failed = FeatureStore(folder), list[str]()
    entries = progress(run(work, tasks, store, workers=workers, failures=failed), len(tasks), what)
    keys = {entry["picture"]: entry["key"] for entry in entries}
    failures.extend(failed)
    if not keys:
        raise DataError(f"none of {len(tasks)} {what} can be read; the first: {failed[0]}")
    return list(keys), store.features(list(keys.values()))


def job_key(*facts: Any) -> str:
    """A hash of all facts that a result depends on."""
    return fingerprint(facts, digits=32)
