"""Ranked boxes of other systems, from files, to stand beside one's own: on the same phrases, counted the same way."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from excite.datasets.base import read_text
from excite.datasets.lines import read_lines
from excite.datasets.masks import FARTHEST
from excite.errors import DataError
from excite.experiments.grounding.grounding_facts import matches_of, rank_of
from excite.experiments.grounding.grounding_marks import Mention
from excite.images import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.jobs.ledger_init import Entry

__all__ = ["Results", "read_results"]

FORM = '{"image": ..., "phrase": ..., "boxes": [[x0, y0, x1, y1], ...], "scores": [...]}'

USUAL_SUFFIXES = (".jpg", ".jpeg", ".png")

Ranked = tuple[list[list[float]], list[float]]  # boxes and their scores, best first


@dataclass(frozen=True)
class Results:
    """What another system answered.

    Attributes:
        name: of the system.
        answers: by picture and folded phrase; those to the same phrase in the order of the file.
    """

    name: str
    answers: Mapping[tuple[str, str], Sequence[Ranked]]

    def mentions(self, records: Sequence[Entry], truth: str) -> tuple[list[Mention], int]:
        """What it makes of all phrases of the records, and how many of these it has no answer to: those are missed.

        An answer stands for all mentions of the same words in a picture; of several, each mention takes the next.
        """
        found, missing = [], 0
        for number, record in enumerate(records):
            turns: dict[str, int] = defaultdict(int)
            for phrase in record["phrases"]:
                text = _folded(phrase["text"])
                given = self._answers(record["image"], text)
                boxes, scores = given[min(turns[text], len(given) - 1)] if given else ([], [])
                turns[text] += 1
                missing += not given
                hit = rank_of(matches_of(boxes, phrase["boxes"])[truth]) if boxes else None
                groups, small = tuple(phrase["groups"]), phrase["small"][truth]
                found.append(Mention(number, phrase["text"], groups, small, hit, scores, None))
        return found, missing

    def _answers(self, image: str, text: str) -> Sequence[Ranked]:
        path = PurePosixPath(image)  # Flickr30k Entities calls its pictures by their numbers alone
        missing = () if path.suffix.lower() in PICTURE_SUFFIXES else USUAL_SUFFIXES
        names = (image, path.name, path.stem, *(f"{path.name}{one}" for one in missing))
        return next((self.answers[name, text] for name in names if (name, text) in self.answers), ())


def read_results(name: str, path: Path) -> Results:
    """The results of another system: JSON Lines, or one JSON list, of objects with a picture, a phrase and boxes.

    Args:
        name: of the system.
        path: the file.

    Raises:
        DataError: the file cannot be read, or is something else.

    Example:
        >>> cca = read_results("CCA", Path("cca.jsonl"))  # doctest: +SKIP
    """
    answers: dict[tuple[str, str], list[Ranked]] = defaultdict(list)
    for where, entry in _entries(path):
        image, phrase, ranked = _checked(where, entry)
        answers[image, _folded(phrase)].append(ranked)
    if not answers:
        raise DataError(f"{path}: it has no results; each is {FORM}")
    return Results(name, dict(answers))


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """The objects of a file, each with where it stands."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _broken(str(path), error) from None
        yield from ((f"{path}, entry {number}", entry) for number, entry in enumerate(listed, 1))
        return
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _broken(f"{path}, line {number}", error) from None


def _broken(where: str, error: Exception) -> DataError:
    """Also a number of thousands of digits, which is a ValueError, is broken."""
    return DataError(f"{where}: broken JSON ({error})")


def _checked(where: str, entry: Any) -> tuple[str, str, Ranked]:
    """A picture, a phrase and its boxes, best first; of equal scores, in the order of the file."""
    kinds = {"image": str, "phrase": str, "boxes": list, "scores": list}
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), kind) for key, kind in kinds.items()):
        raise DataError(f"{where}: it is no result; each is {FORM}")
    boxes, scores = entry["boxes"], entry["scores"]
    if len(boxes) != len(scores) or not all(map(_is_number, scores)) or not all(map(_is_box, boxes)):
        raise DataError(f"{where}: its boxes are not four numbers and a score each; a result is {FORM}")
    if any(x1 < x0 or y1 < y0 for x0, y0, x1, y1 in boxes):
        raise DataError(f"{where}: a box is inside out: are these a corner, width and height? A result is {FORM}")
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    return entry["image"], entry["phrase"], ([boxes[k] for k in order], [float(scores[k]) for k in order])


def _is_number(value: Any, most: float = sys.float_info.max) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= most  # NaN is not


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(_is_number(side, FARTHEST) for side in value)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
