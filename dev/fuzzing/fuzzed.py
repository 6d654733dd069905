"""What a reader of files is to the fuzzer: plain data, and how one broken file after another is made for it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from breaking import FORMS, spliced

TESTS = Path(__file__).parents[2] / "tests"
sys.path += [str(TESTS), str(TESTS / "web"), str(TESTS / "models/caffe")]  # whose small files are made there

__all__ = ["BROKEN", "HOSTILE", "MARKER", "Reader", "content_of"]

HOSTILE, BROKEN = 20, 100
"""The numbers of the first cases that were made by hand to do harm, and of those that are made at random."""

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
        prints: a library beneath writes its own lines to the standard error, which nobody can switch off.
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
    prints: bool = False


@cache
def _seeds(reader: Reader) -> list[bytes]:
    return reader.seeds()


@cache
def _hostile(reader: Reader) -> list[bytes]:
    return reader.hostile()


def content_of(reader: Reader, case: int) -> bytes | None:
    """The file of a case, the same for the same number: good ones, then hostile ones, then broken ones without end.

    None where there is none: before `HOSTILE` and before `BROKEN` some numbers are left over.
    """
    if case < BROKEN:
        made, place = (_seeds(reader), case) if case < HOSTILE else (_hostile(reader), case - HOSTILE)
        return made[place] if place < len(made) else None
    random = Random(f"{reader.name} {case}")
    content = random.choice(_seeds(reader))
    if random.random() < 0.05:
        content = spliced(content, random.choice(_seeds(reader)), random)
    return FORMS[reader.form](content, random, reader.tokens)
