"""Rows about what stands around the maps: words, boxes, files, licences."""

from __future__ import annotations

from importlib.metadata import metadata
from typing import TYPE_CHECKING

from peers.cells import Row, yes
from peers.declared import declares

from excite.vocabulary import imagenet_labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers.asking import Peer

__all__ = ["ROWS"]

LICENCES = {  # what a package's own description says, and how it is written here
    "Apache-2.0": "Apache-2.0",
    "BSD-3": "BSD-3",
    "LGPLv3": "LGPL-3",
    "Noncommercial": "CC BY-NC 4.0",
    "MIT": "MIT",
}


def offers(names: str) -> Callable[[Peer], str]:
    """Whether it declares anything of such a name."""
    return lambda peer: yes(declares(peer, names))


def licence(peer: Peer) -> str:
    """As it says itself, in short."""
    about = metadata(peer.distribution)
    said = [about["License-Expression"], about["License"], *(about.get_all("Classifier") or [])]
    return next(short for words, short in LICENCES.items() if any(words in (text or "") for text in said))


def words(peer: Peer) -> str:
    """Whether a word that is no label finds its classes: ImageNet has no dog."""
    if peer.name == "excite":
        return yes(len(imagenet_labels().find("dog").units) > 100)
    return yes(declares(peer, r"wordnet|synset|lemma|vocabulary|hypernym"))


ROWS = (
    Row("licence", licence),
    Row("winners drawn, the Markov chain", offers(r"winner|markov|absorbing|transition_matrix")),
    Row("words find classes", words),
    Row("point and box of a map", offers(r"^(point|box|bounding_?box)$")),
    Row("Pointing Game on data sets", offers(r"pointing")),
    Row("maps as ONNX files", offers(r"onnx")),
)
