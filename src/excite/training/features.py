"""Training views of images, and the input of the output layer ("features") for them, stored on disk; resumable."""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from excite.errors import DataError, ExciteError, ModelError
from excite.images import file_state, read_image
from excite.io.cache import fingerprint
from excite.io.files import Lock
from excite.jobs import Entry, Executor, ResultStore
from excite.jobs.loop import Progress, run
from excite.models import Preprocess
from excite.models.classifier import network_identity
from excite.tags.images import ImageSource
from excite.training.examples import Example
from excite.training.output_layer import features_of

MARGIN = 256 / 224  # side of the square / side of the crop, as in the paper
MAX_SIDE = 2048  # larger images are reduced first; the square of a long strip would exhaust memory


@dataclass(frozen=True)
class Views:
    """Random crops and flips, determined by the seed, the image's name and the number of the view."""

    preprocess: Preprocess  # the classifier's preprocessing; a view is a square of its shorter side
    seed: int = 0  # of the random numbers

    def __call__(self, picture: Image.Image, name: str, numbers: Sequence[int]) -> Tensor:
        """The views of these numbers, [numbers, 3, side, side]."""
        side = self.preprocess.shorter_side
        square = replace(self.preprocess, shorter_side=round(side * MARGIN), square=True, multiple=1)
        whole = square(mirrored_square(picture))
        return torch.stack([self._view(whole, name, number) for number in numbers])

    def _view(self, whole: Tensor, name: str, number: int) -> Tensor:
        digest = hashlib.blake2b(f"{self.seed} {number} {name}".encode(errors="surrogateescape")).digest()
        random = np.random.default_rng(int.from_bytes(digest, "big"))
        side = self.preprocess.shorter_side
        top, left = (int(random.integers(whole.shape[1] - side + 1)) for _ in range(2))
        crop = whole[:, top : top + side, left : left + side]
        return crop.flip(-1) if random.integers(2) else crop

    def of_noise(self) -> Tensor:
        """Two views of uniform noise, to observe a network's forward pass."""
        noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
        return self(Image.fromarray(noise), "noise", (0, 1))


@dataclass(frozen=True)
class WholeImage:
    """The deterministic view for validation: the whole image, reflected to a square as in training."""

    preprocess: Preprocess

    def __call__(self, picture: Image.Image, _name: str, numbers: Sequence[int]) -> Tensor:
        """The same view for each number, [numbers, 3, side, side]."""
        square = replace(self.preprocess, square=True, multiple=1)
        return torch.stack([square(mirrored_square(picture))] * len(numbers))


def mirrored_square(picture: Image.Image) -> Image.Image:
    """Pad the image to a square by reflection along its longer sides."""
    picture = picture.copy()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    width, height = picture.size
    missing = [max(width, height) - side for side in (height, width)]
    padding = [(lack // 2, lack - lack // 2) for lack in missing]
    return Image.fromarray(np.pad(np.asarray(picture), [*padding, (0, 0)], mode="symmetric"))


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """Computes the features of some views of each image, as work for `excite.jobs.loop.run`."""

    network: nn.Module  # the classifier; the weights of its output layer do not matter
    layer: str  # the name of its output layer
    views: Views | WholeImage  # the augmentation
    numbers: tuple[int, ...]  # of the views
    images: ImageSource | None = None  # of a corpus, whose tasks are names; else tasks are examples

    @cached_property
    def identity(self) -> str:
        """Of the network and the views."""
        return json.dumps([network_identity(self.network, self.layer), repr(self.views), self.numbers])

    def key(self, task: Any) -> str:
        """Changes when the image, the network below its output layer or the views do."""
        if self.images is not None:
            return fingerprint((self.identity, task, self.images.state(task)), digits=32)
        return fingerprint((self.identity, task.name, file_state(task.path)), digits=32)

    def __call__(self, task: Any) -> dict[str, Any]:
        """The features of an image in half precision, for a `FeatureStore`."""
        images = self.images
        name, picture = (task, images.read(task)) if images is not None else (task.name, read_image(task.path))
        with torch.no_grad():
            views = self.views(picture, name, self.numbers).to(next(self.network.parameters()).device)
            features = features_of(self.network, self.layer, views).half().cpu()
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
        """The index, by key."""
        indexed = super().read()
        size = self.numbers.stat().st_size if self.numbers.is_file() else 0
        entries = {key: entry for key, entry in indexed.items() if _is_valid(entry) and _end(entry) <= size}
        if len(entries) < len(indexed):  # features written later at such an offset would be of the wrong image
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
    work: FeatureExtractor,
    tasks: Sequence[Example | str],
    folder: Path,
    what: str,
    failures: list[str],
    workers: int | Executor,
    progress: Progress,
) -> tuple[list[str], Tensor]:
    """The names of all images that can be read (``what`` they are, for messages), and their features [images, ...]."""
    if not tasks:
        raise DataError("there are no images to learn from")
    store, failed = FeatureStore(folder), list[str]()
    entries = progress(run(work, tasks, store, workers=workers, failures=failed), len(tasks), what)
    keys = {entry["picture"]: entry["key"] for entry in entries}
    failures.extend(failed)
    if not keys:
        raise DataError(f"none of {len(tasks)} {what} can be read; the first: {failed[0]}")
    return list(keys), store.features(list(keys.values()))
