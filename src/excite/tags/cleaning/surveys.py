"""Where surveys are kept while a corpus is cleaned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.jobs.ledger_init import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from excite.jobs.ledger_init import Entry

__all__ = ["Surveys"]


class Surveys(Ledger):
    """Where surveys are kept: each in a file of its own, and a ledger that says which."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "index.jsonl", required=("files",))
        self.folder = folder

    def read(self) -> dict[str, Entry]:
        """The pieces that were looked at, by key."""
        entries = super().read().items()
        return {key: one for key, one in entries if all((self.folder / name).is_file() for name in one["files"])}

    def add(self, entry: Entry) -> None:
        """Keep the surveys of one more piece; first the files, so that every line is true."""
        names = [f"{entry['key']}-{place}.npz" for place in range(len(entry["surveys"]))]
        for name, seen in zip(names, entry["surveys"], strict=True):
            seen.save(self.folder / name)
        super().add({"key": entry["key"], "files": names})
