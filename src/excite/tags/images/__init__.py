"""The pictures of a corpus: below a folder, in shards (tar files), or on the web."""

from __future__ import annotations

from pathlib import Path

from excite.errors import DataError
from excite.io.fetch import cache_folder
from excite.tags.images.base import Pictures
from excite.tags.images.folder import Folder
from excite.tags.images.patterns import holds_shards, is_pattern, shards_of
from excite.tags.images.shards import CACHE_BYTES, Shards
from excite.tags.images.urls import Linked

__all__ = ["CACHE_BYTES", "Pictures", "open_pictures"]


def open_pictures(
    where: str | Path, cache: Path | None = None, *, urls: bool = False, cache_bytes: int = CACHE_BYTES
) -> Pictures:
    """The place of a corpus' pictures.

    Args:
        where: a folder, below which the names of the pictures are paths; or shards in the WebDataset layout: a .tar
            file, a pattern such as ``pics-{000..011}.tar`` or ``pics-*.tar`` here or (braces only) on the web, or a
            folder that holds nothing else.
        cache: where fetched files are kept; ``pictures`` in the usual cache folder if none.
        urls: whether names of pictures that are web addresses are fetched. A corpus may come from anywhere, and this
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
    raise DataError(f"there is no folder {where!r}: name the one that holds the pictures, or their shards")
