"""What a reader of files is to the fuzzer: plain data, and how one broken file after another is made for it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from breaking import FORMS, spliced

__all__ = ["MARKER", "Reader", "content_of"]

MARKER = "/tmp/excite-fuzz-a-payload-has-run"  # noqa: S108 - fixed, so that a case is the same file on every machine
"""The file that hostile pickles try to make: should it ever be there, something in a file was run."""


@dataclass(frozen=True)
class Reader:
    """A way by which files of others come in.

    Attributes:
        name: what it is called in the record.
        entry: the functions of excite that do the reading, for people.
        file: the file that is broken, within a folder of its own.
        read: reads it as the commands do; it is given the folder.
        seeds: good files to begin with.
        form: how they are broken, a name in `FORMS`.
        tokens: words of the format, put in here and there.
        around: makes the other files of the folder.
        hostile: files made by hand to do harm; each is a case of its own.
        changes: it may drop what is damaged from the file itself.
        named: its errors name the file; text that is typed has none.
    """

    name: str
    entry: str
    file: str
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]
    form: str = "bytes"
    tokens: tuple[bytes, ...] = ()
    around: Callable[[Path], object] = lambda folder: None
    hostile: Callable[[], list[bytes]] = list
    changes: bool = False
    named: bool = True


@cache
def _fixed(reader: Reader) -> tuple[list[bytes], list[bytes]]:
    return reader.seeds(), reader.hostile()


def content_of(reader: Reader, case: int) -> bytes:
    """The file of a case: the same for the same number. First come the good files, then the hostile ones."""
    seeds, hostile = _fixed(reader)
    if case < len(seeds) + len(hostile):
        return [*seeds, *hostile][case]
    random = Random(f"{reader.name} {case}")
    content = random.choice(seeds)
    if random.random() < 0.05:
        content = spliced(content, random.choice([*seeds, *hostile]), random)
    return FORMS[reader.form](content, random, reader.tokens)
