"""Which tags are visual: words for something that can be seen in a picture.

Nobody has a list of all visual words. So there are two measures, each with its own blind spot; both are always printed
with their names:

* **named**: the tag is a word for something that a classifier of this package knows: a label of ImageNet or COCO, a
  synonym, or an everyday word for a group of labels. It may stand in the plural, and of a compound the last word
  counts ("old dog"). This needs no pictures, but knows objects, animals and people only: "sunset", "red" and "beach"
  are visual and not named, and "hot" (ImageNet has "red hot", a sausage) is named and not visual.
* **learnt**: a tag classifier that was trained on such pictures finds the tag in pictures it has not seen: its average
  precision is at least 5 times the share of pictures that list it, which is the precision of guessing. This depends on
  the classifier and on how much it has seen: a rare tag may be visual and not learnt, and a tag that always comes with
  something visible ("holiday" with beaches) is learnt.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from excite.errors import DataError
from excite.vocabulary.labels import fold, singulars

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from pathlib import Path

    from excite.tags.dictionary import Dictionary
    from excite.vocabulary import Labels

__all__ = ["TIMES_CHANCE", "is_named", "known_words", "learnt_share", "learnt_tags", "visual_share"]

TIMES_CHANCE = 5.0
COLUMNS = ("tag", "precision", "share")


def known_words(labels: Labels) -> frozenset[str]:
    """All words that mean a label or several: names, synonyms, their last words, and kinds.

    These are the words that `Labels.find` takes, but for beginnings of words and numbers of labels: a tag is none.

    Example:
        >>> from excite.vocabulary import imagenet_labels
        >>> words = known_words(imagenet_labels())
        >>> [word in words for word in ("beagle", "dog", "terrier", "holiday", "bea")]
        [True, True, True, False, False]
    """
    synonyms = {fold(word) for unit in range(len(labels)) for word in labels.synonyms(unit)}
    return frozenset(synonyms | {word.split()[-1] for word in synonyms} | set(labels.kinds))


def is_named(tag: str, words: Container[str]) -> bool:
    """Whether a tag, or its last word, is among those words, as it is or as a plural.

    Example:
        >>> [is_named(tag, {"dog", "hot dog"}) for tag in ("Old Dogs", "hot-dog", "dog show")]
        [True, True, False]
    """
    whole = fold(tag)
    if not whole:
        return False
    return any(form in words for word in (whole, whole.split()[-1]) for form in (word, *singulars(word)))


def learnt_tags(path: Path) -> dict[str, bool]:
    r"""Whether a classifier has learnt each tag that it was measured on.

    Args:
        path: what the training measured, a CSV file with the columns ``tag``, ``precision`` (the average precision on
            pictures kept aside) and ``share`` (of these pictures that list the tag), and any others. A tag that no such
            picture lists has no precision and is left out.

    Raises:
        DataError: the file cannot be read, or is none of this kind.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("measures.csv").write_text("tag,count,precision,share\ndog,9,0.6,0.02\nholiday,8,0.05,0.02\n")
        >>> learnt_tags(Path("measures.csv"))
        {'dog': True, 'holiday': False}
    """
    try:
        lines = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
        if missing:
            raise DataError(f"{path} holds no measures of tags: it has no column {missing[0]!r}")
        measured = {line["tag"]: (_number(line["precision"]), _number(line["share"])) for line in lines}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the measures {path}: {' '.join(str(error).split())}") from None
    return {
        tag: precision >= TIMES_CHANCE * share
        for tag, (precision, share) in measured.items()
        if math.isfinite(precision) and share > 0
    }


def visual_share(dictionary: Dictionary, is_visual: Callable[[str], bool]) -> dict[str, Any]:
    """How much of a dictionary is visual: of its tags, and of how often they are listed.

    Returns:
        ``judged``, the number of tags; the shares ``of_tags`` and ``of_listed``, None where there is nothing.

    Example:
        >>> from excite.tags.dictionary import Dictionary
        >>> visual_share(Dictionary(("nature", "dog"), (30, 10)), {"dog"}.__contains__)
        {'judged': 2, 'of_tags': 0.5, 'of_listed': 0.25}
    """
    counts = [count for tag, count in zip(dictionary.tags, dictionary.counts, strict=True) if is_visual(tag)]
    listed = sum(dictionary.counts)
    return {
        "judged": len(dictionary),
        "of_tags": len(counts) / len(dictionary) if len(dictionary) else None,
        "of_listed": sum(counts) / listed if listed else None,
    }


def learnt_share(dictionary: Dictionary, learnt: Mapping[str, bool]) -> dict[str, Any]:
    """How much of the measured part of a dictionary was learnt.

    Raises:
        DataError: nothing of it was measured.

    Example:
        >>> from excite.tags.dictionary import Dictionary
        >>> learnt_share(Dictionary(("nature", "dog", "emu"), (30, 10, 1)), {"dog": True, "nature": False})
        {'judged': 2, 'of_tags': 0.5, 'of_listed': 0.25}
    """
    measured = [one for one in zip(dictionary.tags, dictionary.counts, strict=True) if one[0] in learnt]
    if not measured:
        raise DataError("the measures are of other tags: none of them is in this dictionary")
    return visual_share(dictionary.ranked(measured), learnt.__getitem__)


def _number(text: str | None) -> float:
    """A number; what is left empty was not measured."""
    return float(text) if text else math.nan
