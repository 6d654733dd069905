"""The labels of the 1000 ImageNet (ILSVRC) classes, and the kinds of things that these are.

dev/make_imagenet_labels.py makes the text of the labels, dev/make_wordnet_kinds.py that of the kinds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from excite.vocabulary.labels import Labels
from excite.vocabulary.word_lists import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# Everyday words for ImageNet's classes where WordNet (wordnet.txt) says something else than people do.
#
# WordNet is a book of kinds for the whole language. It knows that a beagle is a dog, but to it a lynx is a cat and a
# minivan a truck, a freight car is no part of a train, and a plant is a factory first. Read off the list of classes
# by hand; only words are here that WordNet answers wrongly, in small part, or not at all.


def units(*spans: int | tuple[int, int]) -> tuple[int, ...]:
    """The classes of several spans, each a class or its first and last class."""

    def spread() -> Iterator[int]:
        for span in spans:
            first, last = (span, span) if isinstance(span, int) else span
            yield from range(first, last + 1)

    return tuple(spread())


EVERYDAY_WORDS: Mapping[str, tuple[int, ...]] = {
    # not in WordNet's words, or with no class below them
    "chicken": units(7, 8),
    "horse": units(339),
    "cow": units(345),
    "tv": units(851),
    "watch": units(531),  # mostly a verb
    "flower": units(985, 986),
    "plant": units(738, (984, 986)),
    # in small part: the rest is called otherwise, or is a kind of something else
    "rabbit": units((330, 332)),
    "sheep": units(348, 349),
    "elephant": units(101, 385, 386),
    "airplane": units(404, 895),
    "aeroplane": units(404, 895),
    "rocket": units(657, 744),
    "train": units(466, 547, 565, 705, 820),
    "boat": units(472, 484, 554, 576, 625, 780, 814, 871, 914),
    "motorcycle": units(665, 670),
    "motorbike": units(665, 670),
    "bed": units(564, 831),
    "shoe": units(502, 514, 630, 770, 774),
    "oven": units(544, 651),
    # too much: what nobody calls so
    "wolf": units((269, 271)),
    "cat": units((281, 285)),
    "bear": units((294, 297)),
    "bottle": units(440, 720, 737, 898, 907),
    "chair": units(423, 559, 765),
    "truck": units(555, 569, 675, 717, 734, 864, 867),
    "ship": units(403, 510, 628, 724, 780, 913),
    "bike": units(444, 671),
    "gun": units(413, 763, 764),
    "bread": units(930, 931),
    "fruit": units((948, 957)),
    "vegetable": units((936, 946)),
    "instrument": units(
        401,
        402,
        420,
        432,
        486,
        494,
        513,
        541,
        546,
        558,
        566,
        577,
        579,
        593,
        594,
        641,
        642,
        683,
        684,
        687,
        699,
        776,
        822,
        875,
        881,
        889,
    ),  # those of music; not guns and clocks
    # words of labels that in texts mean something else, but in images this
    "plate": units(923),
    "monitor": units(664),
}


# The labels of the 1000 ImageNet (ILSVRC) classes, and the kinds of things that these are.
#
# dev/make_imagenet_labels.py makes the text of the labels, dev/make_wordnet_kinds.py that of the kinds.


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
