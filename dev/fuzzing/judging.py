"""One broken file read, and whether what came of it is fine: a value, or one line that says what is wrong."""

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from fuzzed import MARKER, Reader

from excite.errors import ExciteError

__all__ = ["ACCEPTED", "REFUSED", "Judge"]

ACCEPTED, REFUSED = "accepted", "refused"
LONGEST_MESSAGE = 500
MADE = "made"  # where a reader may write, below the folder
FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree")
HARMLESS = ("/proc/", "/sys/", "/dev/", "/etc/ld.so", "/etc/localtime", "/usr/share/zoneinfo", "/usr/lib", "/lib")


class Judge:
    """Reads broken files in a folder of its own and watches what the reading does.

    Args:
        reader: what is tried.
        folder: an empty one.
        said: the file that the process's own output goes to.
    """

    def __init__(self, reader: Reader, folder: Path, said: Path | None = None) -> None:
        self.reader, self.folder, self.said = reader, folder, said
        self.path = folder / reader.file
        reader.around(folder)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        (folder / MADE).mkdir(exist_ok=True)
        self._others = self._listed()
        self._seen: list[str] = []
        self._watching = False
        self._inside = (str(folder), *HARMLESS, *filter(None, (sys.prefix, sys.base_prefix, *sys.path)))
        sys.addaudithook(self._audit)

    def judge(self, content: bytes) -> str:
        """`ACCEPTED`, `REFUSED`, or in words what is not fine about reading a file that holds this."""
        self.path.write_bytes(content)
        self._seen.clear()
        before = self._said()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            verdict = self._read()
        wrong = [verdict] if verdict not in {ACCEPTED, REFUSED} else []
        wrong += self._seen
        wrong += [_warning(one, self.path) for one in warned]
        wrong += self._left_behind(content)
        if self._said() != before and not self.reader.prints:
            wrong.append("it wrote to the standard output or error itself")
        self._clear()
        return "; ".join(filter(None, wrong)) or verdict

    def _read(self) -> str:
        self._watching = True
        try:
            self.reader.read(self.folder)
        except ExciteError as error:
            return self._message(str(error))
        except Exception as error:  # noqa: BLE001 - which is what is looked for
            return f"{type(error).__name__}: {str(error)[:200]!r} at {_place(error)}"
        finally:
            self._watching = False
        return ACCEPTED

    def _message(self, message: str) -> str:
        named = not self.reader.named or self.path.name in message or str(self.folder) in message
        if not named:
            return f"the message does not name the file: {message[:200]!r}"
        return _odd(message) or REFUSED

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._watching or (event != "open" and event not in FORBIDDEN and event not in CHANGING):
            return
        if event in FORBIDDEN:
            self._seen.append(f"{event}{arguments!r:.100}")
            return
        place = arguments[0]
        if isinstance(place, str | bytes | os.PathLike):
            name = os.path.abspath(os.fsdecode(place))  # noqa: PTH100 - a path may be odd, and nothing is looked up
            if not name.startswith(self._inside):
                self._seen.append(f"{event} of {name[:200]!r}, which is outside of its folder")

    def _listed(self) -> dict[str, int]:
        """The other files below the folder with their sizes; quickly, as it is done for every case."""
        found, waiting = {}, [str(self.folder)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [entry.path] if entry.name != MADE else []
                    elif entry.path != str(self.path):
                        found[os.path.relpath(entry.path, self.folder)] = entry.stat(follow_symlinks=False).st_size
        return found

    def _left_behind(self, content: bytes) -> list[str]:
        wrong = []
        if os.path.exists(MARKER):  # noqa: PTH110 - asked for every case
            Path(MARKER).unlink()
            wrong.append("a program in the file was run")
        if not self.reader.changes and (not self.path.is_file() or self.path.read_bytes() != content):
            wrong.append("it changed the file")
        listed = self._listed()
        if listed != self._others:
            wrong.append(f"it changed the files around: {sorted(set(listed) ^ set(self._others))[:3]}")
            self._others = listed  # told once
        return wrong

    def _clear(self) -> None:
        for path in sorted((self.folder / MADE).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    def _said(self) -> int:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):  # closed
                stream.flush()
        return self.said.stat().st_size if self.said else 0


def _odd(message: str) -> str:
    """What is wrong with a message to a user, in words; nothing for most."""
    if len(message) >= LONGEST_MESSAGE:
        return f"the message has {len(message)} letters: {message[:200]!r}"
    if not message.strip() or len(message.splitlines()) > 1 or "Traceback" in message:
        return f"the message is not one line: {message[:200]!r}"
    if any(ord(sign) < 32 or 0xD800 <= ord(sign) < 0xE000 for sign in message):
        return f"the message has signs that no terminal shows: {message[:200]!r}"
    return ""


def _warning(warned: warnings.WarningMessage, path: Path) -> str:
    """A warning that a user can use is fine: excite's own, which name the file."""
    message = str(warned.message)
    if warned.category is UserWarning and path.name in message and not _odd(message):
        return ""
    return f"a warning escaped: {warned.category.__name__}: {message[:200]!r}"


def _place(error: BaseException) -> str:
    """The innermost line of excite's own."""
    place, at = "?", error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if "excite" in Path(file).parts:
            place = f"{Path(file).name}:{at.tb_lineno}"
        at = at.tb_next
    return place
