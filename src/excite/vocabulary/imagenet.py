"""The labels of the 1000 ImageNet (ILSVRC) classes; recipes/make_imagenet_labels.py makes their text."""

from functools import cache
from importlib.resources import files

from excite.vocabulary.everyday import EVERYDAY_WORDS
from excite.vocabulary.labels import Labels

__all__ = ["imagenet_labels", "imagenet_wnids"]


@cache
def imagenet_labels() -> Labels:
    """The labels, in the usual order of classes, with everyday words for kinds such as "dog"."""
    return Labels([synonyms for _, *synonyms in rows()], groups=EVERYDAY_WORDS)


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The WordNet number of each class ("n01440764"), by which data sets name their classes."""
    return tuple(wnid for wnid, *_ in rows())


def rows() -> list[list[str]]:
    """The lines of the text: a WordNet number and its synonyms."""
    text = files("excite.vocabulary").joinpath("imagenet.txt").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]
