"""Files of captions, in the four forms that they are published in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from excite.errors import DataError
from excite.tags.corpus import ColumnNames
from excite.tags.formats.csv_file import csv_columns
from excite.tags.formats.json_lines import json_objects
from excite.tags.formats.parquet import kind_of
from excite.tags.formats.rows import ROW_LIMIT, BadRow, bounded_line, opened

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["CAPTIONED", "read_captions"]

Captioned = tuple[str, list[str]]
"""A picture and some of its captions: those of one line, others may follow."""

IMAGE_NAMES = ("image", "file", "file_name")


def read_captions(path: Path, skipped: Counter[str]) -> dict[str, list[str]]:
    """All captions of each picture, both in the order of the file.

    A caption file is read whole, as those of a picture need not stand together: some 1.5 GB for 3 million pictures.

    Args:
        path: COCO's captions (.json), JSON Lines with ``image`` (``file``, ``file_name``) and ``captions`` or
            ``caption``, CSV with the columns ``image`` and ``caption``, or lines as Flickr30k's (.token, .txt).
        skipped: where rows that cannot be used are counted: ``not_utf8``, ``not_json``, ``wrong_columns``,
            ``too_long``, ``no_image``, ``no_caption``.

    Raises:
        DataError: the file cannot be read, is of none of these kinds, or names no picture with a caption.

    Example:
        >>> read_captions(Path("captions_val2017.json"), Counter())         # doctest: +SKIP
        {'000000000139.jpg': ['A woman stands in the dining area at the table.', ...
    """
    reader = CAPTIONED.get(kind_of(path))
    if reader is None:
        raise DataError(f"cannot tell what {path} is by its name: it must end in one of {', '.join(CAPTIONED)}, or .gz")
    captions: dict[str, list[str]] = {}
    for image, some in reader(path, skipped):
        captions.setdefault(image, []).extend(some)
    if not captions:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
        raise DataError(f"{path} has no picture with a caption" + (f" ({reasons})" if reasons else ""))
    return captions


def _captioned(image: object, captions: object) -> Captioned:
    if not isinstance(image, str) or not image or image.isspace():
        raise BadRow("no_image")
    some: list[Any] = captions if isinstance(captions, list) else [captions]
    if not some or not all(type(one) is str for one in some):
        raise BadRow("no_caption")
    return image, some


def _coco(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    """COCO's file: pictures with numbers, captions with the numbers of their pictures."""
    with opened(path) as file:
        content = file.read()
    try:
        found = json.loads(content)
        names = {one["id"]: one["file_name"] for one in found["images"]}
        captions = [(one["image_id"], one["caption"]) for one in found["annotations"]]
        json.dumps([list(names.values()), captions], ensure_ascii=False).encode()
        _ = {number for number, _ in captions}  # a list or the like is no number of a picture
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(
            f"{path} is no caption file of COCO with images and annotations; call JSON Lines .jsonl"
        ) from None
    together: dict[Any, list[Any]] = {number: [] for number in names}  # in the order of the pictures
    for number, caption in captions:
        if number in together:
            together[number].append(caption)
        else:
            skipped["no_image"] += 1
    yield from _good(((names[number], some) for number, some in together.items()), skipped)


def _json_lines(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    objects = json_objects(path, skipped)
    named = ((next((one[name] for name in IMAGE_NAMES if name in one), None), one) for one in objects)
    yield from _good(((image, one.get("captions", one.get("caption"))) for image, one in named), skipped)


def _csv(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    columns = ColumnNames(tags="caption", user=None)
    yield from _good(((image, caption) for image, caption in csv_columns(path, columns, skipped)), skipped)


def _tokens(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    yield from _good((_token(line) for line in _lines(path, skipped)), skipped)


def _lines(path: Path, skipped: Counter[str]) -> Iterator[str]:
    with opened(path) as file:
        while line := bounded_line(file):
            try:
                if len(line) > ROW_LIMIT:
                    skipped["too_long"] += 1
                elif not line.isspace():
                    yield line.decode().strip()
            except UnicodeDecodeError:
                skipped["not_utf8"] += 1


def _token(line: str) -> tuple[str, str | None]:
    """``1000092795.jpg#0``, a tab, the caption."""
    name, tab, caption = line.partition("\t")
    return name.rpartition("#")[0], caption if tab else None


def _good(rows: Iterator[tuple[Any, Any]], skipped: Counter[str]) -> Iterator[Captioned]:
    for image, captions in rows:
        try:
            yield _captioned(image, captions)
        except BadRow as bad:
            skipped[bad.reason] += 1


CAPTIONED: dict[str, Callable[[Path, Counter[str]], Iterator[Captioned]]] = {
    ".json": _coco,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".tsv": _csv,
    ".token": _tokens,
    ".txt": _tokens,
}
