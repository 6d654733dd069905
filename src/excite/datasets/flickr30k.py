"""Flickr30k Entities: five sentences for each image, whose noun phrases have boxes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from excite.datasets.base import LONGEST_PART, picture_called, read_lines, read_text
from excite.datasets.phrases import Described, Phrase, PhraseDataset
from excite.datasets.sample import FARTHEST
from excite.datasets.voc import parsed_annotation, size_in
from excite.errors import DataError
from excite.images import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from pathlib import Path
    from xml.etree import ElementTree

    from excite.datasets.sample import Box


# The two kinds of files of Flickr30k Entities: sentences with their phrases marked, and the boxes of the phrases.

MARKED = re.compile(r"\[([^\[\]]*)\]")
MARK = re.compile(r"/EN#(?P<number>\d+)(?P<kinds>(/\w+)+)(\s+(?P<words>.*))?$", re.DOTALL)
CORNERS = ("xmin", "ymin", "xmax", "ymax")


class Mention(NamedTuple):
    """Words of a sentence that were marked, the number of what they refer to, and the kinds of that."""

    words: str
    number: str
    kinds: tuple[str, ...]


@dataclass
class Annotation:
    """What a file of boxes says.

    Attributes:
        boxes: Of each number.
        scenes: The numbers that stand for the whole scene.
        boxless: The numbers that were given no box.
        size: Width and height of the image, where that is written.
        left_out: Why boxes cannot be used, with how often.
    """

    size: tuple[int, int] | None = None
    boxes: dict[str, list[Box]] = field(default_factory=lambda: defaultdict(list))
    scenes: set[str] = field(default_factory=set)
    boxless: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)


def mentions(sentence: str, left_out: Counter[str]) -> tuple[str, list[Mention]]:
    """A sentence without its marks, and what was marked: ``[/EN#NUMBER/KIND/KIND... WORDS]``.

    Args:
        sentence: a line of a file of sentences.
        left_out: where what cannot be read is counted.

    Example:
        >>> mentions("[/EN#7/people Two men] walk [/EN#8/animals a dog] .", Counter())[0]
        'Two men walk a dog .'
    """
    if re.search(r"[\[\]]", MARKED.sub("", sentence)):
        left_out["sentences with unbalanced brackets"] += 1
        return "", []
    found = []
    for marked in MARKED.findall(sentence):
        mark = MARK.match(marked)
        if mark is None:
            left_out["phrases without a number or a kind"] += 1
        elif not (mark["words"] or "").strip():
            left_out["phrases without words"] += 1
        else:
            kinds = tuple(dict.fromkeys(mark["kinds"].strip("/").split("/")))
            found.append(Mention(" ".join(mark["words"].split()), mark["number"], kinds))
    plain = MARKED.sub(lambda match: re.sub(r"^/\S*", "", match[1]), sentence)
    return " ".join(plain.split()), found


def read_annotation(path: Path) -> Annotation:
    """The boxes of an image. An object has one or several numbers, and a box, or says that it has none.

    Pixels are counted from 1 and a box's last one is part of it, as the authors' own programs read it: that for Python
    takes 1 from all corners, that for MATLAB (which counts from 1) takes them as they are, and both count ``xmax - xmin
    + 1`` pixels.

    Raises:
        DataError: the file cannot be read, or is broken.

    Example:
        >>> read_annotation(Path("Annotations/36979.xml")).size  # doctest: +SKIP
        (500, 375)
    """
    root = parsed_annotation(path)
    answer = Annotation(size_in(root, str(path)))
    for element in root.iterfind("object"):
        numbers = [name.text.strip() for name in element.iterfind("name") if name.text and name.text.strip()]
        if not numbers:
            answer.left_out["objects without a number"] += 1
        elif element.find("bndbox") is not None:
            _add_box(element, numbers, answer)
        elif _flag(element, "scene"):
            answer.scenes.update(numbers)
        elif _flag(element, "nobndbox"):
            answer.boxless.update(numbers)
        else:
            answer.left_out["objects with neither a box nor a word why not"] += 1
    return answer


def _add_box(element: ElementTree.Element, numbers: list[str], answer: Annotation) -> None:
    try:
        xmin, ymin, xmax, ymax = (float(element.findtext(f"bndbox/{side}") or "") for side in CORNERS)
    except ValueError:
        answer.left_out["boxes that are not four numbers"] += 1
        return
    if not (-FARTHEST <= xmin <= xmax <= FARTHEST and -FARTHEST <= ymin <= ymax <= FARTHEST):  # NaN has no order
        answer.left_out["boxes inside out"] += 1
        return
    box = (xmin - 1, ymin - 1, xmax, ymax)
    if _outside(box, answer.size):
        answer.left_out["boxes outside of their image"] += 1
        return
    for number in dict.fromkeys(numbers):
        answer.boxes[number].append(box)


def _outside(box: Box, size: tuple[int, int] | None) -> bool:
    return box[2] <= 0 or box[3] <= 0 or (size is not None and (box[0] >= size[0] or box[1] >= size[1]))


def _flag(element: ElementTree.Element, tag: str) -> bool:
    return (element.findtext(tag) or "").strip() not in {"", "0"}


# Flickr30k Entities: five sentences for each image, whose noun phrases have boxes.

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
        """An image and the phrases of its sentences."""
        return self._described[name]

    def _folder_of_pictures(self) -> Path:
        """Where the images are. They come from elsewhere than the annotations, and may be forgotten."""
        found = next((self.folder / name for name in PICTURE_FOLDERS if (self.folder / name).is_dir()), None)
        if found is None:
            raise DataError(
                f"{str(self.folder)!r} has no images: put them, or a link to their folder, into "
                f"{str(self.folder / PICTURE_FOLDERS[0])!r}"
            )
        return found

    def _add(self, name: str) -> None:
        """Keep an image with its phrases, or count why it cannot be used."""
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
