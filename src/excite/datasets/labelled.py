"""Images with labels but without boxes: a folder for each label, or lines of JSON with the labels of each image."""

import re
from pathlib import Path

from excite.datasets import base
from excite.datasets.base import Dataset, Sample, Target
from excite.errors import DataError, ImageError
from excite.images import find_images

SPLIT_FOLDER = re.compile(r"(train|val|valid|validation|test)\d*", re.IGNORECASE)


class LabelledImages(Dataset):
    """What kinds of objects each image shows, but not where."""

    has_boxes = False
    _pictures: dict[str, tuple[Path, frozenset[str]]]  # the file and the labels of each image

    @property
    def categories(self) -> tuple[str, ...]:
        """The labels that occur, in alphabetical order."""
        return tuple(sorted({label for _, labels in self._pictures.values() for label in labels}))

    def sample(self, name: str) -> Sample:
        """An image and its labels."""
        path, labels = self._pictures[name]
        return Sample(name, path, tuple(Target(label, ()) for label in sorted(labels)))


class LabelFolders(LabelledImages):
    """A folder for each label, with images of that kind in it and below; images beside these folders have none."""

    name = "folders"
    layout = "a folder for each label, as in dog/1.jpg, cat/2.jpg, perhaps below train/ and val/"

    @classmethod
    def _splits_in(cls, folder: Path) -> list[str]:
        splits = [path.name for path in _folders(folder) if SPLIT_FOLDER.fullmatch(path.name)]
        roots = [folder / split for split in splits] or [folder]
        if not all(sum(map(base.has_images, _folders(root))) > 1 for root in roots):  # one label tells nothing apart
            return []
        return splits or ["all"]

    def _read(self) -> list[str]:
        root = self.folder if self.split == "all" else self.folder / self.split
        self._pictures = {}
        for label in filter(base.has_images, _folders(root)):
            try:
                found = find_images(str(label))
            except ImageError:  # all of them hidden
                continue
            self._pictures |= {path.relative_to(root).as_posix(): (path, frozenset({label.name})) for path in found}
        return list(self._pictures)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder that are not hidden, in alphabetical order."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


class LabelLines(LabelledImages):
    """A file of JSON lines for each split, which names images in the folder of the split."""

    name = "labels"
    layout = 'annotations/labels_SPLIT.jsonl with {"file": NAME, "labels": [CATEGORY, ...]} a line, images in SPLIT/'
    _split_file = "annotations/labels_{}.jsonl"

    def _read(self) -> list[str]:
        path = self._split_path()
        lines = [(number, line) for number, line in enumerate(base.read_text(path).splitlines(), 1) if line]
        found = [self._line(line, f"{path}, line {number}") for number, line in lines]
        self._pictures = {file: (image, labels) for file, image, labels in found}
        if len(self._pictures) < len(found):
            raise DataError(f"{path} has several lines for the same image")
        if not self.categories:
            raise DataError(f"{path} names no categories: there is nothing to learn")
        return list(self._pictures)

    def _line(self, line: str, where: str) -> tuple[str, Path, frozenset[str]]:
        entry = base.parse_json(line, where)
        file, labels = (entry.get("file"), entry.get("labels")) if isinstance(entry, dict) else (None, None)
        is_list = isinstance(labels, list) and all(isinstance(label, str) and label.strip() for label in labels)
        if not isinstance(file, str) or labels is None or not is_list:
            raise DataError(f'{where}: {{"file": NAME, "labels": [CATEGORY, ...]}} was expected')
        return file, base.image_path(self.folder / self.split, file, where), frozenset(labels)
