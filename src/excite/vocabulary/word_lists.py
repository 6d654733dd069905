"""Lists of English words, from words.txt: stop words, words for positions and colours; and the reader of that file."""

from functools import cache
from importlib.resources import files


@cache
def _lists() -> dict[str, list[str]]:
    """The lines of each list, without comments."""
    found: dict[str, list[str]] = {}
    for line in files("excite.vocabulary").joinpath("words.txt").read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("["):
            found[text.strip("[]")] = []
        elif text:
            found[list(found)[-1]].append(text)
    return found


def lines_of(name: str) -> list[str]:
    """The lines of a list."""
    return _lists()[name]


def words_of(name: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(" ".join(lines_of(name)).split())


def _names_by_word(name: str) -> dict[str, str]:
    """Of a list whose lines are a name and its words: the name of each word."""
    return {word: line.split()[0] for line in lines_of(name) for word in line.split()}


GRAMMAR = words_of("grammar")

STOP_WORDS = GRAMMAR | words_of("fillers")
"""English articles, prepositions, conjunctions, pronouns and auxiliary verbs; numerals; words about the image itself
(image, view), positions in it (front, side), amounts (several, bunch), and general verbs (show, take). Words for
visible things stay, also colours, sizes and activities: red, large, sitting."""

PLACES = _names_by_word("places")
"""Words for a place, an order or a size, with one name for each meaning."""

COLOURS = _names_by_word("colours")
"""Words for colours, with one name for each colour."""

THINGS_TOO = frozenset({"orange", "gold", "silver", "olive", "lavender", "violet"})
"""Colours that are also things: right before another word they are the colour only ("orange shirt")."""
