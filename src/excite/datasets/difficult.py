"""The Pointing Game's Difficult subset: by the paper's rule, or from a published list."""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress
from pathlib import Path

from excite.datasets.base import Dataset, Sample, Target, parse_json, read_text
from excite.errors import DataError
from excite.images import read_image

ListEntry = tuple[str, str, tuple[str, ...]]
"""The place in the file, the name of an image, and its difficult categories."""


def is_difficult(sample: Sample, target: Target) -> bool:
    """Whether a target is small in its image and not alone there (the paper's rule).

    All its instances together cover less than a quarter of the image, and at least one other category is annotated
    in it. Areas are added up; all instances count, and all other categories, also those flagged as difficult. Without
    an annotated size of the image, the file is read for it.
    """
    if len(sample.targets) < 2:
        return False
    width, height = sample.size or _size(sample.path)
    return 4 * target.area((width, height)) < width * height


@lru_cache(maxsize=1)  # the targets of an image come one after the other
def _size(path: Path) -> tuple[int, int]:
    return read_image(path).size


def read_difficult_list(path: Path, dataset: Dataset) -> frozenset[tuple[str, str]]:
    """The pairs (image, category) that a file lists as difficult, under the data set's names.

    Three kinds of files are known:

    * rows of an image's name and a 0 or 1 for each category, in the data set's order (the form of the authors' lists);
    * rows of an image's name and its difficult categories, with commas, tabs or spaces between;
    * JSON with the names of images for each category: ``{"cat": ["000004", "000007"]}``.

    Images may be named without their suffix, those of COCO also by their numbers. Names that are not in the data
    set are left out, with a warning that counts them.
    """
    aliases = [(other, name) for name in dataset.names for other in dataset.also_called(name)]
    counts = Counter(other for other, _ in aliases)
    known = {other: name for other, name in aliases if counts[other] == 1} | {name: name for name in dataset.names}
    pairs: set[tuple[str, str]] = set()
    listed: dict[str, bool] = {}
    text = read_text(path)
    read = _json_entries if text.lstrip().startswith(("{", "[")) else _line_entries
    for where, name, found in read(text, path, dataset.categories):
        listed[name] = name in known
        for category in found if listed[name] else ():
            if category not in dataset.categories:
                raise DataError(f"{where}: {category[:40]!r} is no category of this data set")
            pairs.add((known[name], category))
    missing = [name for name, is_known in listed.items() if not is_known]
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
            stacklevel=2,
        )
    return frozenset(pairs)


def _json_entries(text: str, path: Path, _categories: Sequence[str]) -> Iterator[ListEntry]:
    content = parse_json(text, path)
    if not isinstance(content, dict):
        raise DataError(f"{path}: names of images for each category were expected, such as {{'cat': ['000004']}}")
    for category, names in content.items():
        where = f"{path}, {category[:40]!r}"
        if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
            raise DataError(f"{where}: a list of names of images was expected")
        yield from ((where, str(name), (category,)) for name in names)


def _line_entries(text: str, path: Path, categories: Sequence[str]) -> Iterator[ListEntry]:
    """The name of an image, and flags of all categories or the names of some; with commas or tabs, spaces are kept."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where, apart = f"{path}, line {number}", "," in line or "\t" in line
        name, *rest = [word.strip() for word in re.split(r"[,\t]", line)] if apart else line.split()
        if not rest or not all(rest):
            raise DataError(f"{where}: the name of an image and categories were expected, not {line[:60]!r}")
        if set(rest) <= {"0", "1"}:
            if len(rest) != len(categories):
                raise DataError(f"{where}: {len(rest)} flags, but the data set has {len(categories)} categories")
            yield where, name, tuple(compress(categories, (flag == "1" for flag in rest)))
        else:
            together = " ".join(rest)  # "dining table" is one category
            yield where, name, (together,) if not apart and together in categories else tuple(rest)
