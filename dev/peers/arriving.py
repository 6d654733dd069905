"""Rows about well-known networks: how much of a signal of 1 arrives at the image, and is it at the right places?

All have random weights, batch norms with scales of both signs and no biases, so that nothing may be lost on the way.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from conservation.networks import fold_norms
from peers.cells import NONE, Row, attempt, mass_cell, number
from peers.networks import KNOWN, known, picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers.asking import Peer
    from torch import Tensor, nn

__all__ = ["ROWS"]


def arrives(name: str) -> Callable[[Peer], str]:
    """How much of a signal of 1 comes down to the image through a well-known network."""

    def check(peer: Peer) -> str:
        if peer.excitation is None:
            return NONE
        network = copy.deepcopy(known(name))
        return attempt(lambda: mass_cell(_of_known(peer, network, name)), network)

    return check


def moves(name: str) -> Callable[[Peer], str]:
    """How far (L1) its map moves when the norms' scales are put into the convolutions, which changes no answer."""

    def check(peer: Peer) -> str:
        if peer.excitation is None:
            return NONE
        folded = copy.deepcopy(known(name))
        fold_norms(folded, picture(KNOWN[name][1]))
        maps = [_of_known(peer, network, name) for network in (copy.deepcopy(known(name)), folded)]
        moved = float((maps[0] - maps[1]).abs().sum())
        return "0" if moved < 1e-4 else number(moved)

    return check


def _of_known(peer: Peer, network: nn.Module, name: str) -> Tensor:
    shown = picture(KNOWN[name][1])
    return peer.excitation(network, shown, int(network(shown).argmax()))


ROWS = (
    Row("GoogLeNet, norms folded: map moves by", moves("googlenet"), quick=False),
    Row("ResNet-50: arrives of 1", arrives("resnet50"), quick=False),
    Row("Inception v3: arrives of 1", arrives("inception_v3"), quick=False),
    Row("DenseNet-121: arrives of 1", arrives("densenet121"), quick=False),
    Row("EfficientNet-Lite0: arrives of 1", arrives("efficientnet-lite0"), quick=False),
)
