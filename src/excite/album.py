"""One question asked of many pictures, with files as answers; stopped half-way, it goes on where it was."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite.attending import attend
from excite.attention import AttentionMap, compare
from excite.errors import ExciteError, ImageError, MethodError
from excite.images import find_images, is_picture_argument, read_image
from excite.methods import find_method
from excite.models import Classifier, load
from excite.readouts.save import atomic_write, save_npy, save_png

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Album", "Question", "split_arguments"]

Answer = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """What is asked of every picture."""

    model: str
    concepts: tuple[str, ...] | None  # None: the classifier's own findings
    layers: tuple[str, ...] | None  # None: the classifier's own best
    method: str
    against: tuple[str, ...]

    @classmethod
    def asked(
        cls,
        *,
        model: str,
        concepts: Sequence[str],
        layers: Sequence[str] | None = None,
        method: str | None = None,
        contrast: bool | None = None,
        against: Sequence[str] | None = None,
    ) -> Question:
        """The question behind the options of a command."""
        if method is not None and contrast is not None:
            raise MethodError(
                "--method already says whether to contrast: give either --method or --contrast/--no-contrast"
            )
        name = method or ("mwp" if contrast is False else "c-mwp")
        return cls(
            model, tuple(concepts) or None, tuple(layers or ()) or None, find_method(name).name, tuple(against or ())
        )


class Album:
    """Answers one question for many pictures, into a folder.

    For each picture: one overlay for each concept and layer, a figure with all of them, and a line in
    ``answers.jsonl``. A run over several pictures that is started again skips those already answered there.

    Attributes:
        failures: what went wrong, a line for each picture that could not be read.
    """

    def __init__(
        self, question: Question, out: Path, *, overlays: bool = True, arrays: bool = False, fresh: bool = False
    ) -> None:
        self.question = question
        self.out = out
        self.overlays = overlays
        self.arrays = arrays
        self.fresh = fresh
        self.failures: list[str] = []
        self.classifier: Classifier = load(question.model)
        if self.classifier.labels is not None:  # an unknown concept is known now, not after a thousand pictures
            for concept in (*(question.concepts or ()), *question.against):
                self.classifier.labels.find(concept)

    def answers(self, photos: Sequence[Path]) -> Iterator[Answer]:
        """Answer picture by picture. One that cannot be read is a failure among several, an error when alone."""
        names = _file_names(photos)
        ledger = _Ledger(self.out / "answers.jsonl")
        done = ledger.read() if len(photos) > 1 and not self.fresh else {}
        for photo in photos:
            try:
                key = self._key(photo)
                answer = done.get(key)
                if answer is None or not self._is_complete(answer):
                    answer = self._answer(photo, names[photo])
                    ledger.add(key, answer)
            except ImageError as error:
                if len(photos) == 1:
                    raise
                self.failures.append(str(error))
                continue
            yield answer

    def _answer(self, photo: Path, name: str) -> Answer:
        question = self.question
        maps = attend(
            self.classifier,
            read_image(photo),
            question.concepts,
            layer=question.layers,
            method=question.method,
            against=question.against or None,
        )
        files = _map_names(name, maps)
        rows = []
        for found, file in zip(maps, files, strict=True):
            overlay = self.out / f"{file}.png"
            if self.overlays:
                save_png(found.overlay(point=True, box=True), overlay)
            if self.arrays:
                save_npy(found.values, self.out / f"{file}.npy")
            rows.append({**found.to_dict(), "overlay": str(overlay) if self.overlays else None})
        if self.overlays:
            several = question.layers is not None and len(question.layers) > 1
            drawn = compare(maps, rows="layer" if several else None, point=True, columns=5)
            save_png(drawn, self.out / f"{name}.png")
        return {"image": str(photo), "maps": rows}

    def _key(self, photo: Path) -> str:
        """Changes when the picture, the question or the program does."""
        try:
            state = photo.stat()
        except OSError as error:
            raise ImageError(f"cannot read {str(photo)!r}: {error.strerror or error}") from None
        facts = [
            asdict(self.question),
            self.arrays,
            str(photo.resolve()),
            state.st_mtime_ns,
            state.st_size,
            version("excite"),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def _is_complete(self, answer: Answer) -> bool:
        """Whether the pictures of an earlier answer are still there."""
        drawn = [row["overlay"] for row in answer["maps"]]
        return not self.overlays or all(path is not None and Path(path).is_file() for path in drawn)


class _Ledger:
    """The file of answers, a JSON object a line. A line cut off by a kill is dropped when it is read again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Answer]:
        """The answers so far, by key."""
        entries = {}
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise ExciteError(
                f"cannot resume from {str(self.path)!r} ({error}): use another --out, or --fresh"
            ) from None
        for line in lines:
            try:
                entry = json.loads(line)
                entries[entry.pop("key")] = entry
            except (json.JSONDecodeError, KeyError, AttributeError):
                continue
        whole = "".join(json.dumps({"key": key, **entry}) + "\n" for key, entry in entries.items())
        atomic_write(self.path, lambda file: _write(file, whole))
        return entries

    def add(self, key: str, answer: Answer) -> None:
        """Write one more answer down at once."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **answer}) + "\n")
        except OSError as error:
            raise ExciteError(
                f"cannot write {str(self.path)!r}: {error.strerror or error}; choose another --out"
            ) from None


def split_arguments(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Which arguments are pictures and which are concepts: pictures come first.

    The first one is a picture (a file, a folder, a pattern). Those behind it are pictures as long as they look like
    pictures, as when the shell has expanded a pattern; the rest are concepts.
    """
    patterns = [arguments[0]]
    for argument in arguments[1:]:
        if not is_picture_argument(argument):
            break
        patterns.append(argument)
    return find_images(patterns), list(arguments[len(patterns) :])


def _file_names(photos: Sequence[Path]) -> dict[Path, str]:
    """A name for each picture's files: its own, with as much of its path as tells it from the others."""
    for describe in (lambda path: path.stem, lambda path: str(path.with_suffix("")), str):
        names = {photo: _slug(describe(photo)) for photo in photos}
        if len(set(names.values())) == len(photos):
            return names
    return {photo: f"{_slug(photo.stem)}-{number}" for number, photo in enumerate(photos)}


def _map_names(name: str, maps: Sequence[AttentionMap]) -> list[str]:
    """A file name for each map: picture, concept, and whatever else tells it from the others."""
    short = [f"{name}-{_slug(found.concept)}" for found in maps]
    if len({found.layer for found in maps}) > 1:
        short = [f"{each}-{_slug(found.layer)}" for each, found in zip(short, maps, strict=True)]
    counts = Counter(short)
    return [each if counts[each] == 1 else f"{each}-{found.units[0]}" for each, found in zip(short, maps, strict=True)]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-.")[:80] or "picture"


def _write(file: Any, text: str) -> None:
    file.write(text.encode())
