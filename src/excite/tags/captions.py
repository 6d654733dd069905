"""Captions as tags: the words of an image's captions, those in most of them first."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

from excite.errors import DataError
from excite.tags import text_files
from excite.tags.corpus import ColumnNames
from excite.tags.dictionary import TagNormaliser
from excite.tags.text_files import NO_IMAGE, Reason, csv_columns, json_objects, opened, text_lines
from excite.vocabulary.word_lists import STOP_WORDS

Rows = Iterator[tuple[Any, Any] | text_files.Reason]  # images with captions, unchecked
STOP_WORDS_LIMIT = 2**20  # bytes of a file
WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")  # letters, with apostrophes and hyphens between them
APOSTROPHES = str.maketrans("\N{RIGHT SINGLE QUOTATION MARK}\N{MODIFIER LETTER APOSTROPHE}", "''")
LONGEST = 10_000  # characters of a caption that are read


def read_captions(path: Path, skipped: Counter[str]) -> dict[str, list[str]]:
    """All captions of each image, both in the order of the file; bad rows are counted by reason.

    A caption file is read whole, as the captions of an image need not be adjacent: some 1.5 GB for 3 million images.
    """
    reader = CAPTIONED.get(text_files.file_kind(path))
    if reader is None:
        raise DataError(f"cannot tell what {path} is by its name: it must end in one of {', '.join(CAPTIONED)}, or .gz")
    captions: dict[str, list[str]] = {}
    for image, found in text_files.counting(reader(path), skipped):
        some = found if isinstance(found, list) else [found]
        if not isinstance(image, str) or not image or image.isspace():
            skipped["no_image"] += 1
        elif not some or not all(type(one) is str for one in some):
            skipped["no_caption"] += 1
        else:
            captions.setdefault(image, []).extend(some)
    if not captions:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
        raise DataError(f"{path} has no image with a caption" + (f" ({reasons})" if reasons else ""))
    return captions


def _coco(path: Path) -> Rows:
    """COCO's file: images with numbers, captions with the numbers of their images."""
    try:
        with opened(path) as file:
            found = json.load(file)
        names = {one["id"]: one["file_name"] for one in found["images"]}
        captions = [(one["image_id"], one["caption"]) for one in found["annotations"]]
        json.dumps([list(names.values()), captions], ensure_ascii=False).encode()
        together: dict[Any, list[Any]] = {number: [] for number in names}  # in the order of the images
        lost: list[Any] = []
        for number, caption in captions:
            together.get(number, lost).append(caption)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(
            f"{path} is no caption file of COCO with images and annotations; call JSON Lines .jsonl"
        ) from None
    yield from [NO_IMAGE] * len(lost)
    for number, some in together.items():
        yield names[number], some


def _json_lines(path: Path) -> Rows:
    """Objects with ``image`` (``file``, ``file_name``) and ``captions`` or ``caption``."""
    for one in json_objects(path):
        if isinstance(one, Reason):
            yield one
        else:
            image = one.get("image", one.get("file", one.get("file_name")))
            yield image, one.get("captions", one.get("caption"))


def _csv(path: Path) -> Rows:
    for row in csv_columns(path, ColumnNames(tags="caption", user=None)):
        yield row if isinstance(row, Reason) else (row[0], row[1])


def _tokens(path: Path) -> Rows:
    """Flickr30k's lines: ``1000092795.jpg#0``, a tab, the caption."""
    for line in text_lines(path):
        name, tab, caption = line.strip().partition("\t")
        yield line if isinstance(line, Reason) else (name.rpartition("#")[0], caption if tab else None)


CAPTIONED: dict[str, Callable[[Path], Rows]] = {".json": _coco, ".jsonl": _json_lines, ".ndjson": _json_lines}
CAPTIONED |= {".csv": _csv, ".tsv": _csv, ".token": _tokens, ".txt": _tokens}


def read_stop_words(path: Path) -> frozenset[str]:
    """Read stop words from a file, one a line, case-folded."""
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
    """

    def __init__(self, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS) -> None:
        self.stop_words = stop_words
        self.normalise = cache(TagNormaliser(plurals=plurals))

    def __call__(self, captions: Sequence[str]) -> list[str]:
        """The words of an image's captions: those in more captions first, then in order of appearance."""
        counts: Counter[str] = Counter()
        for caption in captions:
            text = normalize("NFKC", caption[:LONGEST]).casefold().translate(APOSTROPHES)
            found = (word.removesuffix("'s") for word in WORD.findall(text))
            tags = (self.normalise(word)[0] for word in found if word not in self.stop_words)
            counts.update(dict.fromkeys(tag for tag in tags if len(tag) > 1).keys())
        return [word for word, _ in counts.most_common()]


def captions_to_corpus(
    path: Path, out: Path, *, plurals: bool = True, stop_words: AbstractSet[str] = STOP_WORDS
) -> dict[str, Any]:
    """Convert a caption file to a corpus: the words of an image's captions are its tags. Returns what was counted."""
    skipped: Counter[str] = Counter()
    captions = read_captions(path, skipped)
    words = CaptionWords(plurals=plurals, stop_words=stop_words)
    tags = {image: words(some) for image, some in captions.items()}
    if not any(tags.values()):
        raise DataError(f"the captions of {path} hold no word that may be a tag: is the list of stop words too long?")
    text_files.write_corpus(((image, listed, None) for image, listed in tags.items()), out)
    return {
        "pictures": len(tags),
        "captions": sum(map(len, captions.values())),
        "words": sum(map(len, tags.values())),
        "distinct": len({tag for listed in tags.values() for tag in listed}),
        "skipped": dict(skipped),
    }
