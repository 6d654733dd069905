"""Shards: tar files of images in the WebDataset layout, local or fetched, with random access through an index.

Adjacent files with the same key (all before the first dot of the name) are one sample. webdataset writes shards, but
reads them in order only. All indexes become one table that many processes map: 17 million images take 540 MB.
"""

import hashlib
import json
import math
import os
import tarfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError, ExciteError, FetchError, ImageError
from excite.images import PICTURE_SUFFIXES, picture_format
from excite.io.cache import fingerprint
from excite.io.files import Lock, atomic_write, save_json, save_npy
from excite.jobs.loop import Progress, no_progress
from excite.tags import package
from excite.tags.corpus import Corpus
from excite.tags.images.sources import WEB, FetchCache, ImageSource, check_size, shown

USUAL = ".jpg"
VERSION = 1
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
CACHE_BYTES = 50_000_000_000  # of fetched shards: some 250 of the usual 200 MB
NOTES = "shards.json"
SIZE = 200_000_000
SUFFIXES = {"JPEG": "jpg", "MPO": "jpg", "JPEG2000": "jp2", "TIFF": "tif"}
MOST_ROWS = 2**32  # of an index

_quoted = partial(quote, safe=" ", errors="surrogatepass")


def key_of(name: str) -> str:
    """The key of an image's sample: its path if that is plain; distinct for distinct names.

    Ambiguous characters are percent-encoded: a dot in the file's name as %2E, non-ASCII characters by their bytes.
    ".jpg", where it is the only dot, is left out: "v1.2/cat.jpg" is "v1.2/cat", "my.cat.jpg" is "my%2Ecat%2Ejpg".
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


def split_key(member: str) -> tuple[str, str]:
    """The key of a file's sample, and the rest after the dot."""
    folder, slash, file = member.rpartition("/")
    key, _, rest = file.partition(".")
    return folder + slash + key, rest


@dataclass(frozen=True, eq=False)
class TarIndex:
    """The index of the images of one tar file; saved as one array in NumPy's format."""

    size: int  # of the file in bytes
    written: int  # its modification time in nanoseconds
    columns: NDArray[np.uint64]  # [3, images]: hashes of the names, increasing; offsets; sizes in bytes

    def fits(self, about: os.stat_result) -> bool:
        """Whether the file is unchanged."""
        return (self.size, self.written) == (about.st_size, about.st_mtime_ns)

    def save(self, path: Path) -> None:
        """Write it as one array."""
        facts = np.array([VERSION, self.size, self.written, self.columns.shape[1]], np.uint64)
        save_npy(np.concatenate([facts, self.columns.ravel()]), path)


def hash_of(name: str) -> int:
    """A 64-bit hash of a name: a chance of 1 in 100,000 of a collision among 17 million images."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


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
    return TarIndex(size, written, numbers[4:].reshape(3, count)) if len(numbers) == 4 + 3 * count else None


def make_index(path: Path) -> TarIndex:
    """Index a tar file by its headers; a DataError if it cannot be read, is compressed, or is damaged."""
    try:
        with path.open("rb", buffering=0) as file:
            about, beginning = os.fstat(file.fileno()), file.read(8)
        for magic, kind in COMPRESSED.items():
            if beginning.startswith(magic):
                raise DataError(f"the shard {path} is compressed ({kind}): unpack it, for random access")
        rows = [(hash_of(name), offset, size) for name, offset, size in _pictures(path)]
    except (OSError, tarfile.TarError, ValueError, OverflowError) as error:
        raise DataError(f"cannot read the shard {path}: {' '.join(str(error).split())}") from None
    columns = np.array(rows, np.uint64).reshape(-1, 3).T
    _, first = np.unique(columns[0], return_index=True)  # of a name that is there twice, the first
    return TarIndex(about.st_size, about.st_mtime_ns, columns[:, first])


def _pictures(path: Path) -> Iterator[tuple[str, int, int]]:
    """The images of a tar file by name; then by key, which has a zero byte in front, as no name of a file has."""
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
        if any(file.read(512)):
            raise DataError(f"the shard {path} is damaged at byte {tar.offset}: copy or download it again")
    yield from by_key


@dataclass(frozen=True)
class Shards(ImageSource):
    """Images in tar files, by the names of their files, their keys, or their names in the corpus; the first counts.

    Each shard gets an index once, beside it (``NAME.tar.index``) or, if that is not writable, in the cache. A shard on
    the web is fetched whole when first needed; its index, if published beside it, is fetched first.
    """

    sources: tuple[str, ...]  # paths or web addresses; their order numbers the groups
    cache: Path  # the folder for fetched shards and indexes
    cache_bytes: int = CACHE_BYTES  # of fetched shards, at most

    def __reduce__(self) -> tuple[Any, ...]:  # other processes map the indexes themselves
        return Shards, (self.sources, self.cache, self.cache_bytes)

    @property
    def groups(self) -> int:
        """The number of shards."""
        return len(self.sources)

    def group(self, name: str) -> int:
        """The number of the image's shard; an ImageError if it is in none."""
        return self._find(name)[0]

    def encoded(self, name: str) -> bytes:
        """The bytes of the file in its shard, which stays readable while it is open even if it is removed."""
        number, offset, size = self._find(name)
        source = self.sources[number]
        check_size(size, name)
        for _ in range(3):  # other processes may remove a fetched shard to make room for theirs
            try:
                path = self._fetched.get(source) if source.startswith(WEB) else Path(source)
                with path.open("rb") as file:
                    about = os.fstat(file.fileno())
                    if not self._indexes[number].fits(about):
                        raise ImageError(f"the shard {source} changed while it was read: start again")
                    if offset + size > about.st_size:  # an index from the web is not trusted
                        raise ImageError(f"{shown(name)} is cut off in the shard {source}: copy it again")
                    file.seek(offset)
                    return file.read(size)
            except FetchError as error:
                raise ImageError(str(error)) from None
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ImageError(f"cannot read the shard {source}: {error.strerror}") from None
        raise ImageError(f"the shard {source} is gone; if it was fetched, let its cache have more room")

    def state(self, name: str) -> str:
        """The part of the shard, and its modification time."""
        number, *part = self._find(name)
        index = self._indexes[number]
        return f"{self.sources[number]} {index.written} {index.size} {tuple(part)}"

    def _find(self, name: str) -> tuple[int, int, int]:
        """The shard of an image, its offset there and its size: by its name, the key made of it, or its name as key."""
        plain = name.removeprefix("./")
        hashes, places = self._table
        for wanted in map(hash_of, (plain, f"\0{key_of(plain)}", f"\0{plain}")):
            at = int(np.searchsorted(hashes, np.uint64(wanted)))
            if at < len(hashes) and int(hashes[at]) == wanted:
                shard, row = divmod(int(places[at]), MOST_ROWS)
                offset, size = map(int, self._indexes[shard].columns[1:, row])
                return shard, offset, size
        raise ImageError(f"there is no image {shown(name)} in {self._described}")

    @cached_property
    def _indexes(self) -> list[TarIndex]:
        return [self._index_of_web(one) if one.startswith(WEB) else self._index_here(one) for one in self.sources]

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
    def _table(self) -> NDArray[np.uint64]:
        """[2, images]: hashes, increasing; shards and rows of their indexes. Shared by all processes through a file."""
        facts = [[one, index.size, index.written] for one, index in zip(self.sources, self._indexes, strict=True)]
        path = self.cache / "shards" / f"{fingerprint(['table', *facts], digits=32)}.all"
        if not path.is_file():
            hashes = np.concatenate([index.columns[0] for index in self._indexes])
            if not len(hashes):
                raise DataError(f"there are no images in {self._described}")
            rows = [shard * MOST_ROWS + np.arange(one.columns.shape[1]) for shard, one in enumerate(self._indexes)]
            places, order = np.concatenate(rows).astype(np.uint64), np.argsort(hashes, kind="stable")
            save_npy(np.stack([hashes[order], places[order]]), path)
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]

    @property
    def _described(self) -> str:
        more = f" and {self.groups - 1} more shards" if self.groups > 1 else ""
        return f"{self.sources[0]}{more}"


@dataclass
class Shard:
    """A shard: its rows of the corpus up to, but without, `end`, and the numbers of images."""

    file: str
    first: int
    end: int
    pictures: int = 0
    bad: int = 0
    repeated: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class ShardWriter:
    """Writes the images of a corpus, in its order, as shards; a stopped run continues after its last shard.

    Each image is copied unchanged and followed by a JSON file with its row of the corpus; the same corpus gives the
    same bytes. Images that cannot be read, whose first bytes are those of no image format, or that are repeated within
    a shard are left out and counted. The rest of a file is not checked: decoding would take longer than all else.
    """

    corpus: Corpus
    images: ImageSource
    out: Path  # a folder
    size: int | None = SIZE  # of a full shard in bytes
    rows: int | None = None  # images of a full shard; without it, only the size counts
    progress: Progress = no_progress
    failures: list[str] = field(default_factory=list, init=False)

    def write(self) -> list[Shard]:
        """Write the remaining shards; a DataError if the folder holds those of another corpus, or some are gone."""
        with Lock(self.out):
            shards = self._written()
            start = shards[-1].end if shards else 0
            rows = self.progress(self._rows(start), self.corpus.rows - start)
            while start < self.corpus.rows:
                shards.append(self._write_shard(start, f"shard-{len(shards):06d}.tar", rows))
                start = shards[-1].end
                save_json({"of": self._facts(), "shards": list(map(asdict, shards))}, self.out / NOTES)
        return shards

    def _facts(self) -> list[Any]:
        """Everything that the shards depend on."""
        files = dict.fromkeys(row_group.path for row_group in self.corpus.row_groups)
        states = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]
        return [VERSION, states, asdict(self.corpus.columns), self.size, self.rows]

    def _written(self) -> list[Shard]:
        """The shards of an earlier run."""
        notes = self.out / NOTES
        if not notes.exists():
            return []
        try:
            known = json.loads(notes.read_text(encoding="utf-8"))
            facts, shards = known["of"], [Shard(**shard) for shard in known["shards"]]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"cannot read {notes}: {' '.join(str(error).split())}; choose another --out") from None
        if facts != self._facts():
            raise DataError(f"{self.out} holds shards of another corpus, or of another size: choose another --out")
        for shard in shards:
            path = self.out / shard.file
            if shard.pictures and not (path.is_file() and path.stat().st_size == shard.bytes):
                raise DataError(f"the shard {path} is gone or was changed: remove {notes} to write all of them again")
        return shards

    def _rows(self, start: int) -> Iterator[dict[str, Any]]:
        """The rows of the corpus from one on."""
        for group in self.corpus.row_groups:
            if group.slice.stop > start:
                rows = chain.from_iterable(batch.to_pylist() for batch in self.corpus.batches([group], 1000))
                yield from islice(rows, max(0, start - group.first), None)

    def _write_shard(self, start: int, name: str, rows: Iterator[dict[str, Any]]) -> Shard:
        shard = Shard(name, start, start)
        path = atomic_write(self.out / name, lambda file: self._fill(file, shard, rows))
        if shard.pictures:
            shard.bytes = path.stat().st_size
            make_index(path).save(path.with_name(path.name + ".index"))
        else:
            path.unlink()
        return shard

    def _fill(self, file: BinaryIO, shard: Shard, rows: Iterator[dict[str, Any]]) -> None:
        """Add rows to a shard until it is full; without owner and time, so that the bytes are always the same."""
        keys: set[str] = set()
        options = {"user": "", "group": "", "mode": 0o644, "mtime": 0, "encoder": False}
        with package("webdataset").TarWriter(file, **options) as tar:
            for row in rows:
                shard.end += 1
                self._add(tar, row, keys, shard)
                if tar.tarstream.offset >= (self.size or math.inf) or shard.pictures >= (self.rows or math.inf):
                    return

    def _add(self, tar: Any, row: dict[str, Any], keys: set[str], shard: Shard) -> None:
        """Add an image and its row, or count it as left out."""
        try:
            key = key_of(row["image"] or "")
            if key in keys:
                shard.repeated += 1
                return
            content = self.images.encoded(row["image"] or "")
            kind = picture_format(content, shown(row["image"]))
        except ImageError as error:
            shard.bad += 1
            if len(self.failures) < 20:  # all are counted
                self.failures.append(str(error))
            return
        keys.add(key)
        shard.pictures += 1
        tar.write({"__key__": key, SUFFIXES.get(kind, kind.lower()): content})
        tar.write({"__key__": key, "json": json.dumps(row, ensure_ascii=False).encode()})
