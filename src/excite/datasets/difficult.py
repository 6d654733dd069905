"""The Pointing Game's Difficult subset: by the paper's rule, or from a list that somebody published."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING

from excite.datasets.base import read_text
from excite.errors import DataError
from excite.images import read_image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.datasets.base import Dataset
    from excite.datasets.sample import Sample, Target

__all__ = ["is_difficult", "read_difficult_list"]

Row = tuple[str, str, tuple[str, ...]]


def is_difficult(sample: Sample, target: Target) -> bool:
    """Whether a target is small in its image and not alone there (the paper's rule).

    All its instances together cover less than a quarter of the image, and at least one other category is annotated
    in it. Areas are added up; all instances count, and all other categories, also those flagged as difficult.

    Args:
        sample: the image. Where its annotation does not say how large it is, it is read.
        target: one of its targets.

    Raises:
        ImageError: The image had to be read, and cannot be.

    Example:
        >>> from pathlib import Path
        >>> from excite.datasets import Instance, Sample, Target
        >>> cup, table = Target("cup", (Instance((0, 0, 10, 10)),)), Target("table", (Instance((0, 5, 40, 40)),))
        >>> sample = Sample("1", Path("1.jpg"), (cup, table), size=(40, 40))
        >>> is_difficult(sample, cup), is_difficult(sample, table)
        (True, False)
    """
    if len(sample.targets) < 2:
        return False
    width, height = sample.size or _size(sample.path)
    return 4 * target.area((width, height)) < width * height


@lru_cache(maxsize=1)  # the targets of an image come one after the other
def _size(path: Path) -> tuple[int, int]:
    return read_image(path).size


def read_difficult_list(path: Path, dataset: Dataset) -> frozenset[tuple[str, str]]:
    """The pairs of an image and a category that a file lists as difficult.

    Three kinds of files are known:

    * rows of an image's name and a 0 or 1 for each category, in the data set's order (as the authors' lists are
      passed on);
    * rows of an image's name and its difficult categories, with commas, tabs or spaces between;
    * JSON with the names of images for each category: ``{"cat": ["000004", "000007"]}``.

    Images may be named without their suffix, those of COCO also by their numbers. Names that are not in the data
    set are left out, and a warning tells how many.

    Args:
        path: the file.
        dataset: what it is about.

    Returns:
        Names of images and categories as the data set has them.

    Raises:
        DataError: The file cannot be read or understood, or names no image of the data set.

    Example:
        >>> read_difficult_list(Path("voc07_difficult.txt"), open_dataset("VOCdevkit", "test"))  # doctest: +SKIP
    """
    known, categories = _names(dataset), dataset.categories
    pairs: set[tuple[str, str]] = set()
    listed: dict[str, bool] = {}
    for where, name, found in _rows(read_text(path), path, categories):
        listed[name] = name in known
        if not listed[name]:
            continue
        for category in found:
            if category not in categories:
                raise DataError(f"{where}: {category[:40]!r} is no category of this data set")
            pairs.add((known[name], category))
    _report_missing(listed, path, dataset)
    return frozenset(pairs)


def _names(dataset: Dataset) -> dict[str, str]:
    """The images by all their names; one that two images would share names neither."""
    aliases = [(other, name) for name in dataset.names for other in dataset.also_called(name)]
    often = Counter(other for other, _ in aliases)
    return {other: name for other, name in aliases if often[other] == 1} | {name: name for name in dataset.names}


def _report_missing(listed: dict[str, bool], path: Path, dataset: Dataset) -> None:
    missing = [name for name, known in listed.items() if not known]
    if not listed:
        raise DataError(f"{path}: it lists no images")
    if len(missing) == len(listed):
        raise DataError(
            f"{path}: none of its {len(listed)} images is in the split {dataset.split!r}: "
            f"it has {missing[0][:60]!r}, the data set {dataset.names[0][:60]!r}"
        )
    if missing:
        warnings.warn(
            f"{path}: {len(missing)} of its {len(listed)} images are not in the split {dataset.split!r} "
            f"({missing[0][:60]!r} is the first) and are left out",
            stacklevel=3,
        )


def _rows(text: str, path: Path, categories: Sequence[str]) -> Iterator[Row]:
    """Where something is said, about which image, and its difficult categories."""
    if text.lstrip().startswith(("{", "[")):
        yield from _rows_of_json(text, path)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, *_row(line, where, categories)


def _rows_of_json(text: str, path: Path) -> Iterator[Row]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: broken JSON ({error})") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: names of images for each category were expected, such as {{'cat': ['000004']}}")
    for category, names in content.items():
        where = f"{path}, {category[:40]!r}"
        if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
            raise DataError(f"{where}: a list of names of images was expected")
        yield from ((where, str(name), (category,)) for name in names)


def _row(line: str, where: str, categories: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A name, and flags of all categories or the names of some; between commas or tabs, names may hold spaces."""
    apart = "," in line or "\t" in line
    name, *rest = [word.strip() for word in re.split(r"[,\t]", line)] if apart else line.split()
    if not rest or not all(rest):
        raise DataError(f"{where}: the name of an image and categories were expected, not {line[:60]!r}")
    if set(rest) <= {"0", "1"}:
        if len(rest) != len(categories):
            raise DataError(f"{where}: {len(rest)} flags, but the data set has {len(categories)} categories")
        return name, tuple(compress(categories, (flag == "1" for flag in rest)))
    together = " ".join(rest)  # "dining table" is one category
    return name, (together,) if not apart and together in categories else tuple(rest)
