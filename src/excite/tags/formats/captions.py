"""Captions as tags: the words of an image's captions, those in most of them first."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from excite.errors import DataError
from excite.tags.corpus import ColumnNames
from excite.tags.dictionary import TagNormaliser
from excite.tags.formats.parquet import file_kind, write_corpus
from excite.tags.formats.rows import ROW_LIMIT, bounded_line, csv_columns, json_objects, opened
from excite.vocabulary.word_lists import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path


Rows = Iterator[tuple[Any, Any]]
"""Images and captions, unchecked; others of the same image may follow."""

IMAGE_NAMES = ("image", "file", "file_name")
STOP_WORDS_LIMIT = 2**20  # bytes of a file
WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")  # letters, with apostrophes and hyphens between them
APOSTROPHES = str.maketrans("\N{RIGHT SINGLE QUOTATION MARK}\N{MODIFIER LETTER APOSTROPHE}", "''")
LONGEST = 10_000  # characters of a caption that are read


def read_captions(path: Path, skipped: Counter[str]) -> dict[str, list[str]]:
    """All captions of each image, both in the order of the file.

    A caption file is read whole, as the captions of an image need not be adjacent: some 1.5 GB for 3 million images.

    Args:
        path: COCO's captions (.json), JSON Lines with ``image`` (``file``, ``file_name``) and ``captions`` or
            ``caption``, CSV with the columns ``image`` and ``caption``, or lines as Flickr30k's (.token, .txt).
        skipped: counts bad rows: ``not_utf8``, ``not_json``, ``wrong_columns``, ``too_long``, ``no_image``,
            ``no_caption``.

    Raises:
        DataError: the file cannot be read, is of none of these kinds, or names no image with a caption.
    """
    reader = CAPTIONED.get(file_kind(path))
    if reader is None:
        raise DataError(f"cannot tell what {path} is by its name: it must end in one of {', '.join(CAPTIONED)}, or .gz")
    captions: dict[str, list[str]] = {}
    for image, some in _valid(reader(path, skipped), skipped):
        captions.setdefault(image, []).extend(some)
    if not captions:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
        raise DataError(f"{path} has no image with a caption" + (f" ({reasons})" if reasons else ""))
    return captions


def _coco(path: Path, skipped: Counter[str]) -> Rows:
    """COCO's file: images with numbers, captions with the numbers of their images."""
    with opened(path) as file:
        content = file.read()
    try:
        found = json.loads(content)
        names = {one["id"]: one["file_name"] for one in found["images"]}
        captions = [(one["image_id"], one["caption"]) for one in found["annotations"]]
        json.dumps([list(names.values()), captions], ensure_ascii=False).encode()
        _ = {number for number, _ in captions}  # fails for lists and the like
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
    for number, some in together.items():
        yield names[number], some


def _json_lines(path: Path, skipped: Counter[str]) -> Rows:
    for one in json_objects(path, skipped):
        image = next((one[name] for name in IMAGE_NAMES if name in one), None)
        yield image, one.get("captions", one.get("caption"))


def _csv(path: Path, skipped: Counter[str]) -> Rows:
    for row in csv_columns(path, ColumnNames(tags="caption", user=None), skipped):
        yield row[0], row[1]


def _tokens(path: Path, skipped: Counter[str]) -> Rows:
    """Flickr30k's lines: ``1000092795.jpg#0``, a tab, the caption."""
    with opened(path) as file:
        while line := bounded_line(file):
            try:
                if len(line) > ROW_LIMIT:
                    skipped["too_long"] += 1
                elif not line.isspace():
                    name, tab, caption = line.decode().strip().partition("\t")
                    yield name.rpartition("#")[0], caption if tab else None
            except UnicodeDecodeError:
                skipped["not_utf8"] += 1


def _valid(rows: Rows, skipped: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """The images with their captions; bad ones are counted by reason."""
    for image, captions in rows:
        some: list[Any] = captions if isinstance(captions, list) else [captions]
        if not isinstance(image, str) or not image or image.isspace():
            skipped["no_image"] += 1
        elif not some or not all(type(one) is str for one in some):
            skipped["no_caption"] += 1
        else:
            yield image, some


CAPTIONED: dict[str, Callable[[Path, Counter[str]], Rows]] = {
    ".json": _coco,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".tsv": _csv,
    ".token": _tokens,
    ".txt": _tokens,
}


def read_stop_words(path: Path) -> frozenset[str]:
    """Read stop words from a file, one a line, case-folded.

    Raises:
        DataError: the file cannot be read, or is no list of words.
    """
    try:
        with path.open("rb") as file:
            content = file.read(STOP_WORDS_LIMIT + 1)
        text = content.decode()
    except OSError as error:
        raise DataError(f"cannot read the stop words {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"the stop words {path} are not UTF-8 text: write one word a line") from None
    if len(content) > STOP_WORDS_LIMIT:
        raise DataError(f"{path} is too long for a list of stop words: write one word a line")
    return frozenset(word for line in text.splitlines() if (word := line.strip().casefold()))


class CaptionWords:
    """The words of captions that become tags.

    Words are letters, with apostrophes and hyphens between them, case-folded, without the possessive 's. Stop words as
    written (so "cans" becomes "can", which as a verb is a stop word) and single letters are left out.

    Args:
        plurals: make English plurals singular.
        stop_words: words that are no tags.

    Example:
        >>> CaptionWords()(["A man walks two dogs.", "The dog's leash is red", "dogs on a leash"])
        ['dog', 'leash', 'man', 'walk', 'red']
    """

    def __init__(self, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS) -> None:
        self.stop_words = stop_words
        self.normalise = TagNormaliser(plurals=plurals)
        self.known: dict[str, str] = {}

    def __call__(self, captions: Sequence[str]) -> list[str]:
        """The words of an image's captions: those in more captions first, then in order of appearance."""
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(list(dict.fromkeys(self._words(caption))))
        return [word for word, _ in counts.most_common()]

    def _words(self, caption: str) -> list[str]:
        text = normalize("NFKC", caption[:LONGEST]).casefold().translate(APOSTROPHES)
        found = (word.removesuffix("'s") for word in WORD.findall(text))
        return [tag for word in found if word not in self.stop_words and len(tag := self._tag(word)) > 1]

    def _tag(self, word: str) -> str:
        """The normal form of a word, cached."""
        if word not in self.known:
            self.known[word] = self.normalise(word)[0]
        return self.known[word]


def captions_to_corpus(
    path: Path, out: Path, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS
) -> dict[str, Any]:
    """Convert a caption file to a corpus: the words of an image's captions are its tags; there are no users.

    Args:
        path: a caption file, as for `read_captions`.
        out: the Parquet file, written atomically.
        plurals: make English plurals singular.
        stop_words: words that are no tags.

    Returns:
        The numbers of ``pictures``, ``captions``, ``words`` that became tags and ``distinct`` ones, and the ``skipped``
        rows by reason.

    Raises:
        DataError: the file cannot be read, is no caption file, or holds no word that may be a tag.
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
