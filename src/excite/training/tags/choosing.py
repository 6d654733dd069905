"""Which tags are learnt: those of a dictionary, or those seen often enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.errors import DataError
from excite.tags.dictionary import Dictionary, dictionary_beside
from excite.tags.statistics import statistics_of
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from pathlib import Path

    from excite.tags.corpus import Corpus

__all__ = ["Choice", "chosen_dictionary"]


@dataclass(frozen=True)
class Choice:
    """A dictionary to learn.

    Attributes:
        dictionary: the tags.
        source: where they come from, for people to read.
        unspeakable: tags that were left out, since no user's word can mean them: blank, or nothing but dashes.
    """

    dictionary: Dictionary
    source: str
    unspeakable: tuple[str, ...] = ()


def chosen_dictionary(corpus: Corpus, path: Path | None = None, least: int | None = None) -> Choice:
    """The dictionary of a file, or the one that lies beside the corpus, or the tags seen at least so often in it.

    Raises:
        DataError: there is none of them, two were asked for, or no tag is left.

    Example:
        >>> chosen_dictionary(Corpus(Path("kept.parquet")), least=1000).dictionary.tags[:2]  # doctest: +SKIP
        ('nature', 'people')
    """
    if path is not None and least is not None:
        raise DataError("a dictionary was given and --min-count asks for another one: leave one of them out")
    beside = dictionary_beside(corpus.path)
    if least is not None:
        found, source = (
            statistics_of(corpus).at_least(least),
            f"the tags seen at least {least} times in {corpus.path.name}",
        )
    elif path is not None or beside.is_file():
        found, source = Dictionary.read(path or beside), (path or beside).name
    else:
        raise DataError(
            f"which tags shall be learnt? There is no {beside}: give --dictionary FILE.csv or --min-count N"
        )
    spoken = [bool(fold(tag)) for tag in found.tags]
    pairs = [pair for pair, good in zip(zip(found.tags, found.counts, strict=True), spoken, strict=True) if good]
    if not pairs:
        raise DataError(f"there is no tag to learn: {source} has none")
    speakable = Dictionary(tuple(tag for tag, _ in pairs), tuple(count for _, count in pairs))
    return Choice(speakable, source, tuple(tag for tag, good in zip(found.tags, spoken, strict=True) if not good))
