"""The embedded classifier for phrases: words people use for pictures, beside everyday objects and ImageNet's classes.

The third output layer was trained on the words of captions: people ("woman", "boy", "skier"), scenes, materials,
colours and what is being done. ``recipes/words_head.py`` makes it of what ``excite train tags`` trained.
"""

from functools import cache

from excite.models.architectures.efficientnet_lite0 import EfficientNetLite0
from excite.models.architectures.embedded import HEADS, stacked
from excite.models.architectures.everyday_init import EVERYDAY_UNITS, everyday_labels
from excite.vocabulary import Labels
from excite.vocabulary.imagenet import imagenet_kinds

__all__ = ["WORDS_UNITS", "words", "words_labels"]


def words() -> EfficientNetLite0:
    """The network with the weights of all three output layers, ready to be asked."""
    return stacked(["everyday", "words"])


@cache
def words_labels() -> Labels:
    """The labels of `everyday`, then the words of captions; a word that both have means both, and the picture decides.

    Example:
        >>> [len(words_labels().word(word).units) for word in ("woman", "grassy", "beagle")]  # a woman is a person too
        [2, 1, 1]
    """
    known = everyday_labels()
    groups, others = imagenet_kinds()
    entries = [known.synonyms(unit) for unit in range(len(known))]
    return Labels([*entries, *caption_words()], groups=groups, preferred=WORDS_UNITS, others=others)


@cache
def caption_words() -> tuple[str, ...]:
    """The words of captions, in the order of their outputs."""
    return tuple(HEADS.joinpath("words.txt").read_text(encoding="utf-8").splitlines())


WORDS_UNITS = range(EVERYDAY_UNITS.start, EVERYDAY_UNITS.stop + len(caption_words()))
