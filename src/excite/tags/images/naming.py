"""What a picture of a corpus is called inside a shard.

Readers of the WebDataset layout take everything before the first dot of a file's name as the key of its sample, and
files that follow each other with the same key as one sample. So no two pictures may have the same key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_key", "key_of", "possible_names", "split_key"]

USUAL = ".jpg"


def key_of(name: str) -> str:
    """The key of a picture's sample: its path where that is plain, and always another one for another name.

    What readers could misunderstand is written as in web addresses: a dot in the file's name as %2E, letters beyond
    ASCII as their bytes. ".jpg", where it is the only dot, is left out.

    Example:
        >>> key_of("v1.2/cat.jpg"), key_of("cat.png"), key_of("my.cat.jpg"), key_of("cat")
        ('v1.2/cat', 'cat%2Epng', 'my%2Ecat%2Ejpg', 'cat%2F')
    """
    folder, slash, file = name.rpartition("/")
    if "." not in file:
        file = _quoted(file) + "%2F"
    elif file.endswith(USUAL) and file.count(".") == 1 and file != USUAL:
        file = _quoted(file.removesuffix(USUAL))
    else:
        file = _quoted(file).replace(".", "%2E")
    parts = [_quoted(part) if part.strip(".") else "%2E" * len(part) for part in folder.split("/")]
    key = "/".join([*parts, file]) if slash else file
    if key.startswith(("/", "__")):  # an absolute path, and what WebDataset takes as remarks on the whole shard
        return f"%{ord(key[0]):X}{key[1:]}"
    return key


def _quoted(text: str) -> str:
    return quote(text, safe=" ", errors="surrogatepass")


def split_key(member: str) -> tuple[str, str]:
    """A file of a shard as readers see it: the key of its sample, and the rest after the dot.

    Example:
        >>> split_key("v1.2/cat.seg.png")
        ('v1.2/cat', 'seg.png')
    """
    folder, slash, file = member.rpartition("/")
    key, _, rest = file.partition(".")
    return folder + slash + key, rest


def as_key(key: str) -> str:
    """A key as an index holds it, told from the name of a file: none has a zero byte."""
    return f"\0{key}"


def possible_names(name: str) -> Iterator[str]:
    r"""What to look for in an index: the name itself, the key it was given here, and the name as a key.

    Example:
        >>> list(possible_names("cat.png"))
        ['cat.png', '\x00cat%2Epng', '\x00cat.png']
    """
    name = name.removeprefix("./")
    yield name
    yield as_key(key_of(name))
    yield as_key(name)
