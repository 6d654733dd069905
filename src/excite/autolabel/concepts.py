"""What to look for in which picture, and what its boxes are called."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.errors import ConceptError
from excite.vocabulary.labels import fold, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from excite.autolabel.inputs import Picture
    from excite.vocabulary import Concept, Labels

__all__ = ["Wanted", "category", "check_labels", "folders_of", "misread", "understood"]

NO_TEXT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # neither XML nor UTF-8 has all of the rest


@dataclass(frozen=True)
class Wanted:
    """Something to look for.

    Attributes:
        category: what its boxes are called: the user's own word.
        cue: what the classifier understands by it; the word itself where the classifier has no words.
    """

    category: str
    cue: Concept | str


def category(word: str) -> str:
    r"""A word as every format can hold it: on one line, with single blanks between its parts.

    Raises:
        ConceptError: it is blank, or holds characters that are no text.

    Example:
        >>> category("tabby\n  cat ")
        'tabby cat'
    """
    name = " ".join(unicodedata.normalize("NFC", word).split())
    if not name:
        raise ConceptError("the concept is blank: name one, or see them all with `excite ls labels`")
    if NO_TEXT.search(name):
        raise ConceptError(f"the concept {name!r} holds characters that no file of boxes can hold: rename it")
    return name


def understood(words: Iterable[str], labels: Labels | None) -> tuple[Wanted, ...]:
    """What the classifier takes each of these words for; a word that is named twice is wanted once.

    Raises:
        ConceptError: it does not know all of them; all that it does not know are named.

    Example:
        >>> from excite.vocabulary import Labels
        >>> understood(["Dogs", "cat", "cat"], Labels(["dog", "cat"]))[0]
        Wanted(category='Dogs', cue=Concept(name='dog', units=(0,)))
    """
    wanted, errors = [], []
    for name in dict.fromkeys(map(category, words)):
        try:
            wanted.append(Wanted(name, name if labels is None else labels.find(name)))
        except ConceptError as error:
            errors.append(str(error))
    if len(errors) > 1:
        raise ConceptError(f"{len(errors)} concepts are unknown. {' '.join(errors)}")
    if errors:
        raise ConceptError(errors[0])
    return tuple(wanted)


def folders_of(pictures: Sequence[Picture]) -> list[str]:
    """The names of the folders in which the pictures lie, in alphabetical order."""
    return sorted({picture.folder for picture in pictures})


def check_labels(labels: Labels | None) -> None:
    """Raise a `ConceptError` if the classifier might find something that cannot be written down."""
    for name in labels or ():
        category(name)


def misread(wanted: Iterable[Wanted]) -> str:
    """Which words were taken for something that is called otherwise, for people to read; blank if none.

    Example:
        >>> from excite.vocabulary import Concept
        >>> misread([Wanted("dogs", Concept("dog", (0,))), Wanted("cat", Concept("cat", (1,)))])
        "'dogs' for 'dog'"
    """
    pairs = [(one.category, one.cue if isinstance(one.cue, str) else one.cue.name) for one in wanted]
    return listed([f"{word!r} for {name!r}" for word, name in pairs if fold(word) != fold(name)])
