"""Labels in files: as people and other programs write them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from excite.errors import ConceptError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["read_entries"]

WORDNET_NUMBER = re.compile(r"n\d{8}\s+")


def read_entries(path: Path) -> Sequence[str | Sequence[str]]:
    """The labels of a file, each a word or several synonyms; `Labels.read` says what the file looks like.

    Raises:
        ConceptError: The file cannot be read, or holds no labels.

    Example:
        >>> read_entries(Path("labels.txt"))                                # doctest: +SKIP
        [['cat', 'puss'], ['dog']]
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConceptError(f"Cannot read the labels in {str(path)!r}: {error}.") from None
    if "\0" in text:
        raise ConceptError(f"Cannot read the labels in {str(path)!r}: it is no text in UTF-8.")
    if text.lstrip().startswith(("[", "{")):
        return _json_array(path, text)
    lines = [line.strip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    if all(WORDNET_NUMBER.match(line) for line in lines):
        lines = [WORDNET_NUMBER.sub("", line) for line in lines]
    return [[word.strip() for word in line.split(",")] for line in lines]


def _json_array(path: Path, text: str) -> list[str | Sequence[str]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConceptError(f"{path} is no JSON array of labels: {error}.") from None
    if not isinstance(content, list):
        raise ConceptError(
            f"{path} is no JSON array of labels, but an object: write [...] in the order of the outputs."
        )
    return content
