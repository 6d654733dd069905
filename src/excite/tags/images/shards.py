"""Images in shards: tar files in the WebDataset layout, local or fetched, with random access through an index.

Readers of the WebDataset layout take everything before the first dot of a file's name as the key of its sample, and
adjacent files with the same key as one sample. So no two images may have the same key.

An index is one array in NumPy's format, memory-mapped by any number of processes: facts about the tar file, then the
images' names as 64-bit hashes in increasing order, their offsets, and their sizes. 17 million images take 800 MB.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError, ExciteError, FetchError, ImageError
from excite.images import PICTURE_SUFFIXES
from excite.io.files import save_npy
from excite.tags.images.base import MOST_BYTES, WEB, FetchCache, ImageSource, read_at, shown, too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


Numbers = NDArray[np.uint64]

USUAL = ".jpg"
VERSION = 1
BLOCK = 512
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
CACHE_BYTES = 50_000_000_000  # of fetched shards: some 250 of the usual 200 MB
ATTEMPTS = 3  # to open a shard that other processes remove to make room for theirs


def key_of(name: str) -> str:
    """The key of an image's sample: its path if that is plain; distinct for distinct names.

    Ambiguous characters are percent-encoded: a dot in the file's name as %2E, non-ASCII characters by their bytes.
    ".jpg", where it is the only dot, is left out.

    Example:
        >>> key_of("v1.2/cat.jpg"), key_of("cat.png"), key_of("my.cat.jpg"), key_of("cat")
        ('v1.2/cat', 'cat%2Epng', 'my%2Ecat%2Ejpg', 'cat%2F')
    """
    folder, slash, file = name.rpartition("/")
    if "." not in file:
        file = _quoted(file) + "%2F"
    elif file.endswith(USUAL) and file.count(".") == 1 and file != USUAL:
        file = _quoted(file.removesuffix(USUAL))
    else:
        file = _quoted(file).replace(".", "%2E")
    parts = [_quoted(part) if part.strip(".") else "%2E" * len(part) for part in folder.split("/")]
    key = "/".join([*parts, file]) if slash else file
    if key.startswith(("/", "__")):  # an absolute path, and WebDataset's metadata of the whole shard
        return f"%{ord(key[0]):X}{key[1:]}"
    return key


def _quoted(text: str) -> str:
    return quote(text, safe=" ", errors="surrogatepass")


def split_key(member: str) -> tuple[str, str]:
    """The key of a file's sample, and the rest after the dot."""
    folder, slash, file = member.rpartition("/")
    key, _, rest = file.partition(".")
    return folder + slash + key, rest


def possible_names(name: str) -> Iterator[str]:
    """The entries under which an index may hold an image: its name, the key derived from it, and its name as a key."""
    name = name.removeprefix("./")
    yield name
    yield f"\0{key_of(name)}"  # no name of a file has a zero byte
    yield f"\0{name}"


@dataclass(frozen=True, eq=False)
class TarIndex:
    """The index of the images of one tar file.

    Attributes:
        size: of the file in bytes.
        written: its modification time in nanoseconds.
        hashes: of the names, increasing.
        offsets: of the images.
        sizes: of the images in bytes.
    """

    size: int
    written: int
    hashes: Numbers
    offsets: Numbers
    sizes: Numbers

    def fits(self, about: os.stat_result) -> bool:
        """Whether the file is unchanged."""
        return (self.size, self.written) == (about.st_size, about.st_mtime_ns)

    def find(self, names: Iterable[str]) -> tuple[int, int] | None:
        """Offset and size of the first of the names that exists."""
        for name in names:
            if (row := found_at(self.hashes, hash_of(name))) is not None:
                return int(self.offsets[row]), int(self.sizes[row])
        return None

    def save(self, path: Path) -> None:
        """Write it as one array."""
        facts = np.array([VERSION, self.size, self.written, len(self.hashes)], np.uint64)
        save_npy(np.concatenate([facts, self.hashes, self.offsets, self.sizes]), path)


def hash_of(name: str) -> int:
    """A 64-bit hash of a name. Among 17 million images a collision has a chance of 1 in 100,000."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def found_at(hashes: Numbers, wanted: int) -> int | None:
    """The first index of a number in an increasing array."""
    row = int(np.searchsorted(hashes, np.uint64(wanted)))
    return row if row < len(hashes) and int(hashes[row]) == wanted else None


def read_index(path: Path) -> TarIndex | None:
    """Read a saved index; None if there is none of this version."""
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy's, about a shape that no file can have
            numbers: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # noqa: BLE001 - errors of all kinds for a damaged file, which is made anew
        return None
    if numbers.dtype != np.uint64 or numbers.ndim != 1 or len(numbers) < 4 or numbers[0] != VERSION:
        return None
    _, size, written, count = map(int, numbers[:4])
    if len(numbers) != 4 + 3 * count:
        return None
    return TarIndex(size, written, *(numbers[4 + part * count : 4 + (part + 1) * count] for part in range(3)))


def make_index(path: Path) -> TarIndex:
    """Index a tar file by its headers; the images themselves are not read.

    Raises:
        DataError: it cannot be read, is compressed, or is damaged.
    """
    try:
        with path.open("rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            beginning = file.read(8)
            for magic, kind in COMPRESSED.items():
                if beginning.startswith(magic):
                    raise DataError(f"the shard {path} is compressed ({kind}): unpack it, for random access")
            rows = [(hash_of(name), offset, size) for name, offset, size in _pictures(path)]
    except (OSError, tarfile.TarError, ValueError, OverflowError) as error:
        raise DataError(f"cannot read the shard {path}: {' '.join(str(error).split())}") from None
    columns = np.array(rows, np.uint64).reshape(-1, 3).T
    hashes, first = np.unique(columns[0], return_index=True)  # of a name that is there twice, the first
    return TarIndex(about.st_size, about.st_mtime_ns, hashes, columns[1][first], columns[2][first])


def _pictures(path: Path) -> Iterator[tuple[str, int, int]]:
    """The images of a tar file by name; then by key."""
    by_key = []
    with tarfile.open(path, "r:") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep all; typeshed lacks it
            if member.size < 0:
                raise tarfile.ReadError("a file in it has fewer than no bytes")
            name = member.name.removeprefix("./")
            key, rest = split_key(name)
            is_picture = f".{rest.rpartition('.')[2]}".lower() in PICTURE_SUFFIXES
            if not member.isreg() or member.issparse() or not is_picture:
                continue
            yield name, member.offset_data, member.size
            if "." not in rest:
                by_key.append((f"\0{key}", member.offset_data, member.size))
    with path.open("rb") as file:  # a damaged header looks like the end, but is not followed by zeros
        file.seek(tar.offset)
        if any(file.read(BLOCK)):
            raise DataError(f"the shard {path} is damaged at byte {tar.offset}: copy or download it again")
    yield from by_key


@dataclass(frozen=True)
class Shards(ImageSource):
    """Images in tar files.

    An image is found by the whole name of its file in a shard, by that name without its suffix (its key), or by the
    name it had in the corpus that `excite.tags.images.shard_writer` wrote. Of several, the first counts.

    Each shard gets an index once, beside it (``NAME.tar.index``) or, if that is not writable, in the cache. A shard on
    the web is fetched whole when first needed; its index, if published beside it, is fetched first.

    Args:
        sources: the shards, paths or web addresses; their order numbers the groups.
        cache: the folder for fetched shards and indexes.
        cache_bytes: the size limit for fetched shards.
    """

    sources: tuple[str, ...]
    cache: Path
    cache_bytes: int = CACHE_BYTES
    _indexes: dict[int, TarIndex] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes map the indexes themselves."""
        return Shards, (self.sources, self.cache, self.cache_bytes)

    @property
    def groups(self) -> int:
        """The number of shards."""
        return len(self.sources)

    def group(self, name: str) -> int:
        """The number of the image's shard.

        Raises:
            ImageError: it is in none.
        """
        hashes, shards = self._all
        for possible in possible_names(name):
            if (row := found_at(hashes, hash_of(possible))) is not None:
                return int(shards[row])
        raise ImageError(f"there is no image {shown(name)} in {self._described}")

    def encoded(self, name: str) -> bytes:
        """The bytes of the file in its shard, which stays readable while it is open even if it is removed."""
        number = self.group(name)
        source = self.sources[number]
        for _ in range(ATTEMPTS):
            try:
                with self._local(source).open("rb", buffering=0) as file:
                    return self._bytes(number, name, file.fileno())
            except FileNotFoundError:  # removed just now to make room
                continue
            except OSError as error:
                raise ImageError(f"cannot read the shard {source}: {error.strerror}") from None
        raise ImageError(f"the shard {source} is gone; if it was fetched, let its cache have more room")

    def state(self, name: str) -> str:
        """The part of the shard, and its modification time."""
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
        there = offset + size <= os.fstat(file).st_size  # an index from the web is not trusted
        content = read_at(file, offset, size) if there else b""
        if not there or len(content) < size:
            raise ImageError(f"{shown(name)} is cut off in the shard {self.sources[number]}: copy it again")
        return content

    def _local(self, source: str) -> Path:
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
        paths = (path.with_name(path.name + ".index"), self._fetched.path(str(path.resolve())).with_suffix(".index"))
        for saved in paths:
            if (index := read_index(saved)) is not None and index.fits(about):
                return index
        index = make_index(path)
        try:
            index.save(paths[0])
        except ExciteError:  # not writable
            index.save(paths[1])
        return index

    def _index_of_web(self, source: str) -> TarIndex:
        """From the cache, from beside the shard, or from the shard."""
        path = self._fetched.path(source).with_suffix(".index")
        if (index := read_index(path)) is not None:
            return index
        try:
            index = read_index(FetchCache(self.cache / "shards", ".beside").get(f"{source}.index"))
        except FetchError:  # most have none; network errors are reported for the shard itself
            index = None
        index = replace(index, written=0) if index is not None else make_index(self._fetched.get(source))
        index.save(path)
        return index

    @cached_property
    def _fetched(self) -> FetchCache:
        return FetchCache(self.cache / "shards", ".tar", most_together=self.cache_bytes)

    @cached_property
    def _all(self) -> tuple[Any, Any]:
        """The hashes of all shards, increasing, and the shard of each; shared by all processes through a file."""
        indexes = [self._index(number) for number in range(self.groups)]
        facts = [[source, index.size, index.written] for source, index in zip(self.sources, indexes, strict=True)]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        path = self.cache / "shards" / f"{digest}.all"
        if not path.is_file():
            if not any(len(index.hashes) for index in indexes):
                raise DataError(f"there are no images in {self._described}")
            hashes = np.concatenate([index.hashes for index in indexes])
            shards = np.repeat(np.arange(self.groups, dtype=np.uint64), [len(index.hashes) for index in indexes])
            order = np.argsort(hashes, kind="stable")
            save_npy(np.stack([hashes[order], shards[order]]), path)
        hashes, shards = np.load(path, mmap_mode="r", allow_pickle=False)
        return hashes, shards

    @property
    def _described(self) -> str:
        more = f" and {self.groups - 1} more shards" if self.groups > 1 else ""
        return f"{self.sources[0]}{more}"
