"""What a file of a network must be before anybody looks into it."""

from os import PathLike
from pathlib import Path

from excite.errors import ModelError

__all__ = ["check_download", "check_file"]


def check_file(path: str | PathLike[str]) -> None:
    """Only a regular file with something in it: a pipe would block, a device has no end."""
    file = Path(path)
    try:
        exists, size = file.exists(), file.stat().st_size if file.exists() else 0
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    if not exists:
        raise ModelError(f"There is no file {str(path)!r}: give the file of the network or of its weights.")
    if not file.is_file():
        kind = "folder" if file.is_dir() else "device"
        raise ModelError(f"{str(path)!r} is a {kind}, not a file: give the file of the network or of its weights.")
    if not size:
        raise ModelError(f"{path} is empty: get it again.")


def check_download(head: bytes, path: str | PathLike[str]) -> None:
    """Refuse what a download that went wrong leaves instead of the file."""
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a Git LFS pointer, not the file itself: run 'git lfs pull' where it came from.")
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ModelError(f"{path} is a web page, not the file itself: get it again from a link to the file.")
