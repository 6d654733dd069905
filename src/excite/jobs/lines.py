"""A file of answers that survives being killed: a JSON object a line, written one at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from excite.errors import ExciteError
from excite.io.files import save_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from excite.jobs.book import Entry

__all__ = ["Ledger"]


class Ledger:
    """The file of answers, a JSON object a line. A line cut off by a kill is dropped when it is read again.

    Args:
        path: the file; it need not be there yet.
        required: what an answer must hold beside its key; a line without is damaged or outdated.
    """

    def __init__(self, path: Path, required: Iterable[str]) -> None:
        self.path = path
        self.required = frozenset(required)

    def read(self) -> dict[str, Entry]:
        """The answers so far, by key; the file is left without lines that are damaged or outdated."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ExciteError(f"cannot read {str(self.path)!r}: {error.strerror or error}; use another --out") from None
        lines = text.split("\n")
        entries = {entry["key"]: entry for entry in map(self._entry, lines) if entry is not None}
        if len(entries) != len(lines) - 1 or lines[-1]:  # a whole file ends in a line break
            self.rewrite(entries)
        return entries

    def rewrite(self, entries: Mapping[str, Entry]) -> None:
        """Let these be all answers, in one step."""
        save_text("".join(json.dumps(entry) + "\n" for entry in entries.values()), self.path)

    def add(self, entry: Entry) -> None:
        """Write one more answer down at once."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise ExciteError(
                f"cannot write {str(self.path)!r}: {error.strerror or error}; choose another --out"
            ) from None

    def close(self) -> None:
        """Everything is written down already."""

    def clear(self) -> None:
        """Forget all answers."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ExciteError(
                f"cannot remove {str(self.path)!r}: {error.strerror or error}; choose another --out"
            ) from None

    def _entry(self, line: str) -> Entry | None:
        """A line of the ledger, if it is whole."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return None
        whole = isinstance(entry, dict) and isinstance(entry.get("key"), str) and self.required <= entry.keys()
        return entry if whole else None
