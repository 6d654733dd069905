"""Words of captions for the categories of COCO, and words that mean people.

recipes/make_coco_words.py makes the text of the first, recipes/make_wordnet_kinds.py that of the second.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from excite.vocabulary.word_lists import rows

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PERSON", "coco_categories", "person_words"]

PERSON = "person"


@cache
def coco_categories() -> Mapping[str, str]:
    """The category that each word is known for, the categories' own names included; all in small letters.

    Example:
        >>> [coco_categories()[word] for word in ("taxi", "lady", "stop light", "zebra")]
        ['car', 'person', 'traffic light', 'zebra']
    """
    return {word: words[0] for words in rows("coco.txt") for word in words}


@cache
def person_words() -> frozenset[str]:
    """Words that mostly mean people, by WordNet.

    Example:
        >>> [word in person_words() for word in ("umpire", "dude", "hot dog", "table")]
        [True, True, False, False]
    """
    return frozenset(word for (word,) in rows("persons.txt"))
