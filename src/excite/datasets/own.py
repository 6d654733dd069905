"""Pictures of one's own, annotated in VOC's or in COCO's format, in no particular layout."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from excite.datasets.base import Dataset, box_of, holds_pictures, named_picture, only_picture, pictures_by, read_rows
from excite.datasets.coco import Coco
from excite.datasets.imagenet import ImageNet
from excite.datasets.sample import Instance, Sample, Target, size_of
from excite.datasets.voc import Voc
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


ANNOTATIONS = (".", "Annotations", "annotations")
"""Where annotation files are looked for, below the folder."""


class XmlFolder(Voc):
    """An image's XML file in VOC's format has its name and lies beside it, or in ``Annotations/``."""

    name = "xml"
    layout = "*.xml or Annotations/*.xml in VOC's format, images of the same names anywhere below"

    def _splits(self) -> list[str]:
        return ["all"]

    def _read(self) -> list[str]:
        self._files = _files(self.folder, ".xml")
        self._pictures = pictures_by(lambda path: path.stem, self.folder)
        return list(self._files)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are XML files, without VOC's lists of images; ImageNet's count pixels otherwise."""
        return not Voc.is_in(folder) and any(_paths(folder, ".xml")) and not ImageNet.is_in(folder)

    def _annotation(self, name: str) -> Path:
        return self._files[name]

    def _picture(self, name: str) -> Path:
        return only_picture(self._pictures.get(name, []), self.folder / f"{name}.jpg", self._files[name])


class JsonFolder(Coco):
    """A JSON file in COCO's format lies in the folder or in ``annotations/``; several are its splits."""

    name = "json"
    layout = "a *.json or annotations/*.json in COCO's format, its images anywhere below"

    def _splits(self) -> list[str]:
        return list(_files(self.folder, ".json"))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are JSON files, none called as COCO's own, and images."""
        return not Coco.is_in(folder) and any(_paths(folder, ".json")) and holds_pictures(folder)

    def _annotations_of(self, split: str) -> Path:
        return _files(self.folder, ".json")[split]

    def _folder_of_pictures(self) -> Path:
        self._found = pictures_by(lambda path: path.name, self.folder)
        return self.folder

    def _picture(self, name: str) -> Path:
        """As the file says, below the folder; or of that name, wherever it is."""
        return named_picture(self.folder, name, self._found, self._path)


def _files(folder: Path, suffix: str) -> dict[str, Path]:
    """The annotation files by their names without the suffix, in the order of those."""
    found: dict[str, Path] = {}
    for path in _paths(folder, suffix):
        other = found.setdefault(path.stem, path)
        if not path.samefile(other):  # file systems that do not tell capitals apart show a folder twice
            raise DataError(f"{str(other)!r} and {str(path)!r} have the same name: leave one of them there")
    return {stem: found[stem] for stem in sorted(found)}


def _paths(folder: Path, suffix: str) -> Iterator[Path]:
    found = (path for place in ANNOTATIONS for path in (folder / place).glob(f"*{suffix}"))
    return (path for path in found if not path.name.startswith("."))


# Images of one's own with a table of boxes, as ``excite boxes`` writes it.

TABLE = "boxes.csv"
CORNERS = ("x0", "y0", "x1", "y1")
NEEDED = ("image", "concept", *CORNERS)


class Line(NamedTuple):
    """A line of the table, as text; without corners it only says that the image belongs to the data."""

    where: str
    concept: str
    corners: tuple[str, ...]
    size: tuple[str, str]


class CsvFolder(Dataset):
    """A table of half-open boxes lies in the folder; columns may come in any order, and others are not looked at."""

    name = "csv"
    layout = f"{TABLE} with the columns {','.join(NEEDED)}, its images anywhere below"

    def _splits(self) -> list[str]:
        return ["all"]

    def _read(self) -> list[str]:
        self._path = self.folder / TABLE
        self._lines: dict[str, list[Line]] = {}
        for image, line in _read_lines(self._path):
            self._lines.setdefault(image, []).append(line)
        self._found = pictures_by(lambda path: path.name, self.folder)
        return sorted(self._lines)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are such a table and images."""
        return (folder / TABLE).is_file() and holds_pictures(folder)

    @property
    def categories(self) -> tuple[str, ...]:
        """The concepts that occur, in alphabetical order."""
        return tuple(sorted({line.concept for lines in self._lines.values() for line in lines if line.concept}))

    def sample(self, name: str) -> Sample:
        """An image and its boxes."""
        lines = self._lines[name]
        targets: dict[str, list[Instance]] = defaultdict(list)
        for line in lines:
            if not any(line.corners):
                continue
            if not line.concept:
                raise DataError(f"{line.where}: the concept is missing: say what is in the box")
            targets[line.concept].append(Instance(box_of(line.corners, line.where)))
        found = (Target(concept, tuple(targets[concept])) for concept in sorted(targets))
        path = named_picture(self.folder, name, self._found, self._path)
        return Sample(name, path, tuple(found), _size(lines))


def _size(lines: list[Line]) -> tuple[int, int] | None:
    """Width and height of an image, where its lines say them; all of them say the same."""
    first = lines[0]
    for line in lines:
        if line.size != first.size:
            raise DataError(f"{line.where}: it gives its image another size than the first line about it")
    if not any(first.size):
        return None
    return size_of(*first.size, first.where)


def _read_lines(path: Path) -> Iterator[tuple[str, Line]]:
    """The images that the table names, and what each line says about one."""
    rows = read_rows(path)
    header = [column.strip() for column in next(rows, (1, []))[1]]
    _check_header(header, f"{path}, line 1")
    for number, columns in rows:
        where = f"{path}, line {number}"
        if len(columns) != len(header):
            raise DataError(f"{where}: {len(columns)} columns, but the first line names {len(header)}")
        image = columns[header.index("image")]  # to the letter: the name of a file may end with a space
        if not image:
            raise DataError(f"{where}: the name of an image is missing")
        cells = {column: cell.strip() for column, cell in zip(header, columns, strict=True)}
        size = cells.get("width", ""), cells.get("height", "")
        yield image, Line(where, cells["concept"], tuple(cells[corner] for corner in CORNERS), size)


def _check_header(header: list[str], where: str) -> None:
    missing = [column for column in NEEDED if column not in header]
    if missing:
        raise DataError(f"{where}: the columns {','.join(NEEDED)} are needed, and {','.join(missing)} is not there")
    twice = [column for column in (*NEEDED, "width", "height") if header.count(column) > 1]
    if twice:
        raise DataError(f"{where}: the column {twice[0]!r} is there twice")
