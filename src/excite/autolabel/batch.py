"""`excite attend` for many images: one query, and a folder with overlays, one result per image and a page of all."""

import glob
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor

from excite import __version__
from excite.attention import AttentionMap, compare
from excite.errors import ConceptError, ExciteError, ImageError
from excite.images import PICTURE_SUFFIXES, file_state, find_images, is_picture_argument, read_image, read_reduced
from excite.io.cache import fingerprint
from excite.io.drawn import draw, file_names, is_drawn, map_names, shrunk
from excite.io.files import save_npy
from excite.jobs import Entry, Executor, ResultStore
from excite.jobs.loop import answered
from excite.methods import find_method
from excite.methods.excitation import C_MWP, LARGER
from excite.methods.extent import C_EXTENT
from excite.models import Choice, Classifier, Preprocess
from excite.readouts.box import scaled_box, scaled_point
from excite.readouts.gallery import Card, check_gallery, file_link, write_gallery
from excite.readouts.overlay import Style
from excite.session import Session

Answer = dict[str, Any]
Row = Mapping[str, Any]  # `AttentionMap.to_dict`, and the name of its overlay

LONGEST = 1600  # pixels along the longer side of an overlay
MOST_CARDS = 5000  # on the page: about 70 MB


@dataclass(frozen=True)
class AttendQuery:
    """The arguments of `excite.attend` that are the same for every image."""

    model: Choice
    concepts: tuple[str, ...] | None = None  # None: the classifier's own findings
    layers: tuple[str, ...] | None = None  # None: the classifier's default layer
    method: str = "c-mwp"
    against: tuple[str, ...] = ()
    alpha: float | None = None  # the threshold of the box, in means of the map; None: the boxes of the objects

    def told(self) -> dict[str, Any]:
        """All arguments as plain values: those of the model as far as they are given, and the others.

        Example:
            >>> from excite.models import Choice
            >>> AttendQuery(Choice("words"), ("dog",)).told()
            {'model': 'words', 'concepts': ('dog',), 'layers': None, 'method': 'c-mwp', 'against': (), 'alpha': None}
        """
        given = {name: value for name, value in self.model.asked().items() if value is not None}
        return {**asdict(self), **given}


@dataclass(frozen=True)
class Drawing:
    """Which maps of an image are drawn over it, and as what kind of file."""

    at_least: float = 0.0  # the least probability
    most: int | None = None  # so many concepts of each image, the most probable; None for all
    kind: str = "jpg"  # or png
    longest: int | None = LONGEST  # larger images are drawn smaller; None for their own size
    sheet: bool = True  # also a figure with all maps
    style: Style = "heat"

    def shown(self, rows: Sequence[Row]) -> dict[str, float]:
        """The probability of each concept that is probable enough, most probable first.

        Example:
            >>> Drawing(at_least=0.5).shown([{"concept": "cat", "probability": 0.3}])
            {}
        """
        found = ((row["concept"], row["probability"]) for row in rows if row["probability"] >= self.at_least)
        return dict(sorted(found, key=lambda pair: -pair[1]))

    def drawn(self, rows: Sequence[Row]) -> set[str]:
        """The concepts to draw."""
        return set([*self.shown(rows)][: self.most])


class Batch:
    """Runs one query on many images, into a folder.

    For each image: a line in ``answers.jsonl`` with its query, or in ``failures``; overlays of the concepts that
    ``drawing`` names (``picture.concept.jpg``; None: no files); of several images the page ``index.html``, of one alone
    all overlays and a figure with them (``picture-maps.jpg``). With ``arrays``, every map is drawn and saved as NPY. A
    second run over several images skips those whose image, query and files are unchanged. A file that excite has not
    drawn, or for another question, is never overwritten. Of several images, boxes are found for concepts that are
    ``at_least`` so probable, or drawn: they take several times as long as maps, and mean nothing in an image without
    the concept. ``boxes`` of others are None.
    """

    def __init__(
        self,
        query: AttendQuery,
        out: Path,
        *,
        drawing: Drawing | None = Drawing(),  # noqa: B008 - frozen
        arrays: bool = False,
        fresh: bool = False,
        at_least: float = 0.0,
    ) -> None:
        _check_folder(out)
        self.out = out
        self.fresh = fresh
        self.failures: list[str] = []
        self.page: Path | None = None  # once it is written
        self.drawing = drawing
        least = at_least if drawing is None else min(at_least, drawing.at_least)
        self.work = AttendWork(query.model.load(), query, out, drawing, arrays, least)
        labels = self.work.classifier.labels
        if labels is not None:  # an unknown concept is an error now, not after a thousand images
            for concept in (*(query.concepts or ()), *query.against):
                labels.find(concept)

    def answers(self, photos: Sequence[Path], workers: int | Executor = 1) -> Iterator[Answer]:
        """The result of each image. One that cannot be read is a failure among several, an error when alone."""
        executor, alone = Executor.of(workers), len(photos) == 1
        if alone and not executor.is_cluster:  # nothing to distribute: all cores for this one
            executor = replace(executor, workers=None, all_threads=True)
        with_page = self.drawing is not None and not alone
        if with_page:
            check_gallery(self.out / "index.html")
        first: list[Answer] = []  # those on the page
        with closing(self._run(photos, executor, alone=alone)) as run:
            for answer in run:
                if with_page and len(first) < MOST_CARDS:
                    first.append(answer)
                yield answer
        if with_page and first:
            self._write_page(first, len(photos))

    def _run(self, photos: Sequence[Path], executor: Executor, *, alone: bool) -> Generator[Answer, None, None]:
        work, files = self.work, file_names(photos)
        if work.drawing is not None:
            work = replace(work, drawing=replace(work.drawing, sheet=alone))
        if alone or work.arrays:
            drawing = work.drawing and replace(work.drawing, at_least=0.0, most=None)
            work = replace(work, drawing=drawing, at_least=0.0)
        outcomes = answered(
            work,
            (AttendTask(photo, files[photo]) for photo in photos),
            ResultStore(self.out / "answers.jsonl", ("image", "maps", "files"), parquet=executor.is_cluster),
            workers=executor,
            failures=None if alone else self.failures,
            still=lambda entry: not (self.fresh or alone) and work.has_files(entry),
            writes=self.out if work.drawing or work.arrays else None,
        )
        with closing(outcomes):
            for task, entry in outcomes:  # with the names that the image and the folder have in this run
                paths = [None if row["overlay"] is None else str(self.out / row["overlay"]) for row in entry["maps"]]
                rows = [{**row, "overlay": path} for row, path in zip(entry["maps"], paths, strict=True)]
                yield {"image": str(task.photo), "maps": rows}

    def _write_page(self, answers: Sequence[Answer], count: int) -> None:
        """The page of all images, with the overlay of the most probable concept of each."""
        folder = os.path.commonpath([Path(one["image"]).absolute().parent for one in answers])
        page = self.out / "index.html"
        query, layers = self.work.query, sorted({row["layer"] for one in answers for row in one["maps"]})
        note = [
            f"{', '.join(query.concepts)}:" if query.concepts else "Best findings,",
            f"at least {self.drawing.at_least:.0%} probable;" if self.drawing else "",
            f"model {query.model.model}, method {query.method}, layer {', '.join(layers)}",
            f"against {', '.join(query.against)}" if query.against else "",
            f"(the first {len(answers)} of {count} images)" if count > len(answers) + len(self.failures) else "",
        ]
        cards = (card for one in answers for card in self._cards(one, folder, page))
        title = f"{len(answers)} images of {Path(folder).name or folder}"
        self.page = write_gallery(page, title, cards, " ".join(filter(None, note)))

    def _cards(self, answer: Answer, folder: str, page: Path) -> Iterator[Card]:
        """The card of an image, with the image itself where nothing is drawn; none if it has become unreadable."""
        rows = answer["maps"]
        facts = self.drawing.shown(rows) if self.drawing else {}
        files = {row["concept"]: Path(row["overlay"]) for row in reversed(rows) if row["overlay"]}
        links = {concept: file_link(files[concept], page) for concept in facts if concept in files}
        photo = Path(answer["image"])
        shown = next((files[concept] for concept in links), photo)
        try:
            image = read_image(shown)
        except ImageError as error:
            self.failures.append(str(error))
        else:
            yield Card(image, os.path.relpath(photo, folder), file_link(shown, page), facts, links)


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


class Picture(NamedTuple):
    """An image that was read, perhaps smaller than it is, and the whole one's size."""

    task: AttendTask
    image: Image.Image
    size: tuple[int, int]


class Prepared(NamedTuple):
    """An image with the network's inputs for each scale, and as large as it is drawn."""

    read: Picture
    inputs: Mapping[float, Tensor]
    small: Image.Image


class Seen(NamedTuple):
    """An image with its maps, and what they say."""

    prepared: Prepared
    maps: Sequence[AttentionMap]
    rows: Sequence[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class AttendWork:
    """Computes the maps of one image and writes its files: overlays, and the maps as NPY."""

    classifier: Classifier
    query: AttendQuery
    out: Path
    drawing: Drawing | None
    arrays: bool
    at_least: float = 0.0  # the least probability of a concept whose boxes are looked for

    def key(self, task: AttendTask) -> str:
        """Changes when the image, the query or the program does; which concepts are drawn is left to `has_files`."""
        query = {**asdict(self.query), "model": self.query.model.key()}
        drawing = self.drawing
        files = None if drawing is None else [drawing.kind, drawing.longest, drawing.style]
        return fingerprint([query, files, self.arrays, *file_state(task.photo), __version__])

    def has_files(self, entry: Entry) -> bool:
        """Whether all files that an image needs are there, unchanged since they were written."""
        rows = entry["maps"]
        drawn = {row["concept"] for row in rows if row["overlay"] is not None}
        if self.drawing is not None and not self.drawing.drawn(rows) <= drawn:
            return False
        if any(row["boxes"] is None and row["probability"] >= self.at_least for row in rows):
            return False
        try:
            return all((self.out / name).stat().st_mtime_ns == time for name, time in entry["files"].items())
        except OSError:
            return False

    def __call__(self, task: AttendTask) -> dict[str, Any]:
        """The query, the maps of an image as plain values, and the files written for them."""
        read, prepare, look, write = self.stages
        answer: dict[str, Any] = write(look(prepare(read(task))))
        return answer

    @property
    def stages(self) -> tuple[Callable[[Any], Any], ...]:
        """The same in four parts, of which the second and fourth may run beside those of other images."""
        return self._read, self._prepare, self._look, self._write

    def _read(self, task: AttendTask) -> Picture:
        return Picture(task, *read_reduced(task.photo, self._least))

    @cached_property
    def _least(self) -> tuple[int, int] | None:
        """How large JPEGs are at least decoded: for drawings, and twice as large as the network's larger scale."""
        prepare = self.classifier.preprocess
        whole = self.drawing is not None and self.drawing.longest is None
        if whole or not isinstance(prepare, Preprocess) or not prepare.antialias:
            return None
        return LONGEST, 2 * prepare.scaled(LARGER).shorter_side

    def _prepare(self, read: Picture) -> Prepared:
        scales = find_method(self.query.method).scales
        inputs = {scale: self.classifier.prepared(read.image, scale)[None] for scale in scales}
        return Prepared(read, inputs, read.image if self.drawing is None else shrunk(read.image, self.drawing.longest))

    def _look(self, prepared: Prepared) -> Seen:
        return self.told(prepared, self.maps(prepared))

    def maps(self, prepared: Prepared) -> Sequence[AttentionMap]:
        """The maps of an image."""
        query, method = self.query, find_method(self.query.method)
        shared = method is C_MWP and query.layers is None and query.alpha is None and bool(self.classifier.extent)
        methods = [method, C_EXTENT] if shared else [method]  # boxes share the forward pass of their map
        session = Session(self.classifier, prepared.inputs, methods, layer=query.layers, against=query.against or None)
        again = session.at_scales if shared else None
        return session.attend(method, [query.concepts], [prepared.read.image], again, self.at_least)[0]

    def told(self, prepared: Prepared, maps: Sequence[AttentionMap]) -> Seen:
        """What the maps say; boxes only of what is probable enough, as they take longer than the maps."""
        rows = [self._row(found, prepared.read.size) for found in maps]
        done = [replace(found, objects=()) if callable(found.objects) else found for found in maps]
        return Seen(prepared, done, rows)  # without what makes other boxes, which keeps the forward passes

    def _row(self, found: AttentionMap, size: tuple[int, int]) -> dict[str, Any]:
        """A map as plain values, with coordinates in an image of that size."""
        quick = self.query.alpha is not None or found.objects is None
        row = found.to_dict(alpha=self.query.alpha, boxes=quick or (found.probability or 0.0) >= self.at_least)
        if size != found.image_size:
            to_whole = partial(scaled_box, size=found.image_size, other=size)
            row["point"] = row["point"] and list(scaled_point(row["point"], found.image_size, size))
            row["box"] = row["box"] and list(to_whole(row["box"]))
            row["boxes"] = row["boxes"] and [list(to_whole(box)) for box in row["boxes"]]
        return {**row, "overlay": None}

    def _write(self, seen: Seen) -> dict[str, Any]:
        files = {path.name: path.stat().st_mtime_ns for path in self._files(seen)}
        photo = str(seen.prepared.read.task.photo)
        return {"image": photo, "question": self.query.told(), "maps": seen.rows, "files": files}

    def _files(self, seen: Seen) -> Iterator[Path]:
        """Write the overlays, the maps and the figure of all; the name of each overlay is put into its row."""
        query, drawing, maps, rows = self.query, self.drawing, seen.maps, seen.rows
        small, read = seen.prepared.small, seen.prepared.read
        task = read.task
        question = {**asdict(replace(query, concepts=None, layers=None)), "model": query.model.asked()}
        asked: list[object] = [os.path.realpath(task.photo), question]
        asked += [small.size] if small.size != read.size else []
        asked += [drawing.style] if drawing is not None and drawing.style != "heat" else []
        about = [[found.concept, found.units, found.layer] for found in maps]
        wanted = set() if drawing is None else drawing.drawn(rows)
        for found, file, row, one in zip(maps, map_names(task.files, maps), rows, about, strict=True):
            path = self.out / f"{file}.npy"
            if drawing is not None and found.concept in wanted:
                drawn = found.overlay(small, point=True, box=True, alpha=query.alpha, style=drawing.style)
                path = draw(drawn, self.out / f"{file}.{drawing.kind}", [asked, one])
                row["overlay"] = path.name
                yield path
            if self.arrays:
                yield save_npy(found.values, path.with_suffix(".npy"))
        if drawing is not None and drawing.sheet:
            several = query.layers is not None and len(query.layers) > 1
            figure = compare(maps, rows="layer" if several else None, point=True, columns=5, style=drawing.style)
            yield draw(figure, self.out / f"{task.files}-maps.{drawing.kind}", [asked, about, "all"])


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
