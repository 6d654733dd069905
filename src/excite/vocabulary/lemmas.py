"""The dictionary form of a word: "men" and "man", "sits" and "sit", "older" and "old" say the same."""

from __future__ import annotations

from functools import lru_cache

from excite.errors import ExciteError
from excite.vocabulary.inflection import singular

__all__ = ["forms", "noun_forms"]

REMEMBERED = 2**14  # words; those of a language come again and again
NO_PLURAL = ("ss", "us", "is")  # glass, bus, tennis


@lru_cache(REMEMBERED)
def forms(word: str) -> tuple[str, ...]:
    """The word itself, then what it may be a form of: first as a noun, then as a verb or an adjective.

    Nouns come first, as most words of a phrase that name something to be seen are nouns; the library knows "leaves" as
    a form of "leave" only.

    Args:
        word: in small letters; of several, parted by single blanks, the last is the one that bends.

    Raises:
        ExciteError: simplemma is not installed.

    Example:
        >>> [forms(word) for word in ("sits", "older", "traffic lights", "bus")]
        [('sits', 'sit'), ('older', 'old'), ('traffic lights', 'traffic light'), ('bus',)]
    """
    before, blank, last = word.rpartition(" ")
    lemma = before + blank + _lemma(last) if last else word
    return tuple(dict.fromkeys((*noun_forms(word), lemma)))


def noun_forms(word: str) -> tuple[str, ...]:
    """The word itself, then its singulars, if it may be a plural; some are no words, which harms nobody.

    A word that is a plural as a rule ("jeans") may still be a label without its last letter.

    Example:
        >>> [noun_forms(word) for word in ("women", "jeans", "tvs", "bus", "stop signs", "sitting")]
        [('women', 'woman'), ('jeans', 'jean'), ('tvs', 'tv'), ('bus',), ('stop signs', 'stop sign'), ('sitting',)]
    """
    one = singular(word)
    if one == word and word.endswith("s") and not word.endswith(NO_PLURAL):
        one = word[:-1]
    return tuple(dict.fromkeys((word, one)))


def _lemma(word: str) -> str:
    try:
        import simplemma
    except ImportError:
        raise ExciteError("phrases are read with simplemma: pip install 'excite[ground]'") from None
    return simplemma.lemmatize(word, lang="en").lower()
