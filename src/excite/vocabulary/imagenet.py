"""The labels of the 1000 ImageNet (ILSVRC) classes, and words for the kinds of things that these are.

dev/make_imagenet_labels.py makes imagenet.txt, dev/make_wordnet_kinds.py makes wordnet.txt.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from excite.vocabulary.labels import Labels, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@cache
def imagenet_labels() -> Labels:
    """The labels, in the usual order of classes, with words for kinds such as "dog"."""
    entries = [synonyms for _, *synonyms in rows("imagenet.txt")]
    return Labels(entries, groups=imagenet_groups, others=imagenet_others)


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The WordNet ID of each class ("n01440764"), by which data sets name their classes."""
    return tuple(wnid for wnid, *_ in rows("imagenet.txt"))


@cache
def imagenet_groups() -> Mapping[str, tuple[int, ...]]:
    """Words for kinds of classes, by WordNet and, where that differs from everyday use, by EVERYDAY_WORDS.

    Example:
        >>> imagenet_groups()["frog"]
        (30, 31, 32)
    """
    *kinds, _ = rows("wordnet.txt")
    groups: defaultdict[str, set[int]] = defaultdict(set)
    for _, words, spans in kinds:
        classes = set(spread(spans))
        for word in words.lower().split(", "):
            groups[word] |= classes
    return {**{word: tuple(sorted(classes)) for word, classes in groups.items()}, **EVERYDAY_WORDS}


@cache
def imagenet_others() -> frozenset[str]:
    """Words of labels that in a sentence mostly mean something else."""
    *_, (_, others) = rows("wordnet.txt")
    return frozenset(others.split(", ")) - EVERYDAY_WORDS.keys()


def spread(spans: str) -> Iterator[int]:
    """The classes of spans such as "0-6 389"."""
    for span in spans.split():
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)


# Everyday words for ImageNet's classes where WordNet differs from everyday use: to it a lynx is a cat and a minivan a
# truck, a freight car is no part of a train, and a plant is a factory first. Read off the list of classes by hand.


def units(*spans: int | tuple[int, int]) -> tuple[int, ...]:
    """The classes of several spans, each a class or its first and last class."""
    pairs = ((span, span) if isinstance(span, int) else span for span in spans)
    return tuple(unit for first, last in pairs for unit in range(first, last + 1))


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
        *(401, 402, 420, 432, 486, 494, 513, 541, 546, 558, 566, 577, 579, 593, 594, 641, 642, 683, 684, 687, 699, 776),
        *(822, 875, 881, 889),
    ),  # of music; not guns and clocks
    # words of labels that in texts mean something else, but in images this
    "plate": units(923),
    "monitor": units(664),
}
