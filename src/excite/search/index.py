"""The file of an index: for each photo the probabilities of all outputs, in one SQLite database.

A probability is stored as its log-odds in 8 bits, in equal steps; the entries of embeddings, which take its place for
classifiers of any words, in 16. Photos have numbers, and 4064 numbers are a block. The codes of a block are stored by
output unit, so that a question about a unit reads 4 KB for each block. New photos are rows of their own first; when an
update ends, these are written into the blocks. The numbers of photos that are gone are used again.

Every change is one transaction with a rollback journal: a kill at any moment loses at most the photos being computed,
and the index is a single file, which can be read from network file systems and read-only media too.
"""

import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excite.errors import ExciteError, NumberError

Codes = NDArray[np.uint8] | NDArray[np.uint16]
Plane = NDArray[np.float32]

FORMAT, OWNER = 2, 0x65786369  # of the file: its version, and SQLite's application_id
BLOCK, PAGE = 4064, 2**15  # photos, and bytes of a page, which the 8-bit codes of eight units for a block fill
RANGES = {8: (-15.0, 10.5), 16: (-24.0, 16.0)}  # of log-odds, by bits: p from 3e-7 to 1 - 3e-5, and 4e-11 to 1 - 1e-7
FEWEST = 256  # new photos for which a block is written again
PATIENCE = 30.0  # seconds for another process to finish its transaction
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE photos (number INTEGER PRIMARY KEY, path BLOB UNIQUE, size INT, time INT, content BLOB, error TEXT);
CREATE INDEX missing ON photos (number) WHERE path IS NULL OR error IS NOT NULL;
CREATE TABLE codes (number INTEGER PRIMARY KEY, row BLOB);
CREATE TABLE blocks (place INTEGER PRIMARY KEY, part BLOB);
CREATE TABLE thumbnails (number INTEGER PRIMARY KEY, jpeg BLOB);
"""


def encode(probabilities: ArrayLike, bits: int = 8) -> Codes:
    """Probabilities as codes of 8 or 16 bits: their log-odds within `RANGES`, in equal steps.

    Example:
        >>> [f"{value:.4g}" for value in decode(encode([0.0, 0.25, 0.5, 1.0]))]
        ['3.059e-07', '0.2497', '0.5', '1']
        >>> [f"{value:.4g}" for value in decode(encode([0.0, 0.25, 0.5, 1.0], bits=16))]
        ['3.775e-11', '0.25', '0.5', '1']
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if not np.isfinite(values).all():
        raise NumberError("the classifier gives probabilities that are no numbers: they cannot be ranked")
    with np.errstate(divide="ignore"):
        odds = np.log(values) - np.log1p(-values)
    lowest, highest = RANGES[bits]
    steps = (odds.clip(lowest, highest) - lowest) * ((2**bits - 1) / (highest - lowest))
    codes: Codes = np.rint(steps).astype(type_of(bits))
    return codes


def type_of(bits: int) -> np.dtype[Any]:
    """The type of codes of so many bits."""
    return np.dtype(f"<u{bits // 8}")


def decode(codes: Codes) -> Plane:
    """The probabilities of codes; see `encode`."""
    return np.take(_probabilities(8 * codes.itemsize), codes, mode="clip")  # which is quicker


@cache
def _probabilities(bits: int) -> Plane:
    """The probability of each code."""
    return (1 / (1 + np.exp(-np.linspace(*RANGES[bits], 2**bits)))).astype(np.float32)


def _sealed(codes: Codes) -> bytes:
    """Codes as bytes with their checksum: a flipped bit would otherwise be another probability."""
    content = codes.tobytes()
    return content + zlib.crc32(content).to_bytes(4, "little")


class Photo(NamedTuple):
    """A photo of the index: its number, its path in the folder, and what it had when it was read.

    ``error`` says why it could not be read; ``path`` is None where the photo is gone and its number free.
    """

    number: int
    path: bytes | None
    size: int
    time: int  # of its modification, in nanoseconds
    content: bytes  # a hash
    error: str | None = None


class IndexFile:
    """The database of an index; safe for several threads.

    Args:
        path: the file; made where it is missing.
        identity: what the probabilities depend on: an index of anything else is refused.
        bits: the width of its codes, 8 or 16: a fact of the file.
        fresh: remove what is there.
    """

    def __init__(self, path: Path, identity: Sequence[str], *, bits: int = 8, fresh: bool = False) -> None:
        self.path, self.bits = path, bits
        self._lock = threading.RLock()
        with self.errors_told():
            is_there = path.exists() and path.stat().st_size > 0
            if is_there and fresh:
                self._remove()
            self._connection = self._connect()
            try:
                if not is_there or fresh:
                    self._create(identity)
                self._check(list(identity))
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # Opening.

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        read_only = not os.access(self.path.parent, os.W_OK) and self.path.exists()
        address = f"file:{quote(os.fsencode(self.path.absolute()))}{'?mode=ro&immutable=1' if read_only else ''}"
        settings: Any = {"timeout": PATIENCE, "isolation_level": None, "check_same_thread": False, "uri": True}
        connection: sqlite3.Connection = sqlite3.connect(address, **settings)
        return connection

    def _remove(self) -> None:
        """Remove an index, also a damaged one, but no other file."""
        with self.path.open("rb") as file:
            head = file.read(72)
        if int.from_bytes(head[68:72], "big") != OWNER:  # as SQLite writes it
            raise ExciteError(f"{str(self.path)!r} is no index of excite, and is not removed: choose another --index")
        for suffix in ("-journal", ""):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _create(self, identity: Sequence[str]) -> None:
        facts = {"format": FORMAT, "identity": list(identity), "bits": self.bits, "outputs": 0}
        self.read(f"PRAGMA page_size = {PAGE}")
        self.read("PRAGMA auto_vacuum = INCREMENTAL")
        with self.writing() as write:
            write.execute(f"PRAGMA application_id = {OWNER}")
            for table in TABLES.strip().splitlines():
                write.execute(table)
            write.executemany("INSERT INTO facts VALUES (?, ?)", ((name, json.dumps(v)) for name, v in facts.items()))

    def _check(self, identity: list[str]) -> None:
        again = "--fresh makes it again, --index FILE makes another"
        (owner,) = self.read("PRAGMA application_id")[0]
        if owner != OWNER:
            raise ExciteError(f"{str(self.path)!r} is no index of excite: choose another --index")
        with self._sound():
            facts = {name: json.loads(value) for name, value in self.read("SELECT name, value FROM facts")}
            if facts["format"] != FORMAT:
                raise ExciteError(f"the index {str(self.path)!r} is of another version of excite: {again}")
            known, bits, self.outputs = list(facts["identity"]), facts["bits"], int(facts["outputs"])
        if known != identity:
            which = f"{known[0]}, not {identity[0]}" if known[:1] != identity[:1] else f"another {known[0]}"
            raise ExciteError(f"the index {str(self.path)!r} is of the classifier {which}: {again}")
        if bits != self.bits:
            raise self.damaged("codes of another width")

    # Reading and writing.

    @contextmanager
    def errors_told(self) -> Iterator[None]:
        """Errors of SQLite and of the disk as one line."""
        try:
            yield
        except OSError as error:
            reason = f"{error.strerror or error}; choose another with --index FILE"
            raise ExciteError(f"cannot use the index {str(self.path)!r}: {reason}") from None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            name = f"the index {str(self.path)!r}"
            if code == sqlite3.SQLITE_BUSY:
                raise ExciteError(f"another process is writing {name}: wait for it, and ask again") from None
            if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
                raise ExciteError(f"cannot write {name} ({error}): make room; what was finished is kept") from None
            if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
                raise ExciteError(f"cannot write {name}: no permission; choose a place with --index FILE") from None
            raise self.damaged(error) from None

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Values that no index has, as one line."""
        try:
            yield
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise self.damaged(type(error).__name__) from None

    def damaged(self, reason: object) -> ExciteError:
        """The error for an index that holds what no index has."""
        words = "--fresh makes it again; the photos are as they were"
        return ExciteError(f"the index {str(self.path)!r} is damaged ({reason}): {words}")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction."""
        with self._lock, self.errors_told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def read(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows of a query."""
        with self._lock, self.errors_told():
            return self._connection.execute(query, values).fetchall()

    def _unsealed(self, content: bytes) -> Codes:
        codes = content[:-4]
        if zlib.crc32(codes) != int.from_bytes(content[-4:], "little"):
            raise self.damaged("a checksum is wrong")
        return np.frombuffer(codes, type_of(self.bits))

    # Photos.

    def photos(self) -> list[Photo]:
        """All photos, also those that are gone or cannot be read."""
        rows = self.read("SELECT number, path, size, time, content, error FROM photos")
        kinds: tuple[Any, ...] = (int, (bytes, type(None)), int, int, bytes, (str, type(None)))
        if not all(isinstance(value, kind) for row in rows for value, kind in zip(row, kinds, strict=True)):
            raise self.damaged("a photo has values of other types")
        return [Photo(*row) for row in rows]

    def paths(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The path of each number that has a photo, and one that was read."""
        found = self.read(
            "SELECT number, path FROM photos WHERE number IN (SELECT value FROM json_each(?)) "
            "AND path NOT NULL AND error IS NULL",
            (json.dumps(numbers),),
        )
        return dict(found)

    def errors(self) -> list[str]:
        """A line for each photo that is there and could not be read."""
        return [error for _, path, error in self._missing() if path is not None]

    def _missing(self) -> list[Any]:
        """Number, path and error of the photos that are gone or could not be read, by their index."""
        found = self.read("SELECT number, path, error FROM photos WHERE path IS NULL OR error IS NOT NULL")
        if any(path is not None and error is None for _, path, error in found):
            raise self.damaged("its list of missing photos is wrong")
        return found

    def thumbnail(self, number: int) -> bytes | None:
        """The thumbnail of a photo as JPEG; None where there is none."""
        found = self.read(
            "SELECT jpeg FROM thumbnails WHERE number IN (SELECT value FROM json_each(?))", (f"[{number}]",)
        )
        return bytes(found[0][0]) if found else None

    def assign(self, photos: Iterable[Photo], gone: Iterable[Photo]) -> None:
        """Give known photos the path, size and time that they have now; others are gone, and keep their content."""
        with self.writing() as write:
            named = list(photos)
            free = [(photo.number,) for photo in (*named, *gone)]
            write.executemany(
                "UPDATE photos SET path = NULL WHERE number = ?", free
            )  # two may have changed their names
            write.executemany(
                "UPDATE photos SET path = ?, size = ?, time = ? WHERE number = ?",
                ((photo.path, photo.size, photo.time, photo.number) for photo in named),
            )

    def add(self, photos: Sequence[Photo], codes: Sequence[Codes | None], thumbnails: Sequence[bytes | None]) -> None:
        """Add photos with their codes, in one transaction; those with a number that is taken replace what is there."""
        made = [one for one in codes if one is not None]
        with self.writing() as write:
            if made and not self.outputs:
                self.outputs = len(made[0])
                write.execute("UPDATE facts SET value = ? WHERE name = 'outputs'", (self.outputs,))
            numbers = [(photo.number,) for photo in photos]
            for table in ("photos", "codes", "thumbnails"):
                write.executemany(f"DELETE FROM {table} WHERE number = ?", numbers)  # noqa: S608 - our own names
            write.executemany("INSERT INTO photos VALUES (?, ?, ?, ?, ?, ?)", photos)
            for (number,), row, jpeg in zip(numbers, codes, thumbnails, strict=True):
                if row is not None:
                    write.execute("INSERT INTO codes VALUES (?, ?)", (number, _sealed(row)))
                if jpeg is not None:
                    write.execute("INSERT INTO thumbnails VALUES (?, ?)", (number, jpeg))

    # Codes.

    def pack(self) -> None:
        """Write rows into their blocks, where there are many."""
        counts = self.read(f"SELECT number / {BLOCK} AS block, count(*) FROM codes GROUP BY block")  # noqa: S608
        for block, count in counts:
            if count >= min(FEWEST, BLOCK):
                with self._lock, self._sound():
                    self._pack(block)

    def _pack(self, block: int) -> None:
        first, units = block * BLOCK, range(self.outputs)
        among = first, first + BLOCK - 1
        values = np.zeros((self.outputs, min(BLOCK, self._count() - first)), type_of(self.bits))
        for unit, part in self._parts(block, units).items():
            values[unit, : len(part)] = part
        for number, row in self.read("SELECT number, row FROM codes WHERE number BETWEEN ? AND ?", among):
            values[:, number - first] = self._unsealed(row)
        with self.writing() as write:
            places = (block * self.outputs + unit for unit in units)
            write.executemany("REPLACE INTO blocks VALUES (?, ?)", zip(places, map(_sealed, values), strict=True))
            write.execute("DELETE FROM codes WHERE number BETWEEN ? AND ?", among)
        with self.errors_told():  # the pages of the rows; execute would give back a single one
            self._connection.executescript("PRAGMA incremental_vacuum")

    def _parts(self, block: int, units: Sequence[int]) -> dict[int, Codes]:
        """The codes of some units for the photos of a block, as far as there are any."""
        start = block * self.outputs
        places = json.dumps([start + unit for unit in units])
        found = self.read("SELECT place, part FROM blocks WHERE place IN (SELECT value FROM json_each(?))", (places,))
        return {place - start: self._unsealed(part) for place, part in found}

    def numbers(self) -> NDArray[np.int64]:
        """The numbers of all photos that are there and were read, in order."""
        there = np.ones(self._count(), dtype=bool)
        with self._sound():
            there[[number for number, _, _ in self._missing()]] = False
        return np.flatnonzero(there)

    def _count(self) -> int:
        """The number of photos, also of those that are gone; all numbers below it are used."""
        ((first, last),) = self.read("SELECT (SELECT min(number) FROM photos), (SELECT max(number) FROM photos)")
        if last is not None and (first != 0 or last > self.path.stat().st_size):  # each takes more than a byte
            raise self.damaged("photos have impossible numbers")
        return 0 if last is None else int(last) + 1

    def chances(self, concepts: Sequence[tuple[Sequence[int], NDArray[np.bool_]]]) -> list[Plane]:
        """For each concept and number the probability that it is there, as `Classifier.chance` gives it.

        A concept is its units, and for each whether it is independent: of these the maximum is taken, all others add
        up. A number without codes has NaN.
        """
        with self._lock, self._sound():
            count = self._count()
            chances = np.full((len(concepts), -(-count // BLOCK) * BLOCK), np.nan, np.float32)
            wanted = sorted({unit for units, _ in concepts for unit in units})
            for start in range(0, chances.shape[1], BLOCK):
                if parts := self._parts(start // BLOCK, wanted):
                    for row, concept in zip(chances, concepts, strict=True):
                        found = _any(parts, *concept)
                        row[start : start + len(found)] = found
            if rows := self.read("SELECT number, row FROM codes WHERE number >= 0"):
                numbers = [number for number, _ in rows]
                table = np.stack([self._unsealed(row)[wanted] for _, row in rows], axis=1)
                for row, concept in zip(chances, concepts, strict=True):
                    row[numbers] = _any(dict(zip(wanted, table, strict=True)), *concept)
        return list(chances[:, :count])


def _any(parts: Mapping[int, Codes], units: Sequence[int], independent: NDArray[np.bool_]) -> Plane:
    """The probability of any of several outputs; see `IndexFile.chances`."""
    most = total = np.zeros(len(parts[units[0]]), np.float32)
    for unit, alone in zip(units, independent, strict=True):
        if alone:
            most = np.maximum(most, decode(parts[unit]))
        else:
            total = total + decode(parts[unit])
    return np.maximum(most, total)
