"""The 1000 classes of ImageNet and their kinds, by dev/make_imagenet_labels.py and dev/make_wordnet_kinds.py."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

from excite.vocabulary.labels import Labels, rows
from excite.vocabulary.word_lists import lines_of


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
    """Words for kinds of classes, by WordNet and, where that differs from everyday use, by EVERYDAY_WORDS."""
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


EVERYDAY_WORDS: Mapping[str, tuple[int, ...]] = {
    word: tuple(spread(spans))
    for word, spans in (line.split(": ") for line in lines_of("everyday words for classes of ImageNet"))
}
"""Words whose classes differ from WordNet's, read off by hand: to it a lynx is a cat and a plant first a factory."""
