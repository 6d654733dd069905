"""Output layers of one network on top of each other: an image goes through once, and all of them answer."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import torch

from excite.models.architectures.efficientnet_lite0 import EfficientNetLite0, efficientnet_lite0
from excite.models.weights import fill
from excite.vocabulary import Labels, imagenet_labels
from excite.vocabulary.imagenet import imagenet_kinds

if TYPE_CHECKING:
    from collections.abc import Sequence


HEADS = files("excite.models.architectures").joinpath("heads")  # the trained output layers, with their labels


def stacked(heads: Sequence[str]) -> EfficientNetLite0:
    """The embedded network with ImageNet's output layer, and the named ones of `HEADS` below it.

    Example:
        >>> stacked(["everyday"]).classifier.out_features
        1080
    """
    from safetensors.torch import load

    tensors = dict(efficientnet_lite0().state_dict())
    for head in heads:
        for name, rows in load(HEADS.joinpath(f"{head}.safetensors").read_bytes()).items():
            tensors[f"classifier.{name}"] = torch.cat([tensors[f"classifier.{name}"], rows.float()])
    with torch.device("meta"):
        network = EfficientNetLite0(len(tensors["classifier.bias"]))
    fill(network, tensors, str(HEADS))
    return network


# The embedded classifier with 80 everyday objects beside ImageNet's 1000 classes: two output layers in one.
#
# The second output layer was fine-tuned on images of COCO, where several objects may be there at once; so its
# outputs are independent of each other, while of ImageNet's exactly one is true. ``recipes/everyday_head.py`` trains
# it.

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


# The embedded classifier for phrases: words people use for images, beside everyday objects and ImageNet's classes.
#
# The third output layer was trained on the words of captions: people ("woman", "boy", "skier"), scenes, materials,
# colours and what is being done. ``recipes/words_head.py`` makes it of what ``excite train tags`` trained.


def words() -> EfficientNetLite0:
    """The network with the weights of all three output layers, ready to be asked."""
    return stacked(["everyday", "words"])


@cache
def words_labels() -> Labels:
    """The labels of `everyday`, then the words of captions; a word that both have means both, and the image decides.

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
