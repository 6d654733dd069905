"""`excite attend` for many images: one query, and a folder with an overlay per map and one result per image."""

from __future__ import annotations

import glob
import os
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite import __version__
from excite.api import attend
from excite.attention import compare
from excite.errors import ConceptError, ExciteError, ImageError
from excite.images import PICTURE_SUFFIXES, file_state, find_images, is_picture_argument, read_image
from excite.io.cache import fingerprint
from excite.io.drawn import draw, file_names, is_drawn, map_names
from excite.io.files import save_npy
from excite.jobs import Executor, ResultStore
from excite.jobs.loop import answered
from excite.readouts.box import DEFAULT_ALPHA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.jobs import Entry
    from excite.models import Choice, Classifier


@dataclass(frozen=True)
class AttendQuery:
    """The arguments of `excite.attend` that are the same for every image."""

    model: Choice
    concepts: tuple[str, ...] | None = None  # None: the classifier's own findings
    layers: tuple[str, ...] | None = None  # None: the classifier's default layer
    method: str = "c-mwp"
    against: tuple[str, ...] = ()
    alpha: float = DEFAULT_ALPHA  # the threshold of the boxes, in means of the map


class Batch:
    """Runs one query on many images, into a folder.

    For each image: one overlay per concept and layer (``picture.concept.png``), a figure with all of them
    (``picture-maps.png``), and a line in ``answers.jsonl``, or in ``failures``. A second run over several images skips
    those whose image, query and files are unchanged. A PNG that excite has not drawn, or for another question, is never
    overwritten.
    """

    def __init__(
        self, query: AttendQuery, out: Path, *, overlays: bool = True, arrays: bool = False, fresh: bool = False
    ) -> None:
        _check_folder(out)
        self.out = out
        self.fresh = fresh
        self.failures: list[str] = []
        self.work = AttendWork(query.model.load(), query, out, overlays, arrays)
        labels = self.work.classifier.labels
        if labels is not None:  # an unknown concept is an error now, not after a thousand images
            for concept in (*(query.concepts or ()), *query.against):
                labels.find(concept)

    def answers(self, photos: Sequence[Path], workers: int | Executor = 1) -> Iterator[dict[str, Any]]:
        """The result of each image. One that cannot be read is a failure among several, an error when alone."""
        executor, alone = Executor.of(workers), len(photos) == 1
        if alone and not executor.is_cluster:  # nothing to distribute: all cores for this one
            executor = replace(executor, workers=None, all_threads=True)
        files = file_names(photos)
        outcomes = answered(
            self.work,
            (AttendTask(photo, files[photo]) for photo in photos),
            ResultStore(self.out / "answers.jsonl", ("image", "maps", "files"), parquet=executor.is_cluster),
            workers=executor,
            failures=None if alone else self.failures,
            still=lambda entry: not (self.fresh or alone) and self._has_files(entry),
            writes=self.out if self.work.overlays or self.work.arrays else None,
        )
        with closing(outcomes):
            for task, entry in outcomes:  # with the names that the image and the folder have in this run
                paths = [None if row["overlay"] is None else str(self.out / row["overlay"]) for row in entry["maps"]]
                rows = [{**row, "overlay": path} for row, path in zip(entry["maps"], paths, strict=True)]
                yield {"image": str(task.photo), "maps": rows}

    def _has_files(self, entry: Entry) -> bool:
        """Whether the files of an earlier result are there, unchanged since they were written."""
        try:
            return all((self.out / name).stat().st_mtime_ns == time for name, time in entry["files"].items())
        except OSError:
            return False


def _check_folder(out: Path) -> None:
    """Raise an `ExciteError` if files cannot be written there, before any computation."""
    try:
        nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    except OSError as error:
        raise ExciteError(f"cannot write to {str(out)!r}: {error.strerror}; choose another folder as --out") from None
    if not nearest.is_dir():
        raise ExciteError(f"cannot write to {str(out)!r}: {str(nearest)!r} is a file; choose a folder as --out")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ExciteError(f"cannot write to {str(out)!r}: no permission; choose another folder as --out")


@dataclass(frozen=True)
class AttendTask:
    """An image and the stem of its files."""

    photo: Path
    files: str


@dataclass(frozen=True, eq=False)
class AttendWork:
    """Computes the maps of one image and writes its files: overlays, and the maps as NPY."""

    classifier: Classifier
    query: AttendQuery
    out: Path
    overlays: bool
    arrays: bool

    def key(self, task: AttendTask) -> str:
        """Changes when the image, the query or the program does."""
        query = {**asdict(self.query), "model": self.query.model.key()}
        return fingerprint([query, self.overlays, self.arrays, *file_state(task.photo), __version__])

    def __call__(self, task: AttendTask) -> dict[str, Any]:
        """The maps of an image as plain values, and the files written for them."""
        query = self.query
        maps = attend(
            self.classifier,
            read_image(task.photo),
            query.concepts,
            layer=query.layers,
            method=query.method,
            against=query.against or None,
        )
        written: list[Path] = []
        rows = []
        asked = [
            os.path.realpath(task.photo),
            {**asdict(replace(query, concepts=None, layers=None)), "model": query.model.asked()},
        ]
        drawn = [[found.concept, found.units, found.layer] for found in maps]
        for found, file, about in zip(maps, map_names(task.files, maps), drawn, strict=True):
            overlay = self.out / f"{file}.png"
            if self.overlays:
                overlay = draw(found.overlay(point=True, box=True, alpha=query.alpha), overlay, [asked, about])
                written.append(overlay)
            if self.arrays:
                written.append(save_npy(found.values, overlay.with_suffix(".npy")))
            rows.append({**found.to_dict(alpha=query.alpha), "overlay": overlay.name if self.overlays else None})
        if self.overlays:
            several = query.layers is not None and len(query.layers) > 1
            figure = compare(maps, rows="layer" if several else None, point=True, columns=5)
            written.append(draw(figure, self.out / f"{task.files}-maps.png", [asked, drawn, "all"]))
        files = {path.name: path.stat().st_mtime_ns for path in written}
        return {"image": str(task.photo), "maps": rows, "files": files}


def split_arguments(arguments: Sequence[str], out: Path) -> tuple[list[Path], list[str]]:
    """Split arguments into images and concepts: images come first.

    The first is an image (a file, a folder, a pattern), and those behind it as long as they look like images, as after
    the shell has expanded a pattern. In folders, images that excite itself has drawn into ``out`` are skipped.
    """
    patterns = [arguments[0], *takewhile(is_picture_argument, arguments[1:])]
    concepts = list(arguments[len(patterns) :])
    for concept in concepts:
        if Path(concept).suffix.lower() in PICTURE_SUFFIXES:
            raise ConceptError(f"{concept!r} looks like an image behind a concept: name all images first")
    photos = {os.path.realpath(photo): photo for pattern in patterns for photo in _photos(pattern, patterns, out)}
    return list(photos.values()), concepts


def _photos(pattern: str, patterns: Sequence[str], out: Path) -> list[Path]:
    """The images of one argument. A missing file among other arguments is kept: it fails alone, in its turn."""
    if not pattern.strip():
        raise ImageError("the name of an image is blank: name a file, a folder or a pattern")
    named = Path(pattern).suffix.lower() in PICTURE_SUFFIXES and not glob.has_magic(pattern)
    missing = named and len(patterns) > 1 and not os.path.exists(pattern)  # noqa: PTH110 - Path's fails at long names
    if missing or os.path.isfile(pattern):  # noqa: PTH113
        return [Path(pattern)]
    try:
        found = find_images(pattern)
    except OSError as error:
        raise ImageError(f"no images found for {pattern!r}: {error.strerror or error}") from None
    inside = out.resolve()
    photos = [photo for photo in found if inside not in photo.resolve().parents or not is_drawn(photo)]
    if not photos:
        raise ImageError(f"no images found for {pattern!r} but those that excite itself has drawn")
    return photos
