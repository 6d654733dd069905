"""How words are written: one spelling for all that mean the same, and words in a sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["fold", "listed", "singulars", "unblank"]

MOST_CANDIDATES = 8
BETWEEN_WORDS = re.compile(r"[\s_-]+")
PLURAL_ENDINGS = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", ""))


def fold(text: str) -> str:
    """One spelling for all that mean the same: "Tabby_cat" and " tabby-cat" are both "tabby cat"."""
    return BETWEEN_WORDS.sub(" ", text.casefold()).strip()


def unblank(word: str) -> str:
    """A folded word without its blanks."""
    return word.replace(" ", "")


def singulars(word: str) -> list[str]:
    """What the word may be the plural of, likeliest first; some are no words, which harms nobody."""
    return [word.removesuffix(plural) + singular for plural, singular in PLURAL_ENDINGS if word.endswith(plural)]


def listed(things: Sequence[str]) -> str:
    """The things as a list in a sentence, not longer than one can read."""
    more = len(things) - MOST_CANDIDATES
    return ", ".join(things[:MOST_CANDIDATES]) + (f" and {more} more" if more > 0 else "")
