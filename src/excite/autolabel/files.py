"""The files in the folder of a run: replaced as often as one likes, but only those that excite wrote itself."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from excite.autolabel.inputs import place
from excite.errors import ExciteError
from excite.io.files import atomic_write, half_name, sweep
from excite.io.locks import Lock
from excite.jobs import open_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from excite.jobs import ResultStore


# Ledgers in a folder that may hold other things too.

START = '{"key": "'


def own_ledger(path: Path, required: Iterable[str], *, parquet: bool = False) -> ResultStore:
    """A ledger, unless the file is somebody else's: a ledger that is read drops the lines that it does not know.

    Example:
        >>> from pathlib import Path
        >>> own_ledger(Path("boxes/records.jsonl"), required=("image",)).read()
        {}
    """
    fields = tuple(required)
    store = open_results(path, fields, parquet=parquet)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except OSError:  # it is not there, or the ledger itself will say why it cannot be read
        return store
    if first and not _begins(first, {"key", *fields}):
        raise ExciteError(f"{str(path)!r} is there already and was not written by excite boxes: choose another --out")
    return store


def _begins(first: str, fields: set[str]) -> bool:
    """Whether this is the first line of a ledger, or of one that was killed while it wrote just that."""
    if not first.endswith("\n"):
        return first.startswith(START) or START.startswith(first)
    try:
        entry = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and entry.keys() >= fields


# The files in the folder of a run: replaced as often as one likes, but only those that excite wrote itself.

WRITTEN = "written.jsonl"
FOLDER = "a folder"  # the state of what is no file


@dataclass(frozen=True)
class Link:
    """A file that is to be another one: a link to it, or a copy where links cannot be made."""

    path: Path


Content = bytes | Link


class Files:
    """Writes files into a folder, and never over one that excite did not write or that was changed since.

    Before a file is written, the state that it will be in is noted in ``written.jsonl``. So a kill at any moment leaves
    no file that a later run would not know as its own, and a file in another state is somebody's work.

    Args:
        out: the folder; it need not be there yet.
        kind: the format that is written. Files of other formats in the same folder stay as they are.

    Attributes:
        copied: how many images are copies because links could not be made.
        lock: to be held while files are written: two runs would take each other's for somebody else's.
    """

    def __init__(self, out: Path, kind: str) -> None:
        self.out = out
        self.kind = kind
        self.copied = 0
        self._ledger = own_ledger(out / WRITTEN, required=("file", "state", "kind"))
        self._known: dict[str, set[str]] = {}
        self._of_this_kind: dict[str, None] = {}
        self._in_place: dict[str, str] = {}  # what this run has seen to be there is not looked at again
        self.lock = Lock(out, trace=False)
        self.read_again()

    def read_again(self) -> None:
        """Learn which files are excite's own, also those that another run has written meanwhile."""
        for entry in self._ledger.read().values():
            self._remember(entry["file"], entry["state"], entry["kind"])

    def check(self, wanted: Mapping[str, Content]) -> None:
        """Raise an `ExciteError` if any of these files cannot be written because somebody else's is there."""
        self._refuse_others(self._missing(wanted))

    def write(self, wanted: Mapping[str, Content]) -> None:
        """Write what is not there yet, in this order; names are relative to the folder, with forward slashes."""
        missing = self._missing(wanted)
        self._refuse_others(missing)
        for name in missing:
            content = wanted[name]
            if isinstance(content, Link):
                self._put(name, content.path)
            else:
                self._note(name, _state(content))
                atomic_write(self.out / name, partial(_fill, content))
            self._in_place[name] = _state(content)

    def hold_any(self, names: Iterable[str]) -> bool:
        """Whether any of these files is there."""
        return any(os.path.lexists(self.out / name) for name in names)

    def remove_others(self, wanted: Mapping[str, Content]) -> None:
        """Remove what earlier runs wrote in this format and this one does not; not if somebody changed it since.

        Also what a run had not finished writing when it was killed.
        """
        names = [name for name in self._of_this_kind if name not in wanted and self._state(name) in self._known[name]]
        folders = {(self.out / name).parent for name in (*self._of_this_kind, *wanted)}
        for folder in folders:
            sweep(folder)
        for path in (self.out / name for name in names):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise ExciteError(f"cannot remove {str(path)!r}: {error.strerror or error}") from None

    def original(self, path: Path) -> Path | None:
        """The image behind a link that an earlier run made, or the path itself if it made a copy; None if neither.

        Example:
            >>> from pathlib import Path
            >>> Files(Path("boxes"), "voc").original(Path("photo.jpg")) is None
            True
        """
        name = os.path.relpath(place(path), os.path.realpath(self.out))
        if name not in self._known or self._state(name) not in self._known[name]:
            return None
        return path.readlink() if path.is_symlink() else path

    def _missing(self, wanted: Mapping[str, Content]) -> list[str]:
        return [name for name, content in wanted.items() if not self._is_there(name, content)]

    def _refuse_others(self, names: Iterable[str]) -> None:
        for name in names:
            state = self._state(name)
            if state is not None and state not in self._known.get(name, ()):
                raise ExciteError(
                    f"{str(self.out / name)!r} is there already and was not written by excite, or was changed since: "
                    "choose another --out, or move it away"
                )

    def _is_there(self, name: str, content: Content) -> bool:
        state = _state(content)
        if self._in_place.get(name) == state:
            return True
        if isinstance(content, Link):
            there = self._shows(self.out / name, content.path)
        else:
            there = state in self._known.get(name, ()) and self._state(name) == state
        if there:
            self._in_place[name] = state
        return there

    def _shows(self, path: Path, picture: Path) -> bool:
        """Whether this is the image, or a copy of it."""
        try:
            if path.samefile(picture):
                return True
            same = not path.is_symlink() and filecmp.cmp(path, picture)
        except OSError:  # one of them is not there or cannot be read: whoever needs it will say so
            return False
        self.copied += same
        return same

    def _put(self, name: str, picture: Path) -> None:
        """Make a link in one step, or else a copy. An older link goes first: to write to it would change an image."""
        path = self.out / name
        self._note(name, _state(Link(picture)))
        if _linked(path, picture):
            return
        try:
            content = picture.read_bytes()
            if path.is_symlink():
                path.unlink()
        except OSError as error:
            raise ExciteError(f"cannot copy {str(picture)!r} to {str(path)!r}: {error.strerror or error}") from None
        self._note(name, _state(content))
        atomic_write(path, partial(_fill, content))
        self.copied += 1

    def _state(self, name: str) -> str | None:
        """What a file is at the moment, None if it is not there."""
        path = self.out / name
        try:
            if path.is_symlink():
                return _state(Link(path.readlink()))
            return FOLDER if path.is_dir() else _state(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ExciteError(f"cannot read {str(path)!r}: {error.strerror or error}; choose another --out") from None

    def _note(self, name: str, state: str) -> None:
        """Remember, for later runs too, that a file in this state is ours."""
        if state not in self._known.get(name, ()):
            self._ledger.add({"key": f"{name} {state}", "file": name, "state": state, "kind": self.kind})
            self._remember(name, state, self.kind)

    def _remember(self, name: str, state: str, kind: str) -> None:
        self._known.setdefault(name, set()).add(state)
        if kind == self.kind:
            self._of_this_kind[name] = None


def _state(content: Content) -> str:
    """What tells a file from others of its name: where a link leads, or the hash of what is in it."""
    return f"-> {content.path}" if isinstance(content, Link) else hashlib.sha256(content).hexdigest()


def _linked(path: Path, picture: Path) -> bool:
    temporary = half_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.symlink_to(picture)
        temporary.replace(path)
    except OSError:  # told as a copy; where not even that can be made, its error says why
        with suppress(OSError):
            temporary.unlink()
        return False
    return True


def _fill(content: bytes, file: BinaryIO) -> None:
    file.write(content)
