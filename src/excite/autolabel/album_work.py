"""What is done for each picture: one look, and its files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from excite.api import attend
from excite.attention import compare
from excite.autolabel.drawing import draw
from excite.autolabel.naming import map_names
from excite.images import file_state, read_image
from excite.io.files import save_npy

if TYPE_CHECKING:
    from pathlib import Path

    from excite.autolabel.album_question import Question
    from excite.models import Classifier

__all__ = ["Asking", "Task"]


@dataclass(frozen=True)
class Task:
    """A picture and what its files are called."""

    photo: Path
    files: str

    @property
    def name(self) -> str:
        """The picture as the user calls it."""
        return str(self.photo)


@dataclass(frozen=True, eq=False)
class Asking:
    """The work done for each picture.

    Attributes:
        classifier: who is asked,
        question: and what.
        out: the folder for files.
        overlays: whether to draw pictures,
        arrays: and to save the maps.
    """

    classifier: Classifier
    question: Question
    out: Path
    overlays: bool
    arrays: bool

    def key(self, task: Task) -> str:
        """Changes when the picture, the question or the program does."""
        facts = [
            {**asdict(self.question), "model": self.question.model.key()},
            self.overlays,
            self.arrays,
            *file_state(task.photo),
            version("excite"),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def __call__(self, task: Task) -> dict[str, Any]:
        """Ask, draw, and tell what was found and which files were written."""
        question = self.question
        maps = attend(
            self.classifier,
            read_image(task.photo),
            question.concepts,
            layer=question.layers,
            method=question.method,
            against=question.against or None,
        )
        written: list[Path] = []
        rows = []
        for found, file in zip(maps, map_names(task.files, maps), strict=True):
            overlay = self.out / f"{file}.png"
            if self.overlays:
                written.append(draw(found.overlay(point=True, box=True, alpha=question.alpha), overlay))
            if self.arrays:
                written.append(save_npy(found.values, self.out / f"{file}.npy"))
            rows.append({**found.to_dict(alpha=question.alpha), "overlay": overlay.name if self.overlays else None})
        if self.overlays:
            several = question.layers is not None and len(question.layers) > 1
            drawn = compare(maps, rows="layer" if several else None, point=True, columns=5)
            written.append(draw(drawn, self.out / f"{task.files}-maps.png"))
        files = {path.name: path.stat().st_mtime_ns for path in written}
        return {"image": str(task.photo), "maps": rows, "files": files}
