"""A user's own images in any layout, annotated in VOC's or COCO's format, or in a table as ``excite boxes`` writes."""

from collections.abc import Iterator
from pathlib import Path

from excite.datasets import base
from excite.datasets.base import Dataset, Instance, Sample
from excite.datasets.coco import Coco
from excite.datasets.imagenet import ImageNet
from excite.datasets.voc import Voc
from excite.errors import DataError

TABLE = "boxes.csv"
CORNERS = ("x0", "y0", "x1", "y1")
NEEDED = ("image", "concept", *CORNERS)


class XmlFolder(Voc):
    """An image's XML file in VOC's format has its name and lies beside it, or in ``Annotations/``."""

    name = "xml"
    layout = "*.xml or Annotations/*.xml in VOC's format, images of the same names anywhere below"
    _split_file = ""

    def _read(self) -> list[str]:
        self._files = _files(self.folder, ".xml")
        self._pictures = base.images_by(lambda path: path.stem, self.folder)
        return list(self._files)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are XML files, without VOC's lists of images; ImageNet's count pixels otherwise."""
        return not Voc.is_in(folder) and any(_paths(folder, ".xml")) and not ImageNet.is_in(folder)

    def _annotation(self, name: str) -> Path:
        return self._files[name]

    def _picture(self, name: str) -> Path:
        return base.single_image(self._pictures.get(name, []), self.folder / f"{name}.jpg", self._files[name])


class JsonFolder(Coco):
    """A JSON file in COCO's format lies in the folder or in ``annotations/``; several are its splits."""

    name = "json"
    layout = "a *.json or annotations/*.json in COCO's format, its images anywhere below"

    def _splits(self) -> list[str]:
        return list(_files(self.folder, ".json"))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are JSON files, none called as COCO's own, and images."""
        return not Coco.is_in(folder) and any(_paths(folder, ".json")) and base.has_images(folder)

    def _split_path(self) -> Path:
        return _files(self.folder, ".json")[self.split]

    def _image_folder(self) -> Path:
        self._found = base.images_by(lambda path: path.name, self.folder)
        return self.folder

    def _picture(self, name: str) -> Path:
        return base.named_image(self.folder, name, self._found, self._path)


def _files(folder: Path, suffix: str) -> dict[str, Path]:
    """The annotation files by their names without the suffix, sorted."""
    found: dict[str, Path] = {}
    for path in _paths(folder, suffix):
        other = found.setdefault(path.stem, path)
        if not path.samefile(other):  # file systems that do not tell capitals apart show a folder twice
            raise DataError(f"{str(other)!r} and {str(path)!r} have the same name: leave one of them there")
    return dict(sorted(found.items()))


def _paths(folder: Path, suffix: str) -> Iterator[Path]:
    folders = (folder, folder / "Annotations", folder / "annotations")
    found = (path for below in folders for path in below.glob(f"*{suffix}"))
    return (path for path in found if not path.name.startswith("."))


class CsvFolder(Dataset):
    """A table of half-open boxes lies in the folder; columns may come in any order, and further ones are ignored."""

    name = "csv"
    layout = f"{TABLE} with the columns {','.join(NEEDED)}, its images anywhere below"

    def _read(self) -> list[str]:
        self._path = self.folder / TABLE
        self._rows: dict[str, list[dict[str, str]]] = {}
        for image, row in _read_table(self._path):
            self._rows.setdefault(image, []).append(row)
        self._found = base.images_by(lambda path: path.name, self.folder)
        return sorted(self._rows)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are such a table and images."""
        return (folder / TABLE).is_file() and base.has_images(folder)

    @property
    def categories(self) -> tuple[str, ...]:
        """The concepts that occur, in alphabetical order."""
        return tuple(sorted({row["concept"] for rows in self._rows.values() for row in rows if row["concept"]}))

    def sample(self, name: str) -> Sample:
        """An image and its boxes; its size must be the same in all its rows, or blank."""
        rows, found = self._rows[name], []
        for row in rows:
            corners = [row[corner] for corner in CORNERS]
            if any(corners) and not row["concept"]:
                raise DataError(f"{row['where']}: the concept is missing: say what is in the box")
            if any(corners):  # or else the image belongs to the data, but has no box
                found.append((row["concept"], Instance(base.parse_box(corners, row["where"]))))
        found.sort(key=lambda each: each[0])
        path = base.named_image(self.folder, name, self._found, self._path)
        (width, height), *others = sizes = [(row.get("width", ""), row.get("height", "")) for row in rows]
        for row, other in zip(rows[1:], others, strict=True):
            if other != sizes[0]:
                raise DataError(f"{row['where']}: it gives its image another size than the first line about it")
        size = base.parse_size(width, height, rows[0]["where"]) if width or height else None
        return Sample(name, path, base.group_targets(found), size)


def _read_table(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The image of each row, and its cells by their columns, with its place as "where"."""
    rows = base.read_rows(path)
    header = [column.strip() for column in next(rows, (1, []))[1]]
    missing = [column for column in NEEDED if column not in header]
    if missing:
        needed = f"the columns {','.join(NEEDED)} are needed"
        raise DataError(f"{path}, line 1: {needed}, and {','.join(missing)} is not there")
    twice = [column for column in (*NEEDED, "width", "height") if header.count(column) > 1]
    if twice:
        raise DataError(f"{path}, line 1: the column {twice[0]!r} is there twice")
    for number, columns in rows:
        where = f"{path}, line {number}"
        if len(columns) != len(header):
            raise DataError(f"{where}: {len(columns)} columns, but the first line names {len(header)}")
        image = columns[header.index("image")]  # to the letter: the name of a file may end with a space
        if not image:
            raise DataError(f"{where}: the name of an image is missing")
        cells = {column: cell.strip() for column, cell in zip(header, columns, strict=True)}
        yield image, {**cells, "where": where}
