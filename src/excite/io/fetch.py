"""Files from the net: kept in one folder, resumed where a fetch was cut off, and believed only by their hash."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib import request as web
from urllib.error import HTTPError, URLError
from urllib.request import Request

from excite.errors import FetchError
from excite.io.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Remote", "cache_folder", "digest_of", "fetch", "fetch_to", "fetch_unknown", "is_published"]

CHUNK = 1 << 20
PATIENCE = 30  # seconds without a byte
HASHES = {40: "SHA-1", 64: "SHA-256"}  # by the length of their hexadecimal digits


@dataclass(frozen=True)
class Remote:
    """A file that can be fetched.

    Attributes:
        name: What it is called here.
        url: Where it lies.
        digest: Its SHA-1 or SHA-256, in hexadecimal.
        mirrors: Where else it lies; asked in turn when the one before does not give it.
        size: How many bytes it has, where that is known.
    """

    name: str
    url: str
    digest: str
    mirrors: tuple[str, ...] = ()
    size: int | None = None


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
    return place if place.is_file() else fetch_to(remote, place)


def fetch_to(remote: Remote, place: Path) -> Path:
    """The file at a place of one's own; one that is there already is believed by its hash only, too.

    Raises:
        FetchError: it cannot be had, or is not what its publisher made.

    Example:
        >>> fetch_to(Remote("val2017.zip", "https://example.org/val2017.zip", "..."), Path("val2017.zip"))
        ... # doctest: +SKIP
    """
    if place.is_file():
        if not is_published(place, remote):
            raise FetchError(f"{place} is not the file that was published: move it away, and start again.")
        return place
    partial = place.with_name(place.name + ".part")
    _download_somewhere(remote, partial, place)
    if not is_published(partial, remote):
        partial.unlink()
        kind = HASHES[len(remote.digest)]
        raise FetchError(f"What {remote.url} gave is not what was published (its {kind} differs): start again.")
    partial.replace(place)
    return place


def fetch_unknown(url: str, place: Path, most: int | None = None) -> Path:
    """A file of which nobody published a hash: believed when all its bytes have come; one that is there is taken.

    Args:
        url: where it lies.
        place: where it shall lie.
        most: how many bytes it may have.

    Raises:
        FetchError: it cannot be had, or is too large.

    Example:
        >>> fetch_unknown("https://example.org/cat.jpg", Path("cat.jpg"), most=1_000_000)  # doctest: +SKIP
    """
    if place.is_file():
        return place
    partial = place.with_name(place.name + ".part")
    _download_somewhere(Remote(place.name, url, ""), partial, place, most)
    return partial.replace(place)


def is_published(path: Path, remote: Remote) -> bool:
    """Whether a file is the one that was published, by its hash."""
    return digest_of(path, HASHES[len(remote.digest)]) == remote.digest


def digest_of(path: Path, kind: str = "SHA-1") -> str:
    """The hash of a file, in hexadecimal."""
    algorithm = kind.replace("-", "").lower()
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def _download_somewhere(remote: Remote, partial: Path, place: Path, most: int | None = None) -> None:
    """From the first address that gives it; what one began, the next goes on with."""
    refusals = []
    for url in (remote.url, *remote.mirrors):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _download(url, remote.name, partial, most)
        except (OSError, HTTPException, ValueError) as error:  # urllib's own errors, and an address that is none
            refusals.append(f"{url}: {getattr(error, 'reason', None) or error}")
        else:
            return
    raise FetchError(
        f"Cannot fetch {'; nor '.join(refusals)}. Start again to resume, or put the file at {place} yourself."
    )


@cache
def _opener() -> web.OpenerDirector:
    """As urllib's own, but for the web only: no redirection leads to a file or to an FTP server."""
    opener = web.OpenerDirector()
    handlers = (web.ProxyHandler, web.HTTPHandler, web.HTTPSHandler, web.HTTPRedirectHandler)
    for handler in (*handlers, web.HTTPDefaultErrorHandler, web.HTTPErrorProcessor, web.UnknownHandler):
        opener.add_handler(handler())
    return opener


def urlopen(request: Request, timeout: float) -> Any:
    """Ask for a file; named as what it stands for."""
    return _opener().open(request, timeout=timeout)


def _download(url: str, name: str, partial: Path, most: int | None = None) -> None:
    done = partial.stat().st_size if partial.is_file() else 0
    if not url.startswith(("http://", "https://")):
        raise URLError("the address must begin with http:// or https://")
    request = Request(url, headers={"Range": f"bytes={done}-"} if done else {})  # noqa: S310 - checked above
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            resumed = answer.status == 206
            length = answer.headers.get("Content-Length")
            with _alone(partial, done if resumed else 0) as file:
                total = int(length) + (done if resumed else 0) if length else None
                for chunk in _shown(_chunks(answer), name, done if resumed else 0, total):
                    file.write(chunk)
                    _check_size(max(file.tell(), total or 0), most, partial)
                written = file.tell()
    except HTTPError as error:
        error.close()  # it holds the connection
        if error.code == 416 and done:  # nothing is left to fetch: the hash will tell whether it is whole
            return
        raise
    if total is not None and written < total:
        raise URLError(f"the connection broke after {written} of {total} bytes")


def _alone(partial: Path, begin: int) -> BinaryIO:
    """What has come so far, to go on with: two runs that append to one file would spoil it for both."""
    file = partial.open("ab")
    if locked(file) is False or (begin and file.tell() != begin):
        file.close()
        raise URLError("another run is fetching it: wait for it")
    if not begin:
        file.truncate(0)
    return file


def _check_size(size: int, most: int | None, partial: Path) -> None:
    """Stop at the first sign that a file has more bytes than it may have; what has come of it is of no use."""
    if most is not None and size > most:
        partial.unlink()
        raise URLError(f"it has more than {most} bytes")


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
