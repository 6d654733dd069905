"""The singular of an English noun by rules and exceptions, and the dictionary form of a word by simplemma.

The rules are for tags: a word that is only sometimes a plural stays, and so does one with other letters than a to z.
"""

from functools import lru_cache

from excite.errors import ExciteError
from excite.vocabulary.word_lists import words_of

LEAST = 3  # letters of a singular: "gas" and "bus" are no plurals
IRREGULAR = dict(pair.split(":") for pair in words_of("irregular plurals"))
IRREGULAR |= {word: word for word in words_of("no plurals")}
ENDINGS = dict(  # of plurals, and their singular; the first match counts
    pair.split(":")
    for pair in "men:man shelves:shelf wolves:wolf knives:knife wives:wife ies:y oes:o sses:ss shes:sh ches:ch xes:x "
    "tzes:tz zzes:zz auses:ause ouses:ouse uses:us s:".split()
)
LOOSE_ENDINGS = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", ""))  # of any word that is looked up
NO_PLURAL = ("ss", "us", "is")  # glass, bus, tennis
LAST_LETTERS = frozenset("sn") | {plural[-1] for plural, one in IRREGULAR.items() if plural != one}  # of plurals
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def singular(tag: str) -> str:
    """A tag in lower case, its last word singular if it is an English plural; idempotent."""
    if tag[-1:] not in LAST_LETTERS:
        return tag
    before = tag.rstrip(LETTERS)  # linear in time, unlike a pattern
    word = tag[len(before) :]
    if not word or before.endswith(("'", "\N{RIGHT SINGLE QUOTATION MARK}")):
        return tag
    while (one := _singular(word)) != word:
        word = one
    return before + word


def _singular(word: str) -> str:
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith(NO_PLURAL) or not word.endswith(("s", "men")):
        return word
    ending, instead = next(pair for pair in ENDINGS.items() if word.endswith(pair[0]))
    folded = word.removesuffix(ending) + instead
    return folded if len(folded) >= LEAST else word


@lru_cache(2**14)
def forms(word: str) -> tuple[str, ...]:
    """The word itself, then its dictionary forms: as a noun, as most words for visible things are, then as others.

    Of several words, in lower case and separated by single blanks, the last is inflected.
    """
    try:
        import simplemma
    except ImportError:
        raise ExciteError("phrases are read with simplemma: pip install 'excite[ground]'") from None
    before, blank, last = word.rpartition(" ")
    lemma = before + blank + simplemma.lemmatize(last, lang="en").lower() if last else word
    return tuple(dict.fromkeys((*noun_forms(word), lemma)))


def noun_forms(word: str) -> tuple[str, ...]:
    """The word itself, then its singular if it may be a plural, also of plurals like "jeans"; it need not be a word."""
    one = singular(word)
    if one == word and word.endswith("s") and not word.endswith(NO_PLURAL):
        one = word[:-1]
    return tuple(dict.fromkeys((word, one)))


def singulars(word: str) -> tuple[str, ...]:
    """The candidates for the singular of a word that is looked up, likeliest first; not all of them are words."""
    stripped = (word.removesuffix(plural) + one for plural, one in LOOSE_ENDINGS if word.endswith(plural))
    return tuple(dict.fromkeys((*noun_forms(word)[1:], *stripped)))
