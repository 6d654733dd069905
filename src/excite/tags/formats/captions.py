"""Captions turned into tags: the words that people chose for a picture, those that most of them chose first."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from excite.errors import DataError
from excite.tags.formats.caption_files import read_captions
from excite.tags.formats.stop_words import STOP_WORDS
from excite.tags.formats.writing import write_corpus
from excite.tags.normalising import Normalising

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

__all__ = ["CaptionWords", "captions_to_corpus"]

WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")  # letters, with apostrophes and hyphens between them
APOSTROPHES = str.maketrans("\N{RIGHT SINGLE QUOTATION MARK}\N{MODIFIER LETTER APOSTROPHE}", "''")
LONGEST = 10_000  # letters of a caption that are looked at


class CaptionWords:
    """The words of captions that may be tags.

    Words are letters, with apostrophes and hyphens between them, in small letters, without the possessive 's. Stop
    words are left out as they are written (so "cans" becomes "can", which as a verb is a stop word), and so are single
    letters.

    Args:
        plurals: make English plurals singular.
        stop_words: words that are no tags.

    Example:
        >>> CaptionWords()(["A man walks two dogs.", "The dog's leash is red", "dogs on a leash"])
        ['dog', 'leash', 'man', 'walk', 'red']
    """

    def __init__(self, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS) -> None:
        self.stop_words = stop_words
        self.normalise = Normalising(plurals=plurals)
        self.known: dict[str, str] = {}

    def __call__(self, captions: Sequence[str]) -> list[str]:
        """The words of a picture's captions: those in more of them first, then those that come first."""
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(list(dict.fromkeys(self._words(caption))))
        return [word for word, _ in counts.most_common()]

    def _words(self, caption: str) -> list[str]:
        text = normalize("NFKC", caption[:LONGEST]).casefold().translate(APOSTROPHES)
        found = (word.removesuffix("'s") for word in WORD.findall(text))
        return [tag for word in found if word not in self.stop_words and len(tag := self._tag(word)) > 1]

    def _tag(self, word: str) -> str:
        """The word's form; words come again and again."""
        if word not in self.known:
            self.known[word] = self.normalise(word)[0]
        return self.known[word]


def captions_to_corpus(
    path: Path, out: Path, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS
) -> dict[str, Any]:
    """Make a corpus of a caption file: its pictures with the words of their captions as tags, and no users.

    Args:
        path: a caption file as `excite.tags.formats.caption_files.read_captions` takes it.
        out: the Parquet file; it is there when it is whole.
        plurals: make English plurals singular.
        stop_words: words that are no tags.

    Returns:
        How many ``pictures`` and ``captions`` there were, how many ``words`` became tags and how many ``distinct``
        ones, and the rows that were ``skipped``, by reason.

    Raises:
        DataError: the file cannot be read, is no caption file, or holds not one word that may be a tag.

    Example:
        >>> captions_to_corpus(Path("captions_val2017.json"), Path("corpus.parquet"))   # doctest: +SKIP
        {'pictures': 5000, 'captions': 25014, 'words': ...
    """
    skipped: Counter[str] = Counter()
    captions = read_captions(path, skipped)
    words = CaptionWords(plurals=plurals, stop_words=stop_words)
    records = [(image, words(some), None) for image, some in captions.items()]
    if not any(tags for _, tags, _ in records):
        raise DataError(f"the captions of {path} hold no word that may be a tag: is the list of stop words too long?")
    write_corpus(records, out)
    return {
        "pictures": len(records),
        "captions": sum(map(len, captions.values())),
        "words": sum(len(tags) for _, tags, _ in records),
        "distinct": len({tag for _, tags, _ in records for tag in tags}),
        "skipped": dict(skipped),
    }
