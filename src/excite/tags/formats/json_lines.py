"""JSON Lines: one object a line, each a picture with its tags."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from excite.tags.formats.rows import BYTE_ORDER_MARK, DECODER, ROW_LIMIT, BadRow, bounded_line, opened, record

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from excite.tags.corpus import ColumnNames
    from excite.tags.formats.rows import Record

__all__ = ["json_objects", "json_records"]

LOOKED_AT = 1000  # objects that tell which columns there are: in JSON Lines each row may lack some


def json_objects(path: Path, skipped: Counter[str]) -> Iterator[dict[str, Any]]:
    """The objects of a file, one a line; lines that are none are counted by what is wrong. Empty lines are none.

    Raises:
        DataError: the file cannot be read.

    Example:
        >>> for found in json_objects(Path("tags.jsonl"), skipped):         # doctest: +SKIP
        ...     print(found["image"])
    """
    with opened(path) as file:
        line = bounded_line(file).removeprefix(BYTE_ORDER_MARK)
        while line:
            if not line.isspace():
                try:
                    yield _object(line)
                except BadRow as bad:
                    skipped[bad.reason] += 1
            line = bounded_line(file)


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > ROW_LIMIT:
        raise BadRow("too_long")
    try:
        found = DECODER.decode(line.decode())
        if b"\\ud" in line or b"\\uD" in line:  # escapes may hold halves of characters, which are no text
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeError:
        raise BadRow("not_utf8") from None
    except (ValueError, RecursionError):
        raise BadRow("not_json") from None
    if not isinstance(found, dict):
        raise BadRow("not_json")
    return found


def json_records(path: Path, columns: ColumnNames, skipped: Counter[str]) -> Iterator[Record]:
    """The pictures of a file with their tags; rows that cannot be used are counted by what is wrong.

    Raises:
        DataError: the file cannot be read, or a column is in none of its first objects.

    Example:
        >>> list(json_records(Path("tags.jsonl"), ColumnNames(), Counter()))   # doctest: +SKIP
    """
    image, tags, user = columns.image, columns.tags, columns.user
    names: dict[str, None] = {}  # in the order in which they were seen
    seen = 0
    for seen, found in enumerate(json_objects(path, skipped), 1):
        if seen <= LOOKED_AT:
            names.update(dict.fromkeys(found))
            if seen == LOOKED_AT:
                columns.found_in(path, list(names))
        try:
            yield record(found.get(image), found.get(tags), None if user is None else found.get(user))
        except BadRow as bad:
            skipped[bad.reason] += 1
    if 0 < seen < LOOKED_AT:
        columns.found_in(path, list(names))
