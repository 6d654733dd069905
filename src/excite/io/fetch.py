"""Downloads: cached in one folder, resumed after an interruption, verified by their hash."""

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib import request as web
from urllib.error import HTTPError, URLError
from urllib.request import Request

from excite.errors import FetchError, visible
from excite.io.files import locked

CHUNK = 1 << 20
PATIENCE = 30  # seconds without a byte
HASHES = {40: "SHA-1", 64: "SHA-256"}  # by the length of their hexadecimal digits


@dataclass(frozen=True)
class Remote:
    """A file on the web."""

    name: str  # here
    url: str
    digest: str  # its SHA-1 or SHA-256, in hexadecimal
    mirrors: tuple[str, ...] = ()  # other addresses, tried in turn
    size: int | None = None  # its number of bytes, where known


def cache_folder() -> Path:
    """The folder of the cache: ``$EXCITE_HOME``, or ``~/.cache/excite``."""
    home = os.environ.get("EXCITE_HOME")
    return Path(home) if home else Path.home() / ".cache" / "excite"


def fetch(remote: Remote, folder: str) -> Path:
    """The path of the file in a folder of the cache ("weights"), downloaded if it is not there.

    A download is moved into place when its hash is right, so a file in the cache is complete. An interrupted download
    is resumed. A `FetchError` if it cannot be downloaded, or its hash differs.
    """
    path = cache_folder() / folder / remote.name
    return path if path.is_file() else fetch_to(remote, path)


def fetch_to(remote: Remote, path: Path) -> Path:
    """Download a file to a path, as `fetch`. A file that is there already is verified by its hash."""
    if path.is_file():
        if not is_published(path, remote):
            raise FetchError(f"{path} is not the file that was published: move it away, and start again.")
        return path
    partial = _download_any(remote, path)
    if not is_published(partial, remote):
        partial.unlink()
        kind = HASHES[len(remote.digest)]
        raise FetchError(f"What {remote.url} gave is not what was published (its {kind} differs): start again.")
    return partial.replace(path)


def fetch_unverified(url: str, path: Path, most: int | None = None) -> Path:
    """Download a file without a published hash: accepted when all its bytes have arrived, at most ``most`` of them."""
    return path if path.is_file() else _download_any(Remote(path.name, url, ""), path, most).replace(path)


def is_published(path: Path, remote: Remote) -> bool:
    """Whether a file has the hash that was published."""
    algorithm = HASHES[len(remote.digest)].replace("-", "").lower()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return found.hexdigest() == remote.digest


def _download_any(remote: Remote, path: Path, most: int | None = None) -> Path:
    """Download from the first address that works, each resuming the one before; returns the partial file beside it."""
    partial = path.with_name(path.name + ".part")
    errors = []
    for url in (remote.url, *remote.mirrors):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _download(url, remote.name, partial, most)
        except (OSError, HTTPException, ValueError) as error:  # urllib's own errors, and an invalid address
            errors.append(f"{url}: {getattr(error, 'reason', None) or error}")
        else:
            return partial
    raise FetchError(
        f"Cannot fetch {'; nor '.join(errors)}. Start again to resume, or put the file at {path} yourself."
    )


@cache
def _opener() -> web.OpenerDirector:
    """As urllib's own, but for HTTP only: no redirection leads to a local file or to an FTP server."""
    opener = web.OpenerDirector()
    handlers = (web.ProxyHandler, web.HTTPHandler, web.HTTPSHandler, web.HTTPRedirectHandler)
    for handler in (*handlers, web.HTTPDefaultErrorHandler, web.HTTPErrorProcessor, web.UnknownHandler):
        opener.add_handler(handler())
    return opener


def urlopen(request: Request, timeout: float) -> Any:
    """As `urllib.request.urlopen`, for HTTP only."""
    return _opener().open(request, timeout=timeout)


def _download(url: str, name: str, partial: Path, most: int | None = None) -> None:
    done = partial.stat().st_size if partial.is_file() else 0
    if not url.startswith(("http://", "https://")):
        raise URLError("the address must begin with http:// or https://")
    request = Request(url, headers={"Range": f"bytes={done}-"} if done else {})  # noqa: S310 - checked above
    try:
        with urlopen(request, timeout=PATIENCE) as response:
            begin = done if response.status == 206 else 0  # a server without ranges sends everything again
            length = response.headers.get("Content-Length")
            total = int(length) + begin if length else None
            with partial.open("ab") as file:
                if locked(file) is False or (begin and file.tell() != begin):
                    raise URLError("another run is fetching it: wait for it")
                if not begin:
                    file.truncate(0)
                for chunk in _with_progress(iter(lambda: response.read(CHUNK), b""), name, begin, total):
                    file.write(chunk)
                    if most is not None and max(file.tell(), total or 0) > most:
                        partial.unlink()
                        raise URLError(f"it has more than {most} bytes")
                written = file.tell()
    except HTTPError as error:
        error.close()  # it holds the connection
        if error.code == 416 and done:  # nothing is left to download; the hash is verified next
            return
        raise
    if total is not None and written < total:
        raise URLError(f"the connection broke after {written} of {total} bytes")


def _with_progress(chunks: Iterator[bytes], name: str, done: int, total: int | None) -> Iterator[bytes]:
    """The chunks, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield from chunks
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(name), total=total, completed=done)
        for chunk in chunks:
            yield chunk
            bar.advance(task, len(chunk))
