"""The profile of one tag of a corpus, and which tags are visual: words for something that can be seen in an image.

There is no list of all visual words, so there are two measures, each with its own blind spot:

* **named**: the tag is a word for something that a classifier of this package knows: a label of ImageNet or COCO, a
  synonym, or an everyday word for a group of labels. Plurals count, and so does the last word of a compound ("old
  dog"). This needs no images, but covers objects, animals and people only: "sunset", "red" and "beach" are visual and
  not named, and "hot" (ImageNet has "red hot", a sausage) is named and not visual.
* **learnt**: a trained tag classifier finds the tag in held-out images: its average precision is at least 5 times the
  share of images that list it, which is the precision of guessing. This depends on the classifier and its data: a rare
  tag may be visual and not learnt, and a tag that always comes with something visible ("holiday" with beaches) is
  learnt.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError, visible
from excite.jobs.parquet import arrow
from excite.tags.statistics import Statistics, TagColumn, TextCounter, dictionary_of
from excite.vocabulary.inflection import singulars
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.tags.corpus import Corpus, RowGroup
    from excite.tags.dictionary import Dictionary
    from excite.vocabulary import Labels


FIRST_PLACES = 5  # the tags that a classifier learns
FEWEST_TOGETHER = 5  # images; the lift of fewer is chance
MOST_TOGETHER, MOST_USERS = 30, 10  # in the profile
LONGEST_SHOWN = 60  # characters of a tag in a message
TIMES_CHANCE = 5.0
COLUMNS = ("tag", "precision", "share")
MOST_COMPARED = 20_000  # tags that a misspelt one is compared with


@dataclass(frozen=True)
class TagProfile:
    """The statistics of one tag.

    Attributes:
        tag: the tag.
        listed: how often it is listed,
        pictures: and by how many images.
        rank: among all tags, 1 for the most frequent.
        distinct: the number of distinct tags.
        places: how often it is listed first, second, ... fifth, and later.
        together: for each tag that occurs with it ``tag``, ``pictures`` that list both, and the ``lift``: the ratio of
            these to their number if the tags were independent. Most images first, at least 5.
        users: ``user`` and ``pictures`` of those who use it most.
        samples: random images that list it among the first five: name and tags.
    """

    tag: str
    listed: int
    pictures: int
    rank: int
    distinct: int
    places: tuple[int, ...]
    together: tuple[dict[str, Any], ...]
    users: tuple[dict[str, Any], ...]
    samples: tuple[tuple[str, list[str]], ...]


def tag_profile(
    tag: str, corpus: Corpus, row_groups: Iterable[RowGroup] | None = None, *, samples: int = 72
) -> TagProfile:
    """Compute the profile of a tag in one pass.

    Args:
        tag: exactly as the corpus writes it.
        corpus: the images with their tags.
        row_groups: those to read; all if None.
        samples: the number of images that list it to sample.

    Raises:
        DataError: no image lists it; the message names similar tags.
    """
    builder = _ProfileBuilder(tag, samples)
    for batch in corpus.batches(row_groups):
        builder.add(batch)
    return builder.profile()


class _ProfileBuilder:
    """The counts of a tag, and of all others, over the batches so far."""

    def __init__(self, tag: str, samples: int) -> None:
        self._tag, self._most = tag, samples
        self._listed, self._in_pictures, self._together, self._users = (TextCounter() for _ in range(4))
        self._rows = 0
        self._places = np.zeros(FIRST_PLACES + 1, np.int64)
        self._random = np.random.default_rng(0)
        self._samples: list[tuple[float, str, list[str]]] = []

    def add(self, batch: Any) -> None:
        """Count the rows of a batch."""
        self._rows += batch.num_rows
        column = TagColumn.of(batch)
        self._listed.count(column.texts, column.codes)
        rows, codes = column.once_a_picture()
        texts = column.texts
        self._in_pictures.count(texts, codes)
        code = arrow().compute.index(texts, self._tag).as_py()
        if code < 0:
            return
        places = column.positions[column.codes == code]
        self._places += np.bincount(np.minimum(places, FIRST_PLACES), minlength=len(self._places))
        with_it = np.zeros(batch.num_rows, bool)
        with_it[column.rows[column.codes == code]] = True
        self._together.count(texts, codes[with_it[rows]])
        self._users.count_column(batch.column("user").filter(arrow().array(with_it)))
        among_first = (column.codes == code) & (column.positions < FIRST_PLACES)
        self._sample(batch, np.unique(column.rows[among_first]))

    def _sample(self, batch: Any, rows: NDArray[Any]) -> None:
        """Keep the images with the lowest random numbers, drawn in the order of the corpus: independent of batches."""
        lots = self._random.random(len(rows))
        lowest = np.argsort(lots, kind="stable")[: self._most]
        taken = batch.take(arrow().array(rows[lowest]))
        named = zip(
            lots[lowest].tolist(), taken.column("image").to_pylist(), taken.column("tags").to_pylist(), strict=True
        )
        self._samples = sorted([*self._samples, *named], key=lambda one: one[0])[: self._most]

    def profile(self) -> TagProfile:
        """The profile."""
        everything = Statistics(self._rows, {}, 0, self._listed.ranked(), self._users.ranked())
        rank = arrow().compute.index(everything.tags["text"], self._tag).as_py() + 1
        if not rank:
            raise DataError(_not_there(self._tag, everything))
        together = Statistics(self._rows, {}, 0, self._together.ranked(), None)
        (pictures,) = together.counted([self._tag]).counts
        users = dictionary_of(everything.users.slice(0, MOST_USERS))
        return TagProfile(
            tag=self._tag,
            listed=int(self._places.sum()),
            pictures=pictures,
            rank=rank,
            distinct=len(everything.tags),
            places=tuple(self._places.tolist()),
            together=tuple(islice(self._lifts(together.at_least(FEWEST_TOGETHER), pictures), MOST_TOGETHER)),
            users=tuple({"user": name, "pictures": n} for name, n in zip(users.tags, users.counts, strict=True)),
            samples=tuple((image, tags) for _, image, tags in self._samples),
        )

    def _lifts(self, together: Dictionary, pictures: int) -> Iterator[dict[str, Any]]:
        in_pictures = Statistics(self._rows, {}, 0, self._in_pictures.ranked(), None).counted(together.tags)
        for tag, both, other in zip(together.tags, together.counts, in_pictures.counts, strict=True):
            if tag != self._tag:
                yield {"tag": tag, "pictures": both, "lift": both * self._rows / (pictures * other)}


def _not_there(tag: str, everything: Statistics) -> str:
    if not everything.listed:
        return "the corpus lists no tags at all"
    written: dict[str, str] = {}
    for known in everything.most_frequent(MOST_COMPARED).tags:
        written.setdefault(fold(known), known)  # of several spellings the most frequent one
    wanted = fold(tag[:LONGEST_SHOWN])
    alike = set(get_close_matches(wanted, written, 50, 0.6))
    nearest = [one for one in written if one in alike]  # by rank
    nearest.sort(key=lambda one: -SequenceMatcher(None, wanted, one).ratio())
    similar = f"the nearest tags are {', '.join(repr(written[one]) for one in nearest[:5])}"
    none = "no frequent tag is written alike: `excite tags stats` lists them"
    return f"no image lists {tag[:LONGEST_SHOWN]!r}; {similar if nearest else none}"


def shown(text: str) -> str:
    r"""A tag or a user for one line of a terminal: cut to 60 characters, control characters escaped.

    Example:
        >>> shown("dog"), shown("\x1b[2J" + "very " * 100)
        ('dog', '\\x1b[2Jvery very very very very very very very very very very ...')
    """
    return visible(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "...")


def known_words(labels: Labels) -> frozenset[str]:
    """All words for a label or a group of labels: names, synonyms, their last words, and kinds.

    These are the words that `Labels.find` accepts, but for prefixes and numbers of labels.

    Example:
        >>> from excite.vocabulary import imagenet_labels
        >>> words = known_words(imagenet_labels())
        >>> [word in words for word in ("beagle", "dog", "terrier", "holiday", "bea")]
        [True, True, True, False, False]
    """
    synonyms = {fold(word) for unit in range(len(labels)) for word in labels.synonyms(unit)}
    return frozenset(synonyms | {word.split()[-1] for word in synonyms} | set(labels.kinds))


def is_named(tag: str, words: Container[str]) -> bool:
    """Whether a tag, or its last word, is among those words, as it is or as a plural.

    Example:
        >>> [is_named(tag, {"dog", "hot dog"}) for tag in ("Old Dogs", "hot-dog", "dog show")]
        [True, True, False]
    """
    whole = fold(tag)
    if not whole:
        return False
    return any(form in words for word in (whole, whole.split()[-1]) for form in (word, *singulars(word)))


def learnt_tags(path: Path) -> dict[str, bool]:
    r"""Whether a classifier has learnt each tag that it was measured on.

    Args:
        path: the measures of a training, a CSV file with the columns ``tag``, ``precision`` (average precision on
            held-out images) and ``share`` (of these images that list the tag), and any others. Tags without a
            precision, which no such image lists, are left out.

    Raises:
        DataError: the file cannot be read, or is none of this kind.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("measures.csv").write_text("tag,count,precision,share\ndog,9,0.6,0.02\nholiday,8,0.05,0.02\n")
        >>> learnt_tags(Path("measures.csv"))
        {'dog': True, 'holiday': False}
    """
    try:
        lines = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
        if missing:
            raise DataError(f"{path} holds no measures of tags: it has no column {missing[0]!r}")
        measured = {line["tag"]: [float(line[name] or "nan") for name in COLUMNS[1:]] for line in lines}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the measures {path}: {' '.join(str(error).split())}") from None
    return {
        tag: precision >= TIMES_CHANCE * share
        for tag, (precision, share) in measured.items()
        if math.isfinite(precision) and share > 0
    }


def visual_share(dictionary: Dictionary, is_visual: Callable[[str], bool]) -> dict[str, Any]:
    """The visual share of a dictionary: of its tags, and of their listings.

    Returns:
        ``judged``, the number of tags; the shares ``of_tags`` and ``of_listed``, None for an empty dictionary.

    Example:
        >>> from excite.tags.dictionary import Dictionary
        >>> visual_share(Dictionary(("nature", "dog"), (30, 10)), {"dog"}.__contains__)
        {'judged': 2, 'of_tags': 0.5, 'of_listed': 0.25}
    """
    counts = [count for tag, count in zip(dictionary.tags, dictionary.counts, strict=True) if is_visual(tag)]
    listed = sum(dictionary.counts)
    return {
        "judged": len(dictionary),
        "of_tags": len(counts) / len(dictionary) if len(dictionary) else None,
        "of_listed": sum(counts) / listed if listed else None,
    }


def learnt_share(dictionary: Dictionary, learnt: Mapping[str, bool]) -> dict[str, Any]:
    """The learnt share of the measured part of a dictionary.

    Raises:
        DataError: none of its tags was measured.

    Example:
        >>> from excite.tags.dictionary import Dictionary
        >>> learnt_share(Dictionary(("nature", "dog", "emu"), (30, 10, 1)), {"dog": True, "nature": False})
        {'judged': 2, 'of_tags': 0.5, 'of_listed': 0.25}
    """
    measured = [one for one in zip(dictionary.tags, dictionary.counts, strict=True) if one[0] in learnt]
    if not measured:
        raise DataError("the measures are of other tags: none of them is in this dictionary")
    return visual_share(dictionary.ranked(measured), learnt.__getitem__)
