"""The images of a corpus: below a folder, in shards (tar files), or on the web."""

from __future__ import annotations

import glob
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from excite.errors import DataError
from excite.io.fetch import cache_folder
from excite.tags.images.base import WEB, ImageFolder, ImageSource, WebImages
from excite.tags.images.shards import CACHE_BYTES, Shards

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["CACHE_BYTES", "ImageSource", "open_images", "shards_of"]

BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")
BESIDE = (".tar", ".tar.index", "shards.json")  # the files of a folder of shards
SHARDS = re.compile(r"\.(tar|tgz)\b|[*?{]", re.IGNORECASE)  # rather than a folder
MOST = 100_000  # shards: a typing error must not exhaust memory


def shards_of(where: str) -> tuple[str, ...]:
    """The shards of a pattern with braces as in a shell, or ``*``, in its order, those of a ``*`` by name.

    Raises:
        DataError: there is none, or a named one is missing.

    Example:
        >>> shards_of("https://example.org/pics-{08..10}.tar")[-1]
        'https://example.org/pics-10.tar'
    """
    names = list(itertools.islice(_expand(where), MOST + 1))
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


def _expand(pattern: str) -> Iterator[str]:
    """One name for each choice in the braces."""
    if (braces := BRACES.search(pattern)) is None or Path(pattern).is_file():
        yield pattern
        return
    for choice in _choices(braces[1]):
        yield from _expand(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _choices(inside: str) -> Iterator[str]:
    if (span := RANGE.fullmatch(inside)) is None:
        yield from inside.split(",")
        return
    first, last = int(span[1]), int(span[2])
    width = max(map(len, span.groups())) if "0" in {span[1][0], span[2][0]} else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"


def open_images(
    where: str | Path, cache: Path | None = None, *, urls: bool = False, cache_bytes: int = CACHE_BYTES
) -> ImageSource:
    """Open the images of a corpus.

    Args:
        where: a folder, below which the names of the images are paths; or shards in the WebDataset layout: a .tar
            file, a pattern such as ``pics-{000..011}.tar`` or ``pics-*.tar`` here or (braces only) on the web, or a
            folder that holds nothing else.
        cache: the folder for fetched files; by default ``pictures`` in the usual cache folder.
        urls: whether to fetch images whose names are web addresses. The author of a corpus would then choose which
            addresses this machine contacts, so by default they are refused.
        cache_bytes: the size limit of the cache of shards; the least recently used are removed.

    Raises:
        DataError: there is no such folder or shard.

    Example:
        >>> open_images("photos").read("2024/cat.jpg")  # doctest: +SKIP
    """
    cache = cache_folder() / "pictures" if cache is None else cache
    images = _opened(str(where), cache, cache_bytes)
    return WebImages(images, cache) if urls else images


def _opened(where: str, cache: Path, cache_bytes: int) -> ImageSource:
    path = Path(where)
    if path.is_dir():
        names = [file.name for file in path.iterdir() if not file.name.startswith(".")]
        if all(name.endswith(BESIDE) for name in names) and any(name.endswith(".tar") for name in names):
            return Shards(tuple(map(str, sorted(path.glob("*.tar")))), cache, cache_bytes)
        return ImageFolder(path)
    if where.startswith(WEB) or SHARDS.search(where):
        return Shards(shards_of(where), cache, cache_bytes)
    raise DataError(f"there is no folder {where!r}: name the one that holds the images, or their shards")
