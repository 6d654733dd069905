"""Files from the net: kept in one folder, resumed where a fetch was cut off, and believed only by their hash."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from excite.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Remote", "cache_folder", "fetch", "sha1_of"]

CHUNK = 1 << 20
PATIENCE = 30  # seconds without a byte


@dataclass(frozen=True)
class Remote:
    """A file that can be fetched: its name here, where it lies, and the hash its publisher gave (SHA-1)."""

    name: str
    url: str
    sha1: str


def cache_folder() -> Path:
    """Where fetched files are kept: ``$EXCITE_HOME``, or ``~/.cache/excite``."""
    home = os.environ.get("EXCITE_HOME")
    return Path(home) if home else Path.home() / ".cache" / "excite"


def fetch(remote: Remote, folder: str) -> Path:
    """The file, from the cache or else from the net.

    It is written beside its place and moved there when its hash is right, so a file that is there is whole. A fetch
    that was cut off goes on where it stopped.

    Args:
        remote: what to fetch.
        folder: the part of the cache it belongs to ("weights").

    Raises:
        FetchError: it cannot be had, or is not what its publisher made.

    Example:
        >>> fetch(Remote("net.caffemodel", "https://example.org/net.caffemodel", "..."), "weights")  # doctest: +SKIP
    """
    place = cache_folder() / folder / remote.name
    if place.is_file():
        return place
    partial = place.with_name(place.name + ".part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _download(remote, partial)
    except (OSError, HTTPException) as error:  # the former is also what urllib's own errors are
        reason = getattr(error, "reason", None) or error
        raise FetchError(
            f"Cannot fetch {remote.url}: {reason}. Start again to resume, or put the file at {place} yourself."
        ) from error
    if sha1_of(partial) != remote.sha1:
        partial.unlink()
        raise FetchError(f"What {remote.url} gave is not the file that was published (its SHA-1 differs): start again.")
    partial.replace(place)
    return place


def sha1_of(path: Path) -> str:
    """The SHA-1 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()


def _download(remote: Remote, partial: Path) -> None:
    done = partial.stat().st_size if partial.is_file() else 0
    if not remote.url.startswith(("http://", "https://")):
        raise URLError("the address must begin with http:// or https://")
    request = Request(remote.url, headers={"Range": f"bytes={done}-"} if done else {})  # noqa: S310 - checked above
    try:
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - checked above
            resumed = answer.status == 206
            length = answer.headers.get("Content-Length")
            with partial.open("ab" if resumed else "wb") as file:
                total = int(length) + (done if resumed else 0) if length else None
                for chunk in _shown(_chunks(answer), remote.name, done if resumed else 0, total):
                    file.write(chunk)
                written = file.tell()
    except HTTPError as error:
        error.close()  # it holds the connection
        if error.code == 416 and done:  # nothing is left to fetch: the hash will tell whether it is whole
            return
        raise
    if total is not None and written < total:
        raise URLError(f"the connection broke after {written} of {total} bytes")


def _chunks(answer: BinaryIO) -> Iterator[bytes]:
    while chunk := answer.read(CHUNK):
        yield chunk


def _shown(chunks: Iterator[bytes], name: str, done: int, total: int | None) -> Iterator[bytes]:
    """The chunks, with a progress bar where somebody looks."""
    if not sys.stderr.isatty():
        yield from chunks
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, completed=done)
        for chunk in chunks:
            yield chunk
            bar.advance(task, len(chunk))
