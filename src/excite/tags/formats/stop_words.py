"""Words of captions that are no tags: those of our own, or those of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.errors import DataError
from excite.vocabulary.stop_words import STOP_WORDS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["STOP_WORDS", "read_stop_words"]

LIMIT = 2**20  # bytes of a file of stop words


def read_stop_words(path: Path) -> frozenset[str]:
    """Stop words from a file, one a line, in small letters.

    Raises:
        DataError: the file cannot be read, or is no list of words.

    Example:
        >>> read_stop_words(Path("stop.txt"))                               # doctest: +SKIP
        frozenset({'the', 'a'})
    """
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
        text = content.decode()
    except OSError as error:
        raise DataError(f"cannot read the stop words {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"the stop words {path} are not UTF-8 text: write one word a line") from None
    if len(content) > LIMIT:
        raise DataError(f"{path} is too long for a list of stop words: write one word a line")
    return frozenset(word for line in text.splitlines() if (word := line.strip().casefold()))
