"""Results as Parquet files, for other programs."""

from __future__ import annotations

import json
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from excite.errors import ExciteError
from excite.io.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from excite.jobs.results import Entry

PLAIN: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "double"}
PART = "part-00000.parquet"
JSON_TEXT = "json"
MARK = b"excite"  # of the metadata of a file: the kind of each column


def arrow() -> Any:
    """The package pyarrow, with its modules ``parquet`` and ``compute`` imported."""
    try:
        import_module("pyarrow.parquet")
        import_module("pyarrow.compute")
    except ImportError:
        raise ExciteError("Parquet files need pyarrow: pip install 'excite[tags]'") from None
    return import_module("pyarrow")


def save_parquet(folder: Path, entries: Collection[Entry]) -> None:
    """Write results into ``part-00000.parquet``, and remove all other parts.

    A field that is text, a number or a truth value wherever it is given has a column of that type, so that other
    programs can filter and sum; any other is JSON text. The entries are iterated twice.
    """
    pa, kinds = arrow(), _kinds(entries)
    fields = [(name, pa.type_for_alias("string" if kind == JSON_TEXT else kind)) for name, kind in kinds.items()]
    schema = pa.schema(fields, metadata={MARK: json.dumps(kinds)})
    others = [path for path in parts_of(folder) if path.name != PART]

    def write(file: BinaryIO) -> None:
        rows = ({name: _cell(value, kinds[name]) for name, value in entry.items()} for entry in entries)
        with pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            while some := list(islice(rows, 2000)):
                writer.write_table(pa.Table.from_pylist(some, schema=schema))

    atomic_write(folder / PART, write)
    for path in others:
        path.unlink()


def _kinds(entries: Iterable[Entry]) -> dict[str, str]:
    """The kind of each field."""
    kinds: dict[str, set[str]] = {}
    for entry in entries:
        for name, value in entry.items():
            fits = not isinstance(value, int) or abs(value) < 2**63
            kind = PLAIN.get(type(value), JSON_TEXT) if fits else JSON_TEXT
            kinds.setdefault(name, set()).update([] if value is None else [kind])
    return {name: some.pop() if len(some) == 1 else JSON_TEXT for name, some in kinds.items()}


def _cell(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == JSON_TEXT:
        return json.dumps(value)
    return value.encode("utf-8", "backslashreplace").decode() if kind == "string" else value  # odd file names


def parts_of(folder: Path) -> list[Path]:
    """The files of a folder of results, in order; an `ExciteError` if one is damaged or not excite's."""
    parts = sorted(folder.glob("part-*.parquet"))
    for path in parts:
        with _damage_told(path):
            if MARK not in (arrow().parquet.read_schema(path).metadata or {}):
                raise ExciteError(f"{str(path)!r} was not written by excite: choose another --out")
    return parts


def read_parquet(folder: Path) -> Iterator[Entry]:
    """The results of a folder: excite 0.1 kept those of a cluster nowhere else."""
    for path in parts_of(folder):
        with _damage_told(path):
            table = arrow().parquet.read_table(path)
            kinds = json.loads(table.schema.metadata[MARK])
            for row in table.to_pylist():
                if row.get("odd_row") is not None:  # in 0.1, one that did not fit the columns
                    yield json.loads(row["odd_row"])
                else:
                    texts = {name for name, kind in kinds.items() if kind == JSON_TEXT and row[name] is not None}
                    yield {name: json.loads(row[name]) if name in texts else row[name] for name in kinds}


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, arrow().ArrowException, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ExciteError(f"{str(path)!r} is damaged ({reason}): move it away, or use another --out") from None
