"""The dictionary of tags to learn, and the normal form of tags: " Dogs", "#dogs" and "DOGS" are the same word."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self
from unicodedata import category, is_normalized, normalize

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError
from excite.io.files import save_csv
from excite.jobs.parquet import arrow
from excite.vocabulary.inflection import singular

HEADER = ["tag", "count"]


@dataclass(frozen=True)
class Dictionary:
    """Tags in the order of a tag classifier's outputs, with how often each is listed in the raw corpus."""

    tags: tuple[str, ...]  # the most frequent first; ties in code point order
    counts: tuple[int, ...]

    @classmethod
    def ranked(cls, counted: Iterable[tuple[str, int]]) -> Self:
        """Counted tags in their order."""
        return cls.listed(sorted(counted, key=lambda one: (-one[1], one[0])))

    @classmethod
    def listed(cls, counted: Sequence[tuple[str, int]]) -> Self:
        """Counted tags in the order given."""
        return cls(tuple(tag for tag, _ in counted), tuple(count for _, count in counted))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file written by `save`, or any CSV file that begins with ``tag,count``."""
        try:
            lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
            if not lines or lines[0] != HEADER:
                raise DataError(f"{path} is no dictionary: its first line must be {','.join(HEADER)}")
            counted = [(tag, int(count)) for tag, count in lines[1:]]
        except (OSError, ValueError, csv.Error) as error:
            raise DataError(f"cannot read the dictionary {path}: {' '.join(str(error).split())}") from None
        if len({tag for tag, _ in counted}) < len(counted):
            raise DataError(f"{path} holds a tag twice: each is one output of a classifier")
        return cls.listed(counted)

    def save(self, path: Path) -> Path:
        """Write the dictionary as CSV."""
        return save_csv([HEADER, *zip(self.tags, self.counts, strict=True)], path)

    def __len__(self) -> int:
        return len(self.tags)

    @cached_property
    def units(self) -> Mapping[str, int]:
        """The output of each tag."""
        return {tag: unit for unit, tag in enumerate(self.tags)}


def dictionary_beside(corpus: Path) -> Path:
    """The path of the dictionary of a cleaned corpus."""
    return corpus.with_suffix(".tags.csv")


UNICODE, CASE, SPACES, PLURAL, EMPTY, TOO_LONG = 1, 2, 4, 8, 16, 32
CHANGES = ("unicode", "case", "spaces", "plural", "empty", "too_long")  # the names of the bits, lowest first

PLAIN = r"\A[!-\"$-@\[-~][!-@\[-~]*(?: [!-@\[-~]+)*\z"  # ASCII, no capitals, single spaces
INVISIBLE = frozenset({"Cc", "Cf", "Cs"})  # control and format characters, and surrogates
SHRINKS = 4  # Unicode's rules shorten a text at most so many times; a longer one is rejected at once


@dataclass(frozen=True)
class TagNormaliser:
    """Brings tags to normal form; idempotent. duckdb has neither NFKC nor case folding, so this is Python.

    Unicode's compatibility composition (NFKC) without control and format characters; case folding; single spaces, none
    at the ends, and no leading #; with ``plurals`` the last word in the singular. An empty tag, or one of more than
    ``longest`` characters, becomes the empty text.
    """

    plurals: bool = False
    longest: int = 100

    def __call__(self, tag: str) -> tuple[str, int]:
        """The tag in normal form, and the bits of the changes; one that becomes empty has only EMPTY or TOO_LONG."""
        spaced = _spaced(tag)
        if len(spaced) > SHRINKS * self.longest:  # a megabyte takes long, and may grow eighteenfold
            return "", TOO_LONG
        composed, changed = _composed(spaced)
        if not composed:
            return "", EMPTY
        final = singular(composed) if self.plurals else composed
        changed |= (spaced != tag) * SPACES | (final != composed) * PLURAL
        return (final, changed) if len(final) <= self.longest else ("", TOO_LONG)


def _spaced(tag: str) -> str:
    return " ".join(tag.split()).lstrip("# ")


def _composed(tag: str) -> tuple[str, int]:
    """Unicode, case and spaces until nothing changes: each of them may undo another."""
    changed, before = 0, None
    while tag != before:
        before = tag
        composed = tag if is_normalized("NFKC", tag) else normalize("NFKC", tag)
        if not composed.isprintable():  # white space stays
            composed = "".join(one for one in composed if one.isspace() or category(one) not in INVISIBLE)
        folded = composed.casefold()
        tag = _spaced(folded)
        changed |= (composed != before) * UNICODE | (folded != composed) * CASE | (tag != folded) * SPACES
    return tag, changed


def normalise_lists(lists: Any, normaliser: TagNormaliser) -> tuple[Any, dict[str, int]]:
    """An Arrow column of tag lists, normalised and without empty tags, and how many tags were changed, by change.

    Only distinct tags become Python objects, and only those that a regular expression does not prove to be normal.
    """
    pa = arrow()
    flat = lists.flatten()
    flat = flat if pa.types.is_dictionary(flat.type) else flat.dictionary_encode()
    codes = flat.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    times = np.bincount(codes[codes >= 0], minlength=len(flat.dictionary))
    used = np.flatnonzero(times)  # a file's dictionary may hold words of other batches
    names, masks = _normalised(flat.dictionary.take(pa.array(used)), normaliser)
    counted = {name: int(times[used][masks & (1 << bit) > 0].sum()) for bit, name in enumerate(CHANGES)}
    names = names.dictionary_encode()
    numbers = np.full(len(times) + 1, -1, np.int32)  # the last one for null
    numbers[used] = np.where(masks & (EMPTY | TOO_LONG), -1, names.indices.to_numpy())
    numbers = numbers[codes]
    there = numbers >= 0
    rows = np.repeat(np.arange(len(lists)), lists.value_lengths().fill_null(0).to_numpy())
    ends = np.append(0, np.cumsum(np.bincount(rows[there], minlength=len(lists)))).astype(np.int32)
    words = pa.DictionaryArray.from_arrays(pa.array(numbers[there]), names.dictionary)
    return pa.ListArray.from_arrays(pa.array(ends), words), {name: number for name, number in counted.items() if number}


@lru_cache(1_000_000)  # some 200 MB; the next batch has nearly the same tags
def _normal(tag: str, normaliser: TagNormaliser) -> tuple[str, int]:
    return normaliser(tag)


def _normalised(written: Any, normaliser: TagNormaliser) -> tuple[Any, NDArray[np.uint8]]:
    """Distinct tags in normal form, and the changes made."""
    pa = arrow()
    odd = ~are_normalised(written, normaliser)
    found = [_normal(tag, normaliser) for tag in written.filter(pa.array(odd)).to_pylist()]
    masks = np.zeros(len(written), np.uint8)
    masks[odd] = [changed for _, changed in found]
    names = pa.array([name for name, _ in found], pa.string())
    return pa.compute.replace_with_mask(written, pa.array(odd), names), masks


def are_normalised(tags: Any, normaliser: TagNormaliser) -> NDArray[np.bool_]:
    """Which tags are surely in normal form, by a regular expression: nearly all are."""
    if normaliser.plurals:
        return np.zeros(len(tags), bool)
    pc = arrow().compute
    plain = pc.match_substring_regex(tags, PLAIN).to_numpy(zero_copy_only=False)
    short = pc.binary_length(tags).to_numpy(zero_copy_only=False) <= normaliser.longest
    return np.asarray(plain & short, bool)
