"""Slow work, to be killed in its middle, that records its processes."""

import os
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path

from annotated import colour_classifier
from PIL import Image
from torch import Tensor

from excite.errors import ImageError, LayerError
from excite.models.classifier import Preprocess

__all__ = ["Counting", "Slowly", "slow_classifier", "workers_seen"]


@dataclass(frozen=True)
class Slowly:
    """Prepares images, after some time; each process leaves a file with its number for each image."""

    inner: Preprocess
    diary: str = field(repr=False)  # no part of what the classifier is
    seconds: float = field(repr=False)

    def __call__(self, picture: Image.Image) -> Tensor:
        with Path(self.diary, str(os.getpid())).open("a") as file:
            file.write("x")
        time.sleep(self.seconds)
        return self.inner(picture)


def slow_classifier(diary, seconds=0.15):
    """The classifier of colours, slower and with a diary."""
    classifier = colour_classifier()
    Path(diary).mkdir(parents=True, exist_ok=True)
    return replace(classifier, preprocess=Slowly(classifier.preprocess, str(diary), seconds))


def workers_seen(diary):
    """How many images each process has begun, by its number."""
    return {int(path.name): len(path.read_text()) for path in Path(diary).iterdir()}


@dataclass
class Counting:
    """Doubles numbers. Some cannot be read, some are a wrong question, some end the process."""

    unreadable: tuple = ()
    wrong: tuple = ()
    deadly: tuple = ()
    odd: str = ""

    def key(self, task):
        return f"k{task}"

    def __call__(self, task):
        if task in self.unreadable:
            raise ImageError(f"{task} cannot be read")
        if task in self.wrong:
            raise LayerError(f"{task} has no such layer")
        if task in self.deadly:
            os._exit(1)
        if self.odd:
            warnings.warn(self.odd, stacklevel=1)
        return {"double": 2 * task}
