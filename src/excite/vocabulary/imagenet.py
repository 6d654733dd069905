"""The labels of the 1000 ImageNet (ILSVRC) classes, and the kinds of things that these are.

recipes/make_imagenet_labels.py makes the text of the labels, recipes/make_wordnet_kinds.py that of the kinds.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from excite.vocabulary.everyday import EVERYDAY_WORDS
from excite.vocabulary.labels import Labels
from excite.vocabulary.word_lists import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ImageNetKinds", "imagenet_kinds", "imagenet_labels", "imagenet_wnids"]


class ImageNetKinds(NamedTuple):
    """Words beside the labels.

    Attributes:
        groups: a word for a kind of things, and its classes.
        others: words of labels that mostly mean something else.
    """

    groups: Mapping[str, Sequence[int]]
    others: frozenset[str]


@cache
def imagenet_labels() -> Labels:
    """The labels, in the usual order of classes, with words for kinds such as "dog"."""
    groups, others = imagenet_kinds()
    return Labels([synonyms for _, *synonyms in rows("imagenet.txt")], groups=groups, others=others)


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The WordNet number of each class ("n01440764"), by which data sets name their classes."""
    return tuple(wnid for wnid, *_ in rows("imagenet.txt"))


@cache
def imagenet_kinds() -> ImageNetKinds:
    """All that classes are kinds of, by WordNet, and by our own list where that knows better.

    Example:
        >>> imagenet_kinds().groups["frog"]
        (30, 31, 32)
    """
    *kinds, (_, others) = rows("wordnet.txt")
    groups: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for _, words, spans in kinds:
        for word in words.split(", "):
            groups[word.lower()].update(dict.fromkeys(spread(spans)))
    known = {word: tuple(sorted(units)) for word, units in groups.items()}
    return ImageNetKinds({**known, **EVERYDAY_WORDS}, frozenset(others.split(", ")) - EVERYDAY_WORDS.keys())


def spread(spans: str) -> Iterator[int]:
    """The classes of spans such as "0-6 389"."""
    for span in spans.split():
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)
