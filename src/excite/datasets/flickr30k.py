"""Flickr30k Entities: five sentences for each picture, whose noun phrases have boxes."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from excite.datasets.base import LONGEST_PART, picture_called, read_text
from excite.datasets.flickr30k_files import Annotation, Mention, mentions, read_annotation
from excite.datasets.lines import read_lines
from excite.datasets.phrases import Described, Phrase, PhraseDataset
from excite.errors import DataError
from excite.images import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Flickr30kEntities"]

GROUPS = ("people", "clothing", "bodyparts", "animals", "vehicles", "instruments", "scene", "other")
"""As the files call them, in the order of the paper's table, which has some in the singular."""

PICTURE_FOLDERS = ("flickr30k-images", "flickr30k_images", "images", "Images")


class Flickr30kEntities(PhraseDataset):
    """Pictures of people doing things. A phrase with several kinds counts for each, as in its authors' evaluation."""

    name = "flickr30k"
    layout = "Sentences/*.txt, Annotations/*.xml, SPLIT.txt, flickr30k-images/*.jpg"

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.folder = folder
        super().__init__(folder, "test" if split is None and "test" in self._splits() else split)

    def _splits(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.txt"))

    def _read(self) -> list[str]:
        self._pictures = self._folder_of_pictures()
        self._described: dict[str, Described] = {}
        for line in dict.fromkeys(read_text(self.folder / f"{self.split}.txt").split()):
            path = PurePosixPath(line)
            self._add(path.stem if path.suffix.lower() in PICTURE_SUFFIXES else line)
        return list(self._described)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are sentences and annotations."""
        return any(folder.glob("Sentences/*.txt")) and any(folder.glob("Annotations/*.xml"))

    @property
    def groups(self) -> tuple[str, ...]:
        """The eight kinds of things."""
        return GROUPS

    def sample(self, name: str) -> Described:
        """A picture and the phrases of its sentences."""
        return self._described[name]

    def _folder_of_pictures(self) -> Path:
        """Where the pictures are. They come from elsewhere than the annotations, and may be forgotten."""
        found = next((self.folder / name for name in PICTURE_FOLDERS if (self.folder / name).is_dir()), None)
        if found is None:
            raise DataError(
                f"{str(self.folder)!r} has no pictures: put them, or a link to their folder, into "
                f"{str(self.folder / PICTURE_FOLDERS[0])!r}"
            )
        return found

    def _add(self, name: str) -> None:
        """Keep a picture with its phrases, or count why it cannot be used."""
        sentences = self.folder / "Sentences" / f"{name}.txt"
        annotation = self.folder / "Annotations" / f"{name}.xml"
        if len(name.encode()) > LONGEST_PART - len(".jpeg"):
            missing = "picture"  # no file's name is so long
        else:
            picture = picture_called(self._pictures, name, str(self.folder / f"{self.split}.txt"))
            files = {"picture": picture, "file of sentences": sentences, "file of boxes": annotation}
            missing = next((what for what, path in files.items() if not path.is_file()), "")
        if missing:
            self.left_out[f"names whose {missing} is missing"] += 1
            return
        try:
            lines, boxes = list(read_lines(sentences)), read_annotation(annotation)
        except DataError:
            self.left_out["pictures whose sentences or annotations are broken"] += 1
            return
        self.left_out.update(boxes.left_out)
        phrases = tuple(phrase for line in lines for phrase in self._phrases(line, boxes))
        if phrases:
            self._described[name] = Described(name, picture, phrases, boxes.size)
        else:
            self.left_out["pictures without a phrase that has a box"] += 1

    def _phrases(self, line: str, boxes: Annotation) -> list[Phrase]:
        sentence, found = mentions(line, self.left_out)
        answer = []
        for mention in found:
            problem = _problem(mention, boxes)
            if problem:
                self.left_out[problem] += 1
                continue
            group, *also = (kind for kind in mention.kinds if kind in GROUPS)
            answer.append(Phrase(mention.words, tuple(boxes.boxes[mention.number]), group, sentence, tuple(also)))
        return answer


def _problem(mention: Mention, boxes: Annotation) -> str:
    """Why a phrase cannot be used; blank where it can."""
    if mention.number == "0" or "notvisual" in mention.kinds:
        return "phrases that are not visual"
    if not set(mention.kinds) & set(GROUPS):
        return "phrases of an unknown kind"
    if mention.number in boxes.boxes:
        return ""
    if mention.number in boxes.scenes:
        return "phrases that stand for the whole scene, without a box"
    if mention.number in boxes.boxless:
        return "phrases marked as having no box"
    return "phrases whose boxes are missing or unusable"
