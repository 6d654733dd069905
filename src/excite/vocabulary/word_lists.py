"""Lists of English words, from words.txt: stop words, words for positions and colours; and the reader of that file."""

from configparser import ConfigParser
from functools import cache
from importlib.resources import files


@cache
def _lists() -> ConfigParser:
    lists = ConfigParser(allow_no_value=True, delimiters="=", inline_comment_prefixes="#")
    lists.read_string(files("excite.vocabulary").joinpath("words.txt").read_text(encoding="utf-8"))
    return lists


def lines_of(name: str) -> list[str]:
    """The lines of a list, in lower case."""
    return list(_lists()[name])


def words_of(name: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(" ".join(lines_of(name)).split())


def _names_by_word(name: str) -> dict[str, str]:
    """Of a list whose lines are a name and its words: the name of each word."""
    return {word: line.split()[0] for line in lines_of(name) for word in line.split()}


GRAMMAR = words_of("grammar")

STOP_WORDS = GRAMMAR | words_of("fillers")
"""Words of grammar, numerals, words about the image (view, front), amounts (bunch) and general verbs (show). Words for
visible things, colours, sizes and activities (sitting) are none."""

PLACES, COLOURS = _names_by_word("places"), _names_by_word("colours")
"""Words for a place, an order or a size, with one name for each meaning; and for colours, with one for each colour."""

THINGS_TOO = frozenset({"orange", "gold", "silver", "olive", "lavender", "violet"})
"""Colours that are also things: right before another word they are the colour only ("orange shirt")."""
