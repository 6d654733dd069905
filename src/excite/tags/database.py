"""A database in memory (duckdb) that spills to the disk beyond a limit: rules and statistics are SQL on Arrow batches.

duckdb reads no file of a user: an unclosed quote costs it the rest of a CSV file, lines that are no JSON are lost
without a count, and Parquet files may hold anything. `excite.tags.corpus` and `excite.tags.formats` read them.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MEMORY = "1.5GB"  # beyond it duckdb uses the disk


@contextmanager
def database(spill: Path | None = None, threads: int = 1) -> Iterator[Any]:
    """A connection to a new database.

    Args:
        spill: the folder for what exceeds `MEMORY`; without one, a folder ``.tmp`` here.
        threads: of a query.

    Raises:
        ExciteError: duckdb is missing, or a query failed, as on a full disk.

    Example:
        >>> with database() as tables:
        ...     tables.execute("SELECT list_sort(['sky', 'sea'])").fetchall()
        [(['sea', 'sky'],)]
    """
    try:
        duckdb = import_module("duckdb")
    except ImportError:
        raise ExciteError("tags are counted with duckdb: pip install 'excite[tags]'") from None
    settings = {"threads": threads, "memory_limit": MEMORY}
    if spill is not None:
        settings["temp_directory"] = str(spill)
    connection = duckdb.connect(config=settings)
    try:
        connection.execute("SET enable_progress_bar = false")
        yield connection
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        reason = " ".join(str(error).split())[:200]
        raise ExciteError(f"cannot count the tags: {reason}; is there room on the disk?") from None
    finally:
        connection.close()
