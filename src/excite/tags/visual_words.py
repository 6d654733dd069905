"""Which tags are visual: words for something that can be seen in an image.

There is no list of all visual words, so there are two measures, each with its own blind spot:

* **named**: the tag is a word for something that a classifier of this package knows: a label of ImageNet or COCO, a
  synonym, or an everyday word for a group of labels. Plurals count, and so does the last word of a compound ("old
  dog"). This needs no images, but covers objects, animals and people only: "sunset", "red" and "beach" are visual and
  not named, and "hot" (ImageNet has "red hot", a sausage) is named and not visual.
* **learnt**: a trained tag classifier finds the tag in held-out images: its average precision is at least 5 times the
  share of images that list it, which is the precision of guessing. This depends on the classifier and its data: a rare
  tag may be visual and not learnt, and a tag that always comes with something visible ("holiday" with beaches) is
  learnt.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from excite.errors import DataError, visible
from excite.vocabulary.inflection import singulars
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from pathlib import Path

    from excite.tags.dictionary import Dictionary
    from excite.vocabulary import Labels


LONGEST_SHOWN = 60  # characters of a tag in a message
TIMES_CHANCE = 5.0
COLUMNS = ("tag", "precision", "share")


def shown(text: str) -> str:
    r"""A tag or a user for one line of a terminal: cut to 60 characters, control characters escaped.

    Example:
        >>> shown("dog"), shown("\x1b[2J" + "very " * 100)
        ('dog', '\\x1b[2Jvery very very very very very very very very very very ...')
    """
    return visible(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "...")


def known_words(labels: Labels) -> frozenset[str]:
    """All words for a label or a group of labels: names, synonyms, their last words, and kinds.

    These are the words that `Labels.find` accepts, but for prefixes and numbers of labels.

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
        path: the measures of a training, a CSV file with the columns ``tag``, ``precision`` (average precision on
            held-out images) and ``share`` (of these images that list the tag), and any others. Tags without a
            precision, which no such image lists, are left out.

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
        measured = {line["tag"]: [float(line[name] or "nan") for name in COLUMNS[1:]] for line in lines}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the measures {path}: {' '.join(str(error).split())}") from None
    return {
        tag: precision >= TIMES_CHANCE * share
        for tag, (precision, share) in measured.items()
        if math.isfinite(precision) and share > 0
    }


def visual_share(dictionary: Dictionary, is_visual: Callable[[str], bool]) -> dict[str, Any]:
    """The visual share of a dictionary: of its tags, and of their listings.

    Returns:
        ``judged``, the number of tags; the shares ``of_tags`` and ``of_listed``, None for an empty dictionary.

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
    """The learnt share of the measured part of a dictionary.

    Raises:
        DataError: none of its tags was measured.

    Example:
        >>> from excite.tags.dictionary import Dictionary
        >>> learnt_share(Dictionary(("nature", "dog", "emu"), (30, 10, 1)), {"dog": True, "nature": False})
        {'judged': 2, 'of_tags': 0.5, 'of_listed': 0.25}
    """
    measured = [one for one in zip(dictionary.tags, dictionary.counts, strict=True) if one[0] in learnt]
    if not measured:
        raise DataError("the measures are of other tags: none of them is in this dictionary")
    return visual_share(dictionary.ranked(measured), learnt.__getitem__)
