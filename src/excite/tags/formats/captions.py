"""Captions turned into tags: the words that people chose for an image, those that most of them chose first."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from excite.errors import DataError
from excite.tags.corpus import ColumnNames
from excite.tags.dictionary import Normalising
from excite.tags.formats.parquet import kind_of, write_corpus
from excite.tags.formats.rows import ROW_LIMIT, BadRow, bounded_line, csv_columns, json_objects, opened
from excite.vocabulary.word_lists import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path


# Files of captions, in the four forms that they are published in.

Captioned = tuple[str, list[str]]
"""An image and some of its captions: those of one line, others may follow."""

IMAGE_NAMES = ("image", "file", "file_name")


def read_captions(path: Path, skipped: Counter[str]) -> dict[str, list[str]]:
    """All captions of each image, both in the order of the file.

    A caption file is read whole, as those of an image need not stand together: some 1.5 GB for 3 million images.

    Args:
        path: COCO's captions (.json), JSON Lines with ``image`` (``file``, ``file_name``) and ``captions`` or
            ``caption``, CSV with the columns ``image`` and ``caption``, or lines as Flickr30k's (.token, .txt).
        skipped: where rows that cannot be used are counted: ``not_utf8``, ``not_json``, ``wrong_columns``,
            ``too_long``, ``no_image``, ``no_caption``.

    Raises:
        DataError: the file cannot be read, is of none of these kinds, or names no image with a caption.

    Example:
        >>> read_captions(Path("captions_val2017.json"), Counter())         # doctest: +SKIP
        {'000000000139.jpg': ['A woman stands in the dining area at the table.', ...
    """
    reader = CAPTIONED.get(kind_of(path))
    if reader is None:
        raise DataError(f"cannot tell what {path} is by its name: it must end in one of {', '.join(CAPTIONED)}, or .gz")
    captions: dict[str, list[str]] = {}
    for image, some in reader(path, skipped):
        captions.setdefault(image, []).extend(some)
    if not captions:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
        raise DataError(f"{path} has no image with a caption" + (f" ({reasons})" if reasons else ""))
    return captions


def _captioned(image: object, captions: object) -> Captioned:
    if not isinstance(image, str) or not image or image.isspace():
        raise BadRow("no_image")
    some: list[Any] = captions if isinstance(captions, list) else [captions]
    if not some or not all(type(one) is str for one in some):
        raise BadRow("no_caption")
    return image, some


def _coco(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    """COCO's file: images with numbers, captions with the numbers of their images."""
    with opened(path) as file:
        content = file.read()
    try:
        found = json.loads(content)
        names = {one["id"]: one["file_name"] for one in found["images"]}
        captions = [(one["image_id"], one["caption"]) for one in found["annotations"]]
        json.dumps([list(names.values()), captions], ensure_ascii=False).encode()
        _ = {number for number, _ in captions}  # a list or the like is no number of an image
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(
            f"{path} is no caption file of COCO with images and annotations; call JSON Lines .jsonl"
        ) from None
    together: dict[Any, list[Any]] = {number: [] for number in names}  # in the order of the images
    for number, caption in captions:
        if number in together:
            together[number].append(caption)
        else:
            skipped["no_image"] += 1
    yield from _good(((names[number], some) for number, some in together.items()), skipped)


def _json_lines(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    objects = json_objects(path, skipped)
    named = ((next((one[name] for name in IMAGE_NAMES if name in one), None), one) for one in objects)
    yield from _good(((image, one.get("captions", one.get("caption"))) for image, one in named), skipped)


def _csv(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    columns = ColumnNames(tags="caption", user=None)
    yield from _good(((image, caption) for image, caption in csv_columns(path, columns, skipped)), skipped)


def _tokens(path: Path, skipped: Counter[str]) -> Iterator[Captioned]:
    yield from _good((_token(line) for line in _lines(path, skipped)), skipped)


def _lines(path: Path, skipped: Counter[str]) -> Iterator[str]:
    with opened(path) as file:
        while line := bounded_line(file):
            try:
                if len(line) > ROW_LIMIT:
                    skipped["too_long"] += 1
                elif not line.isspace():
                    yield line.decode().strip()
            except UnicodeDecodeError:
                skipped["not_utf8"] += 1


def _token(line: str) -> tuple[str, str | None]:
    """``1000092795.jpg#0``, a tab, the caption."""
    name, tab, caption = line.partition("\t")
    return name.rpartition("#")[0], caption if tab else None


def _good(rows: Iterator[tuple[Any, Any]], skipped: Counter[str]) -> Iterator[Captioned]:
    for image, captions in rows:
        try:
            yield _captioned(image, captions)
        except BadRow as bad:
            skipped[bad.reason] += 1


CAPTIONED: dict[str, Callable[[Path, Counter[str]], Iterator[Captioned]]] = {
    ".json": _coco,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".tsv": _csv,
    ".token": _tokens,
    ".txt": _tokens,
}


# Words of captions that are no tags: those of our own, or those of a file.

LIMIT = 2**20  # bytes of a file of stop words


def read_stop_words(path: Path) -> frozenset[str]:
    """Stop words from a file, one a line, in small letters.

    Raises:
        DataError: the file cannot be read, or is no list of words.

    Example:
        >>> read_stop_words(Path("stop.txt"))                               # doctest: +SKIP
        frozenset({'the', 'a'})
    """
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
        text = content.decode()
    except OSError as error:
        raise DataError(f"cannot read the stop words {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"the stop words {path} are not UTF-8 text: write one word a line") from None
    if len(content) > LIMIT:
        raise DataError(f"{path} is too long for a list of stop words: write one word a line")
    return frozenset(word for line in text.splitlines() if (word := line.strip().casefold()))


# Captions turned into tags: the words that people chose for an image, those that most of them chose first.

WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")  # letters, with apostrophes and hyphens between them
APOSTROPHES = str.maketrans("\N{RIGHT SINGLE QUOTATION MARK}\N{MODIFIER LETTER APOSTROPHE}", "''")
LONGEST = 10_000  # letters of a caption that are looked at


class CaptionWords:
    """The words of captions that may be tags.

    Words are letters, with apostrophes and hyphens between them, in small letters, without the possessive 's. Stop
    words are left out as they are written (so "cans" becomes "can", which as a verb is a stop word), and so are single
    letters.

    Args:
        plurals: make English plurals singular.
        stop_words: words that are no tags.

    Example:
        >>> CaptionWords()(["A man walks two dogs.", "The dog's leash is red", "dogs on a leash"])
        ['dog', 'leash', 'man', 'walk', 'red']
    """

    def __init__(self, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS) -> None:
        self.stop_words = stop_words
        self.normalise = Normalising(plurals=plurals)
        self.known: dict[str, str] = {}

    def __call__(self, captions: Sequence[str]) -> list[str]:
        """The words of an image's captions: those in more of them first, then those that come first."""
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(list(dict.fromkeys(self._words(caption))))
        return [word for word, _ in counts.most_common()]

    def _words(self, caption: str) -> list[str]:
        text = normalize("NFKC", caption[:LONGEST]).casefold().translate(APOSTROPHES)
        found = (word.removesuffix("'s") for word in WORD.findall(text))
        return [tag for word in found if word not in self.stop_words and len(tag := self._tag(word)) > 1]

    def _tag(self, word: str) -> str:
        """The word's form; words come again and again."""
        if word not in self.known:
            self.known[word] = self.normalise(word)[0]
        return self.known[word]


def captions_to_corpus(
    path: Path, out: Path, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS
) -> dict[str, Any]:
    """Make a corpus of a caption file: its images with the words of their captions as tags, and no users.

    Args:
        path: a caption file as `excite.tags.formats.captions.read_captions` takes it.
        out: the Parquet file; it is there when it is whole.
        plurals: make English plurals singular.
        stop_words: words that are no tags.

    Returns:
        How many ``pictures`` and ``captions`` there were, how many ``words`` became tags and how many ``distinct``
        ones, and the rows that were ``skipped``, by reason.

    Raises:
        DataError: the file cannot be read, is no caption file, or holds not one word that may be a tag.

    Example:
        >>> captions_to_corpus(Path("captions_val2017.json"), Path("corpus.parquet"))   # doctest: +SKIP
        {'pictures': 5000, 'captions': 25014, 'words': ...
    """
    skipped: Counter[str] = Counter()
    captions = read_captions(path, skipped)
    words = CaptionWords(plurals=plurals, stop_words=stop_words)
    records = [(image, words(some), None) for image, some in captions.items()]
    if not any(tags for _, tags, _ in records):
        raise DataError(f"the captions of {path} hold no word that may be a tag: is the list of stop words too long?")
    write_corpus(records, out)
    return {
        "pictures": len(records),
        "captions": sum(map(len, captions.values())),
        "words": sum(len(tags) for _, tags, _ in records),
        "distinct": len({tag for _, tags, _ in records for tag in tags}),
        "skipped": dict(skipped),
    }
