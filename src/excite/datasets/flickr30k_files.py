"""The two kinds of files of Flickr30k Entities: sentences with their phrases marked, and the boxes of the phrases."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from excite.datasets.masks import FARTHEST
from excite.datasets.objects_xml import parsed_annotation, size_in

if TYPE_CHECKING:
    from pathlib import Path
    from xml.etree import ElementTree

    from excite.datasets.sample import Box

__all__ = ["Annotation", "Mention", "mentions", "read_annotation"]

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
        size: Width and height of the picture, where that is written.
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
    """The boxes of a picture. An object has one or several numbers, and a box, or says that it has none.

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
        answer.left_out["boxes outside of their picture"] += 1
        return
    for number in dict.fromkeys(numbers):
        answer.boxes[number].append(box)


def _outside(box: Box, size: tuple[int, int] | None) -> bool:
    return box[2] <= 0 or box[3] <= 0 or (size is not None and (box[0] >= size[0] or box[1] >= size[1]))


def _flag(element: ElementTree.Element, tag: str) -> bool:
    return (element.findtext(tag) or "").strip() not in {"", "0"}
