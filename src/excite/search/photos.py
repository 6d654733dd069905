"""A folder of photos that can be searched by words."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from excite.errors import ExciteError, ImageError, ModelError
from excite.images import find_images, read_image
from excite.io.cache import fingerprint
from excite.io.files import Lock
from excite.jobs import Executor, Job
from excite.jobs.loop import Progress, no_progress
from excite.models import Classifier
from excite.models.classifier import identity
from excite.models.dual_encoder import OpenClassifier
from excite.readouts.notebook import jpeg
from excite.search.index import IndexFile, Photo, encode, type_of
from excite.search.query import Answer, Question, ask, read_question
from excite.vocabulary import Concept, Labels

NAME = ".excite-index.sqlite"
BATCH = 16  # photos of one task
SIDE, QUALITY = 240, 75  # of a thumbnail
MOST = 20
STRETCH = 8.0  # times an embedding's entries, -1 to 1, are kept as log-odds, to 4e-5


@dataclass
class Changes:
    """What an update has found in the folder."""

    added: int = 0
    changed: int = 0
    renamed: int = 0  # or touched: the content is known, and nothing was computed
    removed: int = 0
    unreadable: list[str] = field(default_factory=list)  # a line for each photo that was tried now, and failed


class PhotoIndex:
    """The photos of a folder with the probabilities of all outputs of a classifier, kept in a file.

    For a classifier of any words their embeddings are kept instead.

    Args:
        folder: where the photos are, at any depth.
        classifier: from `excite.load` or `excite.wrap`; an index of another classifier is refused.
        file: the index; None for ``.excite-index.sqlite`` in the folder.
        thumbnails: whether photos that are read get a thumbnail in it, for pages.
        fresh: make the index again.

    Example:
        >>> index = PhotoIndex("holiday/", excite.load())                   # doctest: +SKIP
        >>> index.update(workers=4)                                         # doctest: +SKIP
        Changes(added=1200, changed=0, renamed=0, removed=0, unreadable=[])
        >>> for match in index.query("a dog -cat", most=3).matches:         # doctest: +SKIP
        ...     print(match.path, match.probability)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        classifier: Classifier,
        *,
        file: str | os.PathLike[str] | None = None,
        thumbnails: bool = True,
        fresh: bool = False,
    ) -> None:
        self.folder, self.classifier, self.thumbnails = Path(folder), classifier, thumbnails
        if not self.folder.is_dir():
            raise ImageError(f"there is no folder {str(folder)!r}: name the one in which the photos are")
        path = self.folder / NAME if file is None else Path(file)
        if not path.exists():
            find_images([str(self.folder)])  # an error where it has none: no file is left there
        self.file = IndexFile(path, identity(classifier), bits=bits_of(classifier), fresh=fresh)

    def __len__(self) -> int:
        return len(self.file.numbers())

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    @property
    def labels(self) -> Labels:
        """The words for the outputs."""
        return self.classifier.labels or Labels.numbered(max(1, self.file.outputs))

    def update(self, *, workers: int | Executor = 1, progress: Progress = no_progress) -> Changes:
        """Bring the index up to date with the folder: photos that were added or changed are read by the classifier.

        Each photo is in the index as soon as it is read; after a kill, the next update goes on. A photo that cannot be
        read is remembered, and tried again when it has changed.

        Args:
            workers: a number of processes, or an executor.
            progress: shows how many photos are read.
        """
        with Lock(self.file.path.parent, trace=False, option="--index"):
            changes, fresh = self._compare()
            executor = Executor.of(workers)
            work = IndexWork(self.classifier, self.folder, self.thumbnails)
            tasks = [tuple(fresh[at : at + BATCH]) for at in range(0, len(fresh), BATCH)]
            jobs = (Job(task, work.key(task)) for task in tasks)
            with executor.start(work) as runner, closing(runner(jobs)) as outcomes:  # type: ignore[type-var]
                read = chain.from_iterable(self._added(job, outcome) for job, outcome in outcomes)
                for photo in progress(read, len(fresh), "photos"):
                    if photo.error is not None:
                        changes.unreadable.append(photo.error)
            self.file.pack()
        return changes

    def read(self, words: str, *, hints: bool = True) -> Question:
        """The concepts of a question, see `query`."""
        return read_question(words, self.labels, hints=hints)

    def query(
        self,
        words: str,
        *,
        most: int = MOST,
        at_least: float = 0.0,
        hints: bool = True,
        progress: Progress = no_progress,
    ) -> Answer:
        """Rank the photos by the probability that they show all of these things.

        Args:
            words: what they show, in English: "a dog on a sofa", "dog -cat" (a dog, and no cat).
            most: the largest number of photos.
            at_least: leave out those that are less probable.
            hints: words of colour and position ("yellow", "left") rank the best photos again, by their evidence.
            progress: shows how many photos are looked at for that.

        Raises:
            ConceptError: the classifier knows none of the words, or not one of those behind a minus sign.

        Example:
            >>> index.query("a yellow surfboard").matches[0].path           # doctest: +SKIP
            PosixPath('holiday/2024/beach.jpg')
        """
        return ask(self, self.read(words, hints=hints), most=most, at_least=at_least, progress=progress)

    def chances(self, concepts: Sequence[Concept]) -> list[NDArray[np.float32]]:
        """For each concept the probability that the photo of a number shows it; NaN where there is none."""
        outputs = range(self.file.outputs)
        if isinstance(self.classifier, OpenClassifier):
            kept = np.stack(self.file.chances([((unit,), np.array([True])) for unit in outputs]), axis=1)
            embeddings = torch.from_numpy(kept).logit() / STRETCH
            return list(self.classifier.chances(embeddings, concepts).numpy())
        independent = self.classifier.independent(len(outputs)).numpy()
        return self.file.chances([(concept.units, independent[list(concept.units)]) for concept in concepts])

    def path(self, number: int) -> Path:
        """The photo of a number."""
        try:
            return self.paths([number])[number]
        except KeyError:
            raise ImageError(f"there is no photo {number} in the index: ask again") from None

    def paths(self, numbers: Sequence[int]) -> dict[int, Path]:
        """The photos of numbers, as far as there are any."""
        return {number: self.folder / os.fsdecode(path) for number, path in self.file.paths(numbers).items()}

    def thumbnail(self, number: int, side: int = SIDE) -> bytes:
        """A photo as a JPEG with at most so many pixels on its longer side."""
        path = self.path(number)  # an error where the photo is gone
        kept = self.file.thumbnail(number) if side <= SIDE else None
        return jpeg(small(read_image(path), side), QUALITY) if kept is None else kept

    def unreadable(self) -> list[str]:
        """A line for each photo that could not be read."""
        return self.file.errors()

    def _compare(self) -> tuple[Changes, list[Photo]]:
        """Compare the folder with the index; the photos that have to be read, each with its number."""
        every = self.file.photos()
        known = {photo.path: photo for photo in every if photo.path is not None}
        files = {os.fsencode(path.relative_to(self.folder)): path for path in find_images([str(self.folder)])}
        states = {path: state_of(file) for path, file in files.items()}
        # a file that could not even be opened has no content, and is tried again
        same = {p for p, state in states.items() if p in known and state == known[p][2:4] and known[p].content}
        loose = [photo for photo in every if photo.path not in same]
        named = self._recognised({path: state for path, state in states.items() if path not in same}, loose)
        kept = {photo.number for photo in named}
        gone = [photo for photo in loose if photo.path is not None and photo.number not in kept]
        if named or gone:  # otherwise a medium that cannot be written will do
            self.file.assign(named, gone)
        fresh = states.keys() - same - {photo.path for photo in named}
        free = [photo.number for photo in loose if photo.number not in kept]
        numbers = chain(free, count(len(every)))  # at first those of photos that are gone
        unread = [Photo(next(numbers), path, *state, b"") for path, state in states.items() if path in fresh]
        changed, removed = len(fresh & known.keys()), sum(photo.path not in states for photo in gone)
        return Changes(len(fresh) - changed, changed, len(named), removed), unread

    def _recognised(self, states: Mapping[bytes, tuple[int, int]], loose: Sequence[Photo]) -> list[Photo]:
        """Of files, those with the content of a photo that is not at its place any more: renamed, moved or touched."""
        contents: dict[int, dict[bytes, Photo]] = defaultdict(dict)
        for photo in loose:
            contents[photo.size][photo.content] = photo
        named: list[Photo] = []
        for path, (size, time) in states.items():
            content = content_of(self.folder / os.fsdecode(path)) if contents[size] else b""
            if content and (found := contents[size].pop(content, None)) is not None:
                named.append(found._replace(path=path, time=time))
        return named

    def _added(self, job: Job, outcome: Any) -> Iterator[Photo]:
        """Add the photos of a finished task."""
        if isinstance(outcome, ExciteError):
            raise outcome
        photos = [
            Photo(photo.number, photo.path, one["size"], one["time"], one["content"], one["error"])
            for photo, one in zip(job.task, outcome["photos"], strict=True)
        ]
        kind = type_of(self.file.bits)
        codes = [None if one["codes"] is None else np.frombuffer(one["codes"], kind) for one in outcome["photos"]]
        self.file.add(photos, codes, [one["thumbnail"] for one in outcome["photos"]])
        yield from photos


def bits_of(classifier: Classifier) -> int:
    """The bits of each code: 8 for probabilities, 16 for the entries of embeddings, whose errors add up."""
    return 16 if isinstance(classifier, OpenClassifier) else 8


def state_of(file: Path) -> tuple[int, int]:
    """The size and the modification time of a file; -1 for both where it cannot be reached."""
    try:
        state = file.stat()
    except OSError:
        return -1, -1
    return state.st_size, state.st_mtime_ns


def content_of(file: Path) -> bytes:
    """A hash of a file's content; empty where it cannot be read."""
    with suppress(OSError), file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).digest()
    return b""


@dataclass(frozen=True, eq=False)
class IndexWork:
    """Reads photos and computes their codes, as work for an `Executor`."""

    classifier: Classifier
    folder: Path
    thumbnails: bool

    def key(self, task: Sequence[Photo]) -> str:
        """Changes with the photos: a machine that sees others does not fit."""
        files = [os.fsdecode(photo.path or b"") for photo in task]
        return fingerprint([[file, *state_of(self.folder / file)] for file in files])

    def __call__(self, task: Sequence[Photo]) -> dict[str, Any]:
        """For each photo its codes, content and thumbnail, or why it cannot be read."""
        photos = [self._read(self.folder / os.fsdecode(photo.path or b"")) for photo in task]
        shapes: dict[torch.Size, list[dict[str, Any]]] = defaultdict(list)
        for photo in photos:
            if photo["error"] is None:
                shapes[photo["input"].shape].append(photo)
        for group in shapes.values():
            stored = self._stored(torch.stack([photo["input"] for photo in group]))
            codes = encode(stored, bits_of(self.classifier))
            for photo, row in zip(group, codes, strict=True):
                photo["codes"] = row.tobytes()
        return {"photos": [{name: value for name, value in photo.items() if name != "input"} for photo in photos]}

    def _read(self, file: Path) -> dict[str, Any]:
        size, time = state_of(file)  # before it is read: if it changes now, the next update reads it again
        found: dict[str, Any] = {"size": size, "time": time, "content": content_of(file)}
        found |= dict.fromkeys(("error", "codes", "thumbnail"))
        try:
            picture = read_image(file)
        except ImageError as error:
            return {**found, "error": str(error)}
        return {**found, "input": self.classifier.prepared(picture), "thumbnail": self._thumbnail(picture)}

    def _thumbnail(self, picture: Image.Image) -> bytes | None:
        return jpeg(small(picture, SIDE), QUALITY) if self.thumbnails else None

    def _stored(self, batch: torch.Tensor) -> np.ndarray[Any, Any]:
        """What the index keeps of some photos: probabilities, or embeddings where any words may be asked for."""
        try:
            with torch.inference_mode():
                if isinstance(self.classifier, OpenClassifier):
                    found = (STRETCH * self.classifier.network.embed(batch)).sigmoid()
                else:
                    found = self.classifier.probabilities(self.classifier.module(batch))
        except RuntimeError as error:
            size, reason = " x ".join(map(str, batch.shape[1:])), str(error).partition("\n")[0]
            raise ModelError(f"{self.classifier.name} fails on photos preprocessed to {size}: {reason}") from error
        values: np.ndarray[Any, Any] = found.float().cpu().numpy()
        return values


def small(picture: Image.Image, side: int) -> Image.Image:
    """A copy of an image with at most so many pixels on its longer side."""
    copy = picture.copy()
    copy.thumbnail((side, side))
    return copy
