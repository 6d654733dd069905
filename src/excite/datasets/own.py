"""Pictures of one's own, annotated in VOC's or in COCO's format, in no particular layout."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from excite.datasets.coco import Coco
from excite.datasets.dataset import picture_in
from excite.datasets.voc import Voc
from excite.errors import DataError, ImageError
from excite.images import PICTURE_SUFFIXES, find_images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["JsonFolder", "XmlFolder"]

ANNOTATIONS = (".", "Annotations", "annotations")
"""Where annotation files are looked for, below the folder."""


class XmlFolder(Voc):
    """A picture's XML file in VOC's format has its name and lies beside it, or in ``Annotations/``."""

    name = "xml"
    layout = "*.xml or Annotations/*.xml in VOC's format, pictures of the same names anywhere below"

    def _splits(self) -> list[str]:
        return ["all"]

    def _read(self) -> list[str]:
        self._files = _files(self.folder, ".xml")
        self._pictures = _pictures_by(lambda path: path.stem, self.folder)
        return list(self._files)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are XML files, without VOC's lists of pictures."""
        return not Voc.is_in(folder) and any(_paths(folder, ".xml"))

    def _annotation(self, name: str) -> Path:
        return self._files[name]

    def _picture(self, name: str) -> Path:
        return _only(self._pictures.get(name, []), self.folder / f"{name}.jpg", self._files[name])


class JsonFolder(Coco):
    """A JSON file in COCO's format lies in the folder or in ``annotations/``; several are its splits."""

    name = "json"
    layout = "a *.json or annotations/*.json in COCO's format, its pictures anywhere below"

    def _splits(self) -> list[str]:
        return list(_files(self.folder, ".json"))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are JSON files, none called as COCO's own, and pictures."""
        return not Coco.is_in(folder) and any(_paths(folder, ".json")) and _holds_pictures(folder)

    def _annotations_of(self, split: str) -> Path:
        return _files(self.folder, ".json")[split]

    def _folder_of_pictures(self) -> Path:
        self._found = _pictures_by(lambda path: path.name, self.folder)
        return self.folder

    def _picture(self, name: str) -> Path:
        """As the file says, below the folder; or of that name, wherever it is."""
        path = picture_in(self.folder, name, str(self._path))
        return path if path.is_file() else _only(self._found.get(PurePosixPath(name).name, []), path, self._path)


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


def _pictures_by(key: Callable[[Path], str], folder: Path) -> dict[str, list[Path]]:
    """All pictures below a folder, by their names."""
    answer: dict[str, list[Path]] = defaultdict(list)
    try:
        for path in find_images(str(folder)):
            answer[key(path)].append(path)
    except ImageError as error:
        raise DataError(f"{str(folder)!r} has annotations but no pictures to them: {error}") from None
    return dict(answer)


def _only(found: Sequence[Path], usual: Path, annotation: Path) -> Path:
    """The one picture that was found; without any, where it would usually be: reading it says that it is missing."""
    if len(found) > 1:
        raise DataError(f"{annotation}: {str(found[0])!r} and {str(found[1])!r} both have the name of its picture")
    return found[0] if found else usual


def _holds_pictures(folder: Path) -> bool:
    return any(path.suffix.lower() in PICTURE_SUFFIXES for path in folder.rglob("*"))
