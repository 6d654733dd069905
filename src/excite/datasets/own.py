"""Pictures of one's own, annotated in VOC's or in COCO's format, in no particular layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.datasets.coco import Coco
from excite.datasets.imagenet import ImageNet
from excite.datasets.pictures import holds_pictures, named_picture, only_picture, pictures_by
from excite.datasets.voc import Voc
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        self._pictures = pictures_by(lambda path: path.stem, self.folder)
        return list(self._files)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are XML files, without VOC's lists of pictures; ImageNet's count pixels otherwise."""
        return not Voc.is_in(folder) and any(_paths(folder, ".xml")) and not ImageNet.is_in(folder)

    def _annotation(self, name: str) -> Path:
        return self._files[name]

    def _picture(self, name: str) -> Path:
        return only_picture(self._pictures.get(name, []), self.folder / f"{name}.jpg", self._files[name])


class JsonFolder(Coco):
    """A JSON file in COCO's format lies in the folder or in ``annotations/``; several are its splits."""

    name = "json"
    layout = "a *.json or annotations/*.json in COCO's format, its pictures anywhere below"

    def _splits(self) -> list[str]:
        return list(_files(self.folder, ".json"))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are JSON files, none called as COCO's own, and pictures."""
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
