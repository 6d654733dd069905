"""The images of a corpus: below a folder, in shards (tar files), or on the web."""

import glob
import math
import re
from itertools import chain
from pathlib import Path

from excite.errors import DataError
from excite.io.fetch import cache_folder
from excite.tags import package
from excite.tags.images.shards import CACHE_BYTES, Shards
from excite.tags.images.sources import WEB, ImageFolder, ImageSource, WebImages

__all__ = ["CACHE_BYTES", "ImageSource", "open_images", "shards_of"]

RANGE = re.compile(r"\{(\d+)\.\.(\d+)")
BESIDE = (".tar", ".tar.index", "shards.json")  # the files of a folder of shards
SHARDS = re.compile(r"\.(tar|tgz)\b|[*?{]", re.IGNORECASE)  # rather than a folder
MOST = 100_000  # shards: a typing error must not exhaust memory


def shards_of(where: str) -> tuple[str, ...]:
    """The shards of a pattern with braces as in a shell, or ``*``, in its order, those of a ``*`` by name."""
    if math.prod(abs(int(last) - int(first)) + 1 for first, last in RANGE.findall(where)) > MOST:
        raise DataError(f"{where!r} stands for more than {MOST} shards: check the numbers in its braces")
    try:
        names = [where] if Path(where).is_file() else package("webdataset.shardlists").expand_urls(where)
    except ValueError:  # unbalanced braces
        names = []
    found = tuple(chain.from_iterable(map(_matches, names)))
    if not found:
        raise DataError(f"there are no shards {where!r}: give a .tar file, a pattern of them, or their folder")
    return found


def _matches(name: str) -> list[str]:
    if name.startswith(WEB) or Path(name).is_file():
        return [name]
    if glob.has_magic(name):
        return sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - takes absolute patterns too
    raise DataError(f"there is no shard {name!r}")


def open_images(
    where: str | Path, cache: Path | None = None, *, urls: bool = False, cache_bytes: int = CACHE_BYTES
) -> ImageSource:
    """Open the images below a folder, or in shards; with ``urls``, those whose names are web addresses are fetched.

    Shards are a .tar file, a pattern such as ``pics-{000..011}.tar`` or ``pics-*.tar`` here or (braces only) on the
    web, or a folder that holds nothing else. ``cache`` is the folder for fetched files.
    """
    cache = cache_folder() / "pictures" if cache is None else cache
    path, where, images = Path(where), str(where), None
    if path.is_dir():
        names = [file.name for file in path.iterdir() if not file.name.startswith(".")]
        tars = tuple(map(str, sorted(path.glob("*.tar"))))
        only_shards = tars and all(name.endswith(BESIDE) for name in names)
        images = Shards(tars, cache, cache_bytes) if only_shards else ImageFolder(path)
    elif where.startswith(WEB) or SHARDS.search(where):
        images = Shards(shards_of(where), cache, cache_bytes)
    else:
        raise DataError(f"there is no folder {where!r}: name the one that holds the images, or their shards")
    return WebImages(images, cache) if urls else images
