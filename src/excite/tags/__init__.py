"""Corpora of tagged images: reading, statistics, and the cleaning of the paper's appendix. Here: what all use."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from excite.errors import DataError, ExciteError


def package(name: str) -> Any:
    """A package of the extra ``tags``; a DataError says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        raise DataError(f"tags need the package {name.partition('.')[0]}: pip install 'excite[tags]'") from None


@contextmanager
def database(spill: Path | None = None, threads: int = 1, reads: Path | None = None) -> Iterator[Any]:
    """A new duckdb in memory; what exceeds its limit goes to the folder ``spill``, or to ``.tmp`` here.

    ``reads``: the folder of what is counted, for errors.
    """
    duckdb = package("duckdb")
    settings = {"threads": threads, "memory_limit": "1.5GB", "temp_directory": str(spill or ".tmp")}
    connection = duckdb.connect(config=settings)
    try:
        connection.execute("SET enable_progress_bar = false")
        yield connection
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        reason = " ".join(str(error).split())[:200]
        remedy = "" if reads is None else f" If a file in {reads} is damaged, remove it and start again."
        raise ExciteError(f"cannot count the tags: {reason}; is there room on the disk?{remedy}") from None
    finally:
        connection.close()


@cache
def queries(name: str) -> dict[str, str]:
    """The queries of a file of SQL beside this one, by the names in its comments."""
    text = Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- (\w+):.*\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))
