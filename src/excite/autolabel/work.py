"""What is done for each picture: one look, and where each concept is.

What is written down are facts (the box, how probable the concept is), so that the threshold may change without another
look.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from PIL import Image

from excite.autolabel.concepts import category
from excite.errors import LostSignalWarning
from excite.images import file_state, read_image
from excite.images.reading import ORIENTATION_TAG, UPRIGHT
from excite.locating import ALPHA, METHOD, locate
from excite.models.identity import identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from excite.autolabel.concepts import Wanted
    from excite.autolabel.inputs import Picture
    from excite.locating import Located
    from excite.models import Classifier

__all__ = ["FIELDS", "Locating", "Task"]

FIELDS = ("image", "size", "turned", "found")
"""What a record holds."""


@dataclass(frozen=True)
class Task:
    """A picture and what to look for in it; nothing: what the classifier finds."""

    picture: Picture
    wanted: tuple[Wanted, ...]

    @cached_property
    def image(self) -> str:
        """The file, whatever way leads to it."""
        return str(self.picture.path.resolve())


@dataclass(frozen=True, eq=False)
class Locating:
    """The work done for each picture.

    Attributes:
        classifier: who is asked.
        how: arguments of `excite.locating.locate` that are not as usual.
        question: all of that as text.
    """

    classifier: Classifier
    how: Mapping[str, Any] = field(default_factory=dict)
    question: str = field(init=False)

    def __post_init__(self) -> None:
        words = list(self.classifier.labels or ())
        how = {"method": METHOD, "alpha": ALPHA, **self.how}  # what is usual may change too
        facts = ["boxes", how, version("excite"), identity(self.classifier), words]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the picture, what is looked for, the classifier or the program does."""
        wanted = [asdict(one) for one in task.wanted]
        facts = [self.question, wanted, *file_state(task.picture.path)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the picture, and a box for each concept that there is evidence for."""
        picture = read_image(task.picture.path)
        return {
            "image": task.image,
            "size": list(picture.size),
            "turned": _is_turned(task.picture.path),
            "found": [
                {"concept": name, "probability": one.probability, "box": None if one.box is None else list(one.box)}
                for name, one in self._found(picture, task.wanted)
            ],
        }

    def _found(self, picture: Image.Image, wanted: Sequence[Wanted]) -> list[tuple[str, Located]]:
        """What was found, each with the name of its category."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostSignalWarning)  # no evidence is no box, which is counted in the end
            found = locate(self.classifier, picture, [one.cue for one in wanted] or None, **self.how)
        if wanted:
            return list(zip((one.category for one in wanted), found, strict=True))
        best = max(found, key=lambda one: one.probability)
        return [(category(best.concept), best)]


def _is_turned(path: Path) -> bool:
    """Whether a file that could be read holds its pixels otherwise than upright."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as stored:
            if stored.getexif().get(ORIENTATION_TAG) not in UPRIGHT:
                return False
            stored.load()  # formats that turn themselves when decoded have no orientation left
            return stored.getexif().get(ORIENTATION_TAG) in UPRIGHT
    except Exception:  # noqa: BLE001 - the reader of pictures has already told what is wrong with its metadata
        return False
