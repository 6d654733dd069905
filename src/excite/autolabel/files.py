"""The output folder of `excite boxes`: files are replaced freely, but only those that excite itself has written."""

import filecmp
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from excite.errors import ExciteError
from excite.io.files import Lock, remove_leftovers, save_bytes, temporary_path
from excite.jobs import ResultStore

WRITTEN = "written.jsonl"
FOLDER = "a folder"  # the state of a path that is no file
START = '{"key": "'  # of every file of results


def open_own_results(path: Path, required: Iterable[str], *, parquet: bool = False) -> ResultStore:
    """As `excite.jobs.ResultStore`, but an error if the file is not one of results: reading drops unknown lines."""
    fields = tuple(required)
    store = ResultStore(path, fields, parquet=parquet)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except OSError:  # missing, or the store itself raises the error when it is read
        return store
    try:
        entry = json.loads(first)
        known = first.endswith("\n") and isinstance(entry, dict) and entry.keys() >= {"key", *fields}
    except (ValueError, RecursionError):
        known = False
    is_part = not first.endswith("\n") and (first.startswith(START) or START.startswith(first))  # of a killed run
    if not known and not is_part:
        raise ExciteError(f"{str(path)!r} is there already and was not written by excite boxes: choose another --out")
    return store


def resolved_parent(path: Path) -> Path:
    """A path with the links in its folder resolved, but not the file itself, which may be a link."""
    return Path(os.path.realpath(path.parent), path.name)


Content = bytes | Path
"""The content of a file; or the path of another one, to which a link is made, or a copy where links cannot be made."""


class OutputFolder:
    """Writes files into a folder, never over one that excite did not write or that was changed since.

    Before a file is written, its new state (a hash, or the target of a link) is recorded in ``written.jsonl``. So after
    a kill at any moment a later run recognises every file of its own, and a file in another state is the user's.
    """

    def __init__(self, out: Path, kind: str) -> None:
        self.out = out
        self.kind = kind  # the format: files of another one in the same folder are left alone
        self.copied = 0  # images that are copies because links could not be made
        self._store = open_own_results(out / WRITTEN, required=("file", "state", "kind"))
        self._known: dict[str, set[str]] = {}  # the states of each file that excite has written
        self._of_this_kind: dict[str, None] = {}
        self._in_place: dict[str, str] = {}  # files that this run has checked or written
        self.lock = Lock(out, trace=False)  # to be held while files are written
        self.read_again()

    def read_again(self) -> None:
        """Read which files are excite's own, also those that another run has written meanwhile."""
        for entry in self._store.read().values():
            self._remember(entry["file"], entry["state"], entry["kind"])

    def check(self, wanted: Mapping[str, Content]) -> list[str]:
        """The files that are not there yet; an error if a file that is not excite's own is in the way of one."""
        missing = [name for name, content in wanted.items() if not self._is_there(name, content)]
        for name in missing:
            state = self._state(name)
            if state is not None and state not in self._known.get(name, ()):
                raise ExciteError(
                    f"{str(self.out / name)!r} is there already and was not written by excite, or was changed since: "
                    "choose another --out, or move it away"
                )
        return missing

    def write(self, wanted: Mapping[str, Content]) -> None:
        """Write the missing files, in this order; names are relative to the folder, with forward slashes."""
        with closing(self._store):
            for name in self.check(wanted):
                content = wanted[name]
                if isinstance(content, Path):
                    self._put(name, content)
                else:
                    self._record(name, _state(content))
                    save_bytes(content, self.out / name)
                self._in_place[name] = _state(content)

    def remove_others(self, wanted: Mapping[str, Content]) -> None:
        """Remove unchanged files that only earlier runs wrote in this format, and the leftovers of killed ones."""
        for folder in {(self.out / name).parent for name in (*self._of_this_kind, *wanted)}:
            remove_leftovers(folder)
        own = (name for name in self._of_this_kind if name not in wanted and self._state(name) in self._known[name])
        for path in (self.out / name for name in own):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise ExciteError(f"cannot remove {str(path)!r}: {error.strerror or error}") from None

    def original(self, path: Path) -> Path | None:
        """The image behind a link that an earlier run made, or the path itself if it made a copy; None if neither."""
        name = os.path.relpath(resolved_parent(path), os.path.realpath(self.out))
        if name not in self._known or self._state(name) not in self._known[name]:
            return None
        return path.readlink() if path.is_symlink() else path

    def _is_there(self, name: str, content: Content) -> bool:
        state = _state(content)
        there = self._in_place.get(name) == state or (
            self._shows(self.out / name, content)
            if isinstance(content, Path)
            else state in self._known.get(name, ()) and self._state(name) == state
        )
        if there:
            self._in_place[name] = state
        return there

    def _shows(self, path: Path, picture: Path) -> bool:
        """Whether a path is the image, or a copy of it."""
        try:
            if path.samefile(picture):
                return True
            same = not path.is_symlink() and filecmp.cmp(path, picture)
        except OSError:  # one of them is missing or unreadable, which is an error when it is needed
            return False
        self.copied += same
        return same

    def _put(self, name: str, picture: Path) -> None:
        """Make a link atomically, or else a copy; an older link is removed first, or its image would be overwritten."""
        path = self.out / name
        self._record(name, _state(picture))
        temporary = temporary_path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.symlink_to(picture)
            temporary.replace(path)
        except OSError:  # a copy is made instead, whose error tells the reason if that fails too
            with suppress(OSError):
                temporary.unlink()
        else:
            return
        try:
            content = picture.read_bytes()
            if path.is_symlink():
                path.unlink()
        except OSError as error:
            raise ExciteError(f"cannot copy {str(picture)!r} to {str(path)!r}: {error.strerror or error}") from None
        self._record(name, _state(content))
        save_bytes(content, path)
        self.copied += 1

    def _state(self, name: str) -> str | None:
        """The present state of a file, None if it does not exist."""
        path = self.out / name
        try:
            if path.is_symlink():
                return _state(path.readlink())
            return FOLDER if path.is_dir() else _state(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ExciteError(f"cannot read {str(path)!r}: {error.strerror or error}; choose another --out") from None

    def _record(self, name: str, state: str) -> None:
        """Record, for later runs too, that a file in this state is excite's own."""
        if state not in self._known.get(name, ()):
            self._store.add({"key": f"{name} {state}", "file": name, "state": state, "kind": self.kind})
            self._remember(name, state, self.kind)

    def _remember(self, name: str, state: str, kind: str) -> None:
        self._known.setdefault(name, set()).add(state)
        if kind == self.kind:
            self._of_this_kind[name] = None


def _state(content: Content) -> str:
    """The target of a link, or the hash of a file's content."""
    return f"-> {content}" if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
