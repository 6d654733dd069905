"""What a package index publishes: the files of a version, their hashes, and whether they were taken back."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import urlopen

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

INDEX = "https://pypi.org/simple"
PATIENCE = 60  # seconds


@dataclass(frozen=True)
class File:
    """A published file."""

    name: str
    sha256: str
    yanked: bool


def wheels(name: str, version: Version) -> list[File]:
    """Ask the index which wheels there are of a version.

    Args:
        name: of the package, normalised.
        version: the one.

    Returns:
        All of them, for every system.
    """
    with urlopen(f"{INDEX}/{name}/", timeout=PATIENCE) as answer:  # noqa: S310 - the address is ours
        page = answer.read().decode()
    return [file for file in files_in(page) if _version(file.name) == version]


def files_in(page: str) -> list[File]:
    """Read an index's page.

    Args:
        page: HTML as PEP 503 has it.

    Returns:
        Its files that have a sha256.

    Example:
        >>> files_in('<a href="https://host/a-1-py3-none-any.whl#sha256=' + "0" * 64 + '">a</a>')[0].name
        'a-1-py3-none-any.whl'
    """
    reader = _Links()
    reader.feed(page)
    return reader.files


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address, fragment = urldefrag(given.get("href") or "")
        digest = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
        if tag == "a" and digest:
            name = unquote(urlsplit(address).path.rsplit("/", 1)[-1])
            self.files.append(File(name, digest[1], "data-yanked" in given))


def _version(name: str) -> Version | None:
    try:
        return parse_wheel_filename(name)[1]
    except InvalidWheelFilename:
        return None
