"""The images of a corpus: below a folder, in shards (tar files), or on the web."""

from __future__ import annotations

import glob
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from excite.errors import DataError
from excite.io.fetch import cache_folder
from excite.tags.images.base import WEB, Folder, Linked, Pictures
from excite.tags.images.shards import CACHE_BYTES, Shards

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["CACHE_BYTES", "Pictures", "holds_shards", "is_pattern", "open_pictures", "shards_of"]


# What a pattern of shards stands for: braces as in a shell, and ``*``.

BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")
BESIDE = (".tar", ".tar.index", "shards.json")  # what may lie in a folder of shards
SHARDS = re.compile(r"\.(tar|tgz)\b|[*?{]", re.IGNORECASE)
MOST = 100_000  # shards: a slip of the finger is not to fill the memory


def is_pattern(where: str) -> bool:
    """Whether it names shards rather than a folder.

    Example:
        >>> is_pattern("pics-{000..011}.tar"), is_pattern("photos")
        (True, False)
    """
    return where.startswith(WEB) or SHARDS.search(where) is not None


def holds_shards(folder: Path) -> bool:
    """Whether there is nothing but shards in a folder."""
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    return all(name.endswith(BESIDE) for name in names) and any(name.endswith(".tar") for name in names)


def shards_of(where: str) -> tuple[str, ...]:
    """The shards in the order of the pattern, those of a ``*`` by name.

    Raises:
        DataError: there is none, or one that is named is missing.

    Example:
        >>> shards_of("https://example.org/pics-{08..10}.tar")[-1]
        'https://example.org/pics-10.tar'
    """
    names = list(itertools.islice(_spread(where), MOST + 1))
    if len(names) > MOST:
        raise DataError(f"{where!r} stands for more than {MOST} shards: check the numbers in its braces")
    found = tuple(itertools.chain.from_iterable(map(_matches, names)))
    if not found:
        raise DataError(f"there are no shards {where!r}: give a .tar file, a pattern of them, or their folder")
    return found


def _matches(name: str) -> list[str]:
    if name.startswith(WEB) or Path(name).is_file():
        return [name]
    if glob.has_magic(name):
        return sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - takes absolute patterns too
    raise DataError(f"there is no shard {name!r}")


def _spread(pattern: str) -> Iterator[str]:
    """One name for each choice in the braces."""
    if (braces := BRACES.search(pattern)) is None or Path(pattern).is_file():
        yield pattern
        return
    for choice in _choices(braces[1]):
        yield from _spread(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _choices(inside: str) -> Iterator[str]:
    if (span := RANGE.fullmatch(inside)) is None:
        yield from inside.split(",")
        return
    first, last = int(span[1]), int(span[2])
    width = max(map(len, span.groups())) if "0" in {span[1][0], span[2][0]} else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"


# The images of a corpus: below a folder, in shards (tar files), or on the web.


def open_pictures(
    where: str | Path, cache: Path | None = None, *, urls: bool = False, cache_bytes: int = CACHE_BYTES
) -> Pictures:
    """The place of a corpus' images.

    Args:
        where: a folder, below which the names of the images are paths; or shards in the WebDataset layout: a .tar
            file, a pattern such as ``pics-{000..011}.tar`` or ``pics-*.tar`` here or (braces only) on the web, or a
            folder that holds nothing else.
        cache: where fetched files are kept; ``pictures`` in the usual cache folder if none.
        urls: whether names of images that are web addresses are fetched. A corpus may come from anywhere, and this
            lets it say whom this machine asks, so by default they are refused.
        cache_bytes: how much room fetched shards may take; those not used for longest are removed.

    Raises:
        DataError: there is no such place.

    Example:
        >>> open_pictures("photos").read("2024/cat.jpg")  # doctest: +SKIP
    """
    cache = cache_folder() / "pictures" if cache is None else cache
    pictures = _opened(str(where), cache, cache_bytes)
    return Linked(pictures, cache) if urls else pictures


def _opened(where: str, cache: Path, cache_bytes: int) -> Pictures:
    path = Path(where)
    if path.is_dir():
        if not holds_shards(path):
            return Folder(path)
        return Shards(tuple(map(str, sorted(path.glob("*.tar")))), cache, cache_bytes)
    if is_pattern(where):
        return Shards(shards_of(where), cache, cache_bytes)
    raise DataError(f"there is no folder {where!r}: name the one that holds the images, or their shards")
