"""Pictures in shards: tar files in the WebDataset layout, here or on the net, any picture at any time."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError, ExciteError, FetchError, ImageError
from excite.io.files import save_npy
from excite.tags.images.base import MOST_BYTES, WEB, Pictures, read_at, shown, too_large
from excite.tags.images.fetched import Fetched
from excite.tags.images.naming import possible_names
from excite.tags.images.tar_index import TarIndex, found_at, hash_of, make_index, read_index

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CACHE_BYTES", "Shards"]

CACHE_BYTES = 50_000_000_000  # of fetched shards: some 250 of the usual 200 MB
ATTEMPTS = 3  # to open a shard that other processes remove to make room for theirs


@dataclass(frozen=True)
class Shards(Pictures):
    """Pictures in tar files.

    A picture is found by the whole name of its file in a shard, by that name without its suffix (its key), or by the
    name it had in the corpus that `excite.tags.images.shard_writer` wrote. Of several, the first counts.

    Each shard gets an index once, beside it (``NAME.tar.index``) or, where nobody may write there, in the cache. A
    shard on the net is fetched whole when it is first needed. To learn what is in it, its index is asked for first.

    Args:
        sources: the shards, paths or web addresses; their order numbers the groups.
        cache: where fetched shards and indexes are kept.
        cache_bytes: how much room fetched shards may take.

    Example:
        >>> Shards(("pics-000.tar", "pics-001.tar"), Path("cache")).read("2024/cat.jpg")  # doctest: +SKIP
    """

    sources: tuple[str, ...]
    cache: Path
    cache_bytes: int = CACHE_BYTES
    _indexes: dict[int, TarIndex] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes map the indexes into their memory themselves."""
        return Shards, (self.sources, self.cache, self.cache_bytes)

    @property
    def groups(self) -> int:
        """How many shards there are."""
        return len(self.sources)

    def group(self, name: str) -> int:
        """The number of the picture's shard.

        Raises:
            ImageError: it is in none.
        """
        hashes, shards = self._all
        for possible in possible_names(name):
            if (row := found_at(hashes, hash_of(possible))) is not None:
                return int(shards[row])
        raise ImageError(f"there is no picture {shown(name)} in {self._described}")

    def encoded(self, name: str) -> bytes:
        """The bytes of the file in its shard."""
        number = self.group(name)
        return self._opened(number, lambda file: self._bytes(number, name, file))

    def state(self, name: str) -> str:
        """Which part of which shard, and when that was written."""
        number = self.group(name)
        index = self._index(number)
        return f"{self.sources[number]} {index.written} {index.size} {index.find(possible_names(name))}"

    def _bytes(self, number: int, name: str, file: int) -> bytes:
        index = self._index(number)
        found = index.find(possible_names(name)) if index.fits(os.fstat(file)) else None
        if found is None:
            raise ImageError(f"the shard {self.sources[number]} changed while it was read: start again")
        offset, size = found
        if size > MOST_BYTES:
            raise too_large(name)
        there = offset + size <= os.fstat(file).st_size  # an index from the net may say anything
        content = read_at(file, offset, size) if there else b""
        if not there or len(content) < size:
            raise ImageError(f"{shown(name)} is cut off in the shard {self.sources[number]}: copy it again")
        return content

    def _opened(self, number: int, use: Callable[[int], bytes]) -> bytes:
        """Use a shard's open file: once open, it stays readable even if it is removed."""
        for _ in range(ATTEMPTS):
            try:
                file = os.open(self._local(number), os.O_RDONLY)
            except FileNotFoundError:  # removed just now to make room
                continue
            except OSError as error:
                raise ImageError(f"cannot read the shard {self.sources[number]}: {error.strerror}") from None
            try:
                return use(file)
            except OSError as error:
                raise ImageError(f"cannot read the shard {self.sources[number]}: {error.strerror}") from None
            finally:
                os.close(file)
        raise ImageError(f"the shard {self.sources[number]} is gone; if it was fetched, let its cache have more room")

    def _local(self, number: int) -> Path:
        source = self.sources[number]
        try:
            return self._fetched.get(source) if source.startswith(WEB) else Path(source)
        except FetchError as error:
            raise ImageError(str(error)) from None

    def _index(self, number: int) -> TarIndex:
        if number not in self._indexes:
            source = self.sources[number]
            self._indexes[number] = self._index_of_web(source) if source.startswith(WEB) else self._index_here(source)
        return self._indexes[number]

    def _index_here(self, source: str) -> TarIndex:
        """An index that fits, or a new one."""
        path = Path(source)
        try:
            about = path.stat()
        except OSError as error:
            raise DataError(f"cannot read the shard {source}: {error.strerror}") from None
        places = (path.with_name(path.name + ".index"), self._fetched.place(str(path.resolve())).with_suffix(".index"))
        for place in places:
            if (index := read_index(place)) is not None and index.fits(about):
                return index
        index = make_index(path)
        try:
            index.save(places[0])
        except ExciteError:  # where nobody may write
            index.save(places[1])
        return index

    def _index_of_web(self, source: str) -> TarIndex:
        """From the cache, from beside the shard, or from the shard."""
        place = self._fetched.place(source).with_suffix(".index")
        if (index := read_index(place)) is not None:
            return index
        try:
            index = read_index(Fetched(self.cache / "shards", ".beside").get(f"{source}.index"))
        except FetchError:  # most have none; what is wrong with the net is told about the shard itself
            index = None
        index = replace(index, written=0) if index is not None else make_index(self._fetched.get(source))
        index.save(place)
        return index

    @cached_property
    def _fetched(self) -> Fetched:
        return Fetched(self.cache / "shards", ".tar", most_together=self.cache_bytes)

    @cached_property
    def _all(self) -> tuple[Any, Any]:
        """The names of all shards, increasing, and the shard of each; shared by all processes through a file."""
        indexes = [self._index(number) for number in range(self.groups)]
        facts = [[source, index.size, index.written] for source, index in zip(self.sources, indexes, strict=True)]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        place = self.cache / "shards" / f"{digest}.all"
        if not place.is_file():
            if not any(len(index.hashes) for index in indexes):
                raise DataError(f"there are no pictures in {self._described}")
            hashes = np.concatenate([index.hashes for index in indexes])
            shards = np.repeat(np.arange(self.groups, dtype=np.uint64), [len(index.hashes) for index in indexes])
            order = np.argsort(hashes, kind="stable")
            save_npy(np.stack([hashes[order], shards[order]]), place)
        hashes, shards = np.load(place, mmap_mode="r", allow_pickle=False)
        return hashes, shards

    @property
    def _described(self) -> str:
        more = f" and {self.groups - 1} more shards" if self.groups > 1 else ""
        return f"{self.sources[0]}{more}"
