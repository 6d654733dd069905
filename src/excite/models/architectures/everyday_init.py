"""The embedded classifier with 80 everyday objects beside ImageNet's 1000 classes: two output layers in one.

The second output layer was fine-tuned on pictures of COCO, where several objects may be there at once; so its outputs
are independent of each other, while of ImageNet's exactly one is true. ``recipes/everyday_head.py`` trains it.
"""

from functools import cache

from excite.models.architectures.efficientnet_lite0 import EfficientNetLite0
from excite.models.architectures.embedded import HEADS, stacked
from excite.vocabulary import Labels, imagenet_labels
from excite.vocabulary.imagenet import imagenet_kinds

__all__ = ["EVERYDAY_UNITS", "everyday", "everyday_labels"]

EVERYDAY_UNITS = range(1000, 1080)


def everyday() -> EfficientNetLite0:
    """The network with the weights of both output layers, ready to be asked."""
    return stacked(["everyday"])


@cache
def everyday_labels() -> Labels:
    """ImageNet's labels, then the everyday ones, which have their words to themselves.

    Example:
        >>> [everyday_labels().find(word).units for word in ("dining table", "beagle")]
        [(1027,), (162,)]
    """
    known = imagenet_labels()
    words = [known.synonyms(unit) for unit in range(len(known))]
    groups, others = imagenet_kinds()
    return Labels([*words, *everyday_words()], groups=groups, preferred=EVERYDAY_UNITS, others=others)


def everyday_words() -> list[list[str]]:
    """The everyday objects in the order of their outputs, each with its synonyms."""
    text = HEADS.joinpath("everyday.txt").read_text(encoding="utf-8")
    return [line.split(", ") for line in text.splitlines()]
