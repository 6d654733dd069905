"""A database in memory (duckdb) that spills to the disk beyond a limit, for SQL on Arrow batches."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError
from excite.tags import package

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = "1.5GB"  # beyond it duckdb uses the disk


@contextmanager
def database(spill: Path | None = None, threads: int = 1) -> Iterator[Any]:
    """A connection to a new database; what exceeds `MEMORY` goes to the folder ``spill``, or to ``.tmp`` here."""
    duckdb = package("duckdb")
    settings = {"threads": threads, "memory_limit": MEMORY, "temp_directory": str(spill or ".tmp")}
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


@cache
def queries(name: str) -> dict[str, str]:
    """The queries of a file of SQL beside this one, by the names in its comments."""
    text = Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- (\w+):.*\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))
