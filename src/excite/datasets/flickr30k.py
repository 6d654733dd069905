"""Flickr30k Entities: five sentences for each image, whose noun phrases have boxes."""

import re
from collections import Counter, defaultdict
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.etree import ElementTree

from excite.datasets import base
from excite.datasets.base import FARTHEST, LONGEST_PART, Box, Phrase, PhraseDataset, PhraseSample
from excite.datasets.voc import SIDES, annotated_size, parse_annotation
from excite.errors import DataError
from excite.images import PICTURE_SUFFIXES

GROUPS = ("people", "clothing", "bodyparts", "animals", "vehicles", "instruments", "scene", "other")
"""The kinds of objects, in the order of the data set's paper."""

IMAGE_FOLDERS = ("flickr30k-images", "flickr30k_images", "images", "Images")
MARKED = re.compile(r"\[([^\[\]]*)\]")
MARK = re.compile(r"/EN#(?P<number>\d+)(?P<kinds>(/\w+)+)(\s+(?P<words>.*))?$", re.DOTALL)
SCENE, BOXLESS = "phrases that stand for the whole scene, without a box", "phrases marked as having no box"


class Flickr30kEntities(PhraseDataset):
    """Images of people doing things. A phrase with several kinds counts for each, as in its authors' evaluation."""

    name = "flickr30k"
    layout = "Sentences/*.txt, Annotations/*.xml, SPLIT.txt, flickr30k-images/*.jpg"
    groups = GROUPS
    _split_file = "{}.txt"

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.folder = folder
        super().__init__(folder, "test" if split is None and "test" in self._splits() else split)

    def _read_samples(self) -> None:
        names = (self.folder / name for name in IMAGE_FOLDERS)
        pictures = next((folder for folder in names if folder.is_dir()), None)
        if pictures is None:  # they come from elsewhere than the annotations, and may be forgotten
            usual = str(self.folder / IMAGE_FOLDERS[0])
            raise DataError(f"{str(self.folder)!r} has no images: put them, or a link to their folder, into {usual!r}")
        for line in dict.fromkeys(base.read_text(self._split_path()).split()):
            path = PurePosixPath(line)
            self._add(path.stem if path.suffix.lower() in PICTURE_SUFFIXES else line, pictures)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are sentences and annotations."""
        return any(folder.glob("Sentences/*.txt")) and any(folder.glob("Annotations/*.xml"))

    def _add(self, name: str, images: Path) -> None:
        """Add an image with its phrases, or count the reason against it."""
        sentences = self.folder / "Sentences" / f"{name}.txt"
        annotation = self.folder / "Annotations" / f"{name}.xml"
        if len(name.encode()) > LONGEST_PART - len(".jpeg"):
            missing = "image"  # no file's name is so long
        else:
            image = base.image_with_stem(images, name, str(self._split_path()))
            files = {"image": image, "file of sentences": sentences, "file of boxes": annotation}
            missing = next((what for what, path in files.items() if not path.is_file()), "")
        if missing:
            self.left_out[f"names whose {missing} is missing"] += 1
            return
        try:
            lines, root = list(base.read_lines(sentences)), parse_annotation(annotation)
            size = annotated_size(root, str(annotation))
        except DataError:
            self.left_out["images whose sentences or annotations are broken"] += 1
            return
        boxes, reasons = read_boxes(root, size, self.left_out)
        phrases = tuple(phrase for line in lines for phrase in self._phrases(line, boxes, reasons))
        if phrases:
            self._samples[name] = PhraseSample(name, image, phrases, size)
        else:
            self.left_out["images without a phrase that has a box"] += 1

    def _phrases(self, line: str, boxes: dict[str, list[Box]], reasons: dict[str, str]) -> list[Phrase]:
        """The phrases of a sentence that have boxes; the reasons against all others are counted."""
        sentence, found = mentions(line, self.left_out)
        phrases = []
        for words, number, kinds in found:
            groups = [kind for kind in kinds if kind in GROUPS]
            if number == "0" or "notvisual" in kinds:
                self.left_out["phrases that are not visual"] += 1
            elif not groups:
                self.left_out["phrases of an unknown kind"] += 1
            elif number not in boxes:
                self.left_out[reasons.get(number, "phrases whose boxes are missing or unusable")] += 1
            else:
                phrases.append(Phrase(words, tuple(boxes[number]), groups[0], sentence, tuple(groups[1:])))
        return phrases


# The two kinds of files: sentences with marked phrases, and the boxes of the phrases.


class MarkedPhrase(NamedTuple):
    """A marked phrase of a sentence, with the number and the kinds of the entity it refers to."""

    words: str
    number: str
    kinds: tuple[str, ...]


def mentions(sentence: str, left_out: Counter[str]) -> tuple[str, list[MarkedPhrase]]:
    """A sentence without its marks, and the phrases marked as ``[/EN#NUMBER/KIND/KIND... WORDS]``."""
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
            found.append(MarkedPhrase(" ".join(mark["words"].split()), mark["number"], kinds))
    plain = MARKED.sub(lambda match: re.sub(r"^/\S*", "", match[1]), sentence)
    return " ".join(plain.split()), found


def read_boxes(
    root: ElementTree.Element, size: tuple[int, int] | None, left_out: Counter[str]
) -> tuple[dict[str, list[Box]], dict[str, str]]:
    """The boxes of each entity, by its number, and the reason of those that have none.

    An object has one or several numbers, and a box or a flag that it has none. Pixels are counted from 1 and the last
    one of a box is included, as in the authors' own programs: the Python one subtracts 1 from all corners, the MATLAB
    one (which counts from 1) does not, and both count ``xmax - xmin + 1`` pixels.
    """
    boxes: dict[str, list[Box]] = defaultdict(list)
    reasons: dict[str, str] = {}
    for element in root.iterfind("object"):
        numbers = [name.text.strip() for name in element.iterfind("name") if name.text and name.text.strip()]
        if not numbers:
            left_out["objects without a number"] += 1
        elif element.find("bndbox") is not None:
            box = _box(element, size)
            if isinstance(box, str):
                left_out[box] += 1
            else:
                for number in dict.fromkeys(numbers):
                    boxes[number].append(box)
        elif _flag(element, "scene"):
            reasons |= dict.fromkeys(numbers, SCENE)
        elif _flag(element, "nobndbox"):
            reasons = dict.fromkeys(numbers, BOXLESS) | reasons
        else:
            left_out["objects with neither a box nor a word why not"] += 1
    return dict(boxes), reasons


def _box(element: ElementTree.Element, size: tuple[int, int] | None) -> Box | str:
    """The box of an object, or the reason against it."""
    try:
        xmin, ymin, xmax, ymax = (float(element.findtext(f"bndbox/{side}") or "") for side in SIDES)
    except ValueError:
        return "boxes that are not four numbers"
    if not (-FARTHEST <= xmin <= xmax <= FARTHEST and -FARTHEST <= ymin <= ymax <= FARTHEST):  # NaN has no order
        return "boxes inside out"
    box = (xmin - 1, ymin - 1, xmax, ymax)
    return "boxes outside of their image" if base.is_outside(box, size) else box


def _flag(element: ElementTree.Element, tag: str) -> bool:
    return (element.findtext(tag) or "").strip() not in {"", "0"}
