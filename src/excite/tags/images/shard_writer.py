"""Writing a corpus as shards: tar files of its images, unchanged, with their tags, in the WebDataset layout."""

from __future__ import annotations

import json
import math
import tarfile
from dataclasses import asdict, dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

from excite.errors import DataError, ImageError
from excite.images import picture_format
from excite.io.files import atomic_write, save_json
from excite.io.locks import Lock
from excite.jobs.loop import no_progress
from excite.tags.images.base import shown
from excite.tags.images.shards import key_of, make_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from excite.jobs.loop import Progress
    from excite.tags.corpus import Corpus
    from excite.tags.images import ImageSource

NOTES = "shards.json"
SIZE = 200_000_000
VERSION = 1
ROWS = 1000  # of the corpus in memory at a time
MESSAGES = 20  # about bad images; all are counted
SUFFIXES = {"JPEG": "jpg", "MPO": "jpg", "JPEG2000": "jp2", "TIFF": "tif"}


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
    a shard are left out and counted. The rest of a file is not checked, as decoding would take longer than everything
    else.

    Args:
        corpus: the images and their tags.
        images: the image source.
        out: the folder for the shards.
        size: of a full shard in bytes.
        rows: images of a full shard; without it, only the size counts.
        progress: reports the progress.

    Example:
        >>> ShardWriter(Corpus(Path("kept.parquet")), open_images("photos"), Path("shards")).write()  # doctest: +SKIP
    """

    corpus: Corpus
    images: ImageSource
    out: Path
    size: int | None = SIZE
    rows: int | None = None
    progress: Progress = no_progress
    failures: list[str] = field(default_factory=list, init=False)

    def write(self) -> list[Shard]:
        """Write the remaining shards.

        Raises:
            DataError: the folder holds shards of another corpus, or some of them are gone.
        """
        lock = Lock(self.out)
        lock.take()
        try:
            shards = self._written()
            start = shards[-1].end if shards else 0
            rows = self.progress(self._rows(start), self.corpus.rows - start)
            while start < self.corpus.rows:
                shards.append(self._write_shard(start, f"shard-{len(shards):06d}.tar", rows))
                start = shards[-1].end
                save_json({"of": self._facts(), "shards": list(map(asdict, shards))}, self.out / NOTES)
        finally:
            lock.release()
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
        for row_group in self.corpus.row_groups:
            row = row_group.first
            if row + row_group.rows <= start:
                continue
            for batch in self.corpus.batches([row_group], ROWS):
                yield from batch.slice(max(0, start - row)).to_pylist() if row + batch.num_rows > start else ()
                row += batch.num_rows

    def _write_shard(self, start: int, name: str, rows: Iterator[dict[str, Any]]) -> Shard:
        shard = Shard(name, start, start)
        path = atomic_write(self.out / name, lambda file: self._fill(file, shard, rows))
        if not shard.pictures:
            path.unlink()
            return shard
        shard.bytes = path.stat().st_size
        make_index(path).save(path.with_name(path.name + ".index"))
        return shard

    def _fill(self, file: BinaryIO, shard: Shard, rows: Iterator[dict[str, Any]]) -> None:
        keys: set[str] = set()
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for row in rows:
                shard.end += 1
                self._add(tar, row, keys, shard)
                if tar.offset >= (self.size or math.inf) or shard.pictures >= (self.rows or math.inf):
                    return

    def _add(self, tar: tarfile.TarFile, row: dict[str, Any], keys: set[str], shard: Shard) -> None:
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
            if len(self.failures) < MESSAGES:
                self.failures.append(str(error))
            return
        keys.add(key)
        shard.pictures += 1
        _append(tar, f"{key}.{SUFFIXES.get(kind, kind.lower())}", content)
        _append(tar, f"{key}.json", json.dumps(row, ensure_ascii=False).encode())


def _append(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file without owner and time."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, BytesIO(content))
