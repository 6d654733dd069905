"""Rows about Excitation Backprop itself: is it there, and are its maps right?"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from peers.asking import one_hot, part, tapped, zennit_composite
from peers.cells import NONE, Row, attempt, error_cell, mass_cell, yes
from peers.declared import declares
from peers.matrices import winners
from peers.networks import CLASSES, Added, Normed, Plain, Signed, Small, made, picture
from peers.strange import STRANGE, Stacked, Strange
from torch import Tensor, nn

from excite.propagation import mwp

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers.asking import Peer

__all__ = ["ROWS"]


def has_it(peer: Peer) -> str:
    """By name; or by the numbers, where another rule is the same."""
    if declares(peer, r"excitation_?backprop$|^mwp$"):
        return "yes"
    return "as LRP, alpha 1, beta 0" if agrees(Plain)(peer) == "exact" else "no"


def contrastive(peer: Peer) -> str:
    """Its contrastive map of the plain network, its positive part summed over channels."""
    network, shown, unit = made(Plain()), picture(), 1
    expected = winners(network, shown, unit, contrastive=True).sum(dim=1, keepdim=True).clamp(min=0)
    if peer.name == "excite":
        found = mwp(tapped(network), shown, unit, layer="tap", contrastive=True).sum(dim=1, keepdim=True).clamp(min=0)
        return error_cell(found, expected)
    if not declares(peer, r"contrastive"):
        return "no"
    found = _torchray().contrastive_excitation_backprop(
        tapped(network), shown, unit, "tap", "network.act_3", "network.classifier"
    )
    return error_cell(found, expected)


def any_layer(peer: Peer) -> str:
    """Whether a layer inside can be named and is answered for in its own shape; of zennit, whether a hook can do it."""
    network, shown = made(Plain()), picture()
    asks: dict[str, Callable[[], Tensor]] = {
        "excite": lambda: mwp(network, shown, 1, layer="act_1"),
        "captum": lambda: (
            part("captum.attr")
            .LayerLRP(network, network.second)  # of a ReLU it fails; this is the layer that reads it
            .attribute(shown, target=1, attribute_to_layer_input=True)
        ),
        "zennit": lambda: _zennit_at(network, network.act_1, shown),
        "TorchRay": lambda: _torchray().excitation_backprop(network, shown, 1, "act_1"),
    }
    if peer.name not in asks:
        return NONE
    reached = asks[peer.name]().shape in {(1, 4, 8, 8), (1, 1, 8, 8)}
    return "by a hook" if peer.name == "zennit" and reached else yes(reached)


def _torchray() -> Any:
    return part("torchray.attribution.excitation_backprop")


def _zennit_at(network: nn.Module, layer: nn.Module, shown: Tensor) -> Tensor:
    """Its attributors answer for the image only."""
    kept: list[Tensor] = []
    with zennit_composite(network).context(network) as ruled:
        layer.register_forward_hook(lambda _module, _inputs, answer: kept.append(answer))
        output = ruled(shown)
        return torch.autograd.grad(output, kept[0], one_hot(output, 1))[0]


def agrees(kind: Callable[[], Small], *, defaults: bool = False) -> Callable[[Peer], str]:
    """The largest error of any of its maps of a small network, one for each output unit."""

    def check(peer: Peer) -> str:
        if peer.excitation is None:
            return NONE
        network, shown = made(kind()), picture()
        expected = torch.cat([winners(network, shown, unit) for unit in range(CLASSES)])
        ask = lambda: torch.cat(  # noqa: E731 - it is only tried
            [peer.excitation(copy.deepcopy(network), shown, unit, defaults=defaults) for unit in range(CLASSES)]
        )
        return attempt(lambda: error_cell(ask(), expected), network)

    return check


def added(peer: Peer) -> str:
    """With ``+`` as people write it, and with the module that the package has in its stead."""
    plain = agrees(Added)(peer)
    if plain in {"exact", NONE}:
        return plain
    modules: dict[str, Callable[[], Callable[[Tensor, Tensor], Tensor]]] = {
        "captum": lambda: part("captum.attr._utils.custom_modules").Addition_Module(),
        "zennit": lambda: Stacked(part("zennit.layer").Sum()),
        "TorchRay": lambda: _torchray().EltwiseSum(),
    }
    own = agrees(lambda: Added(modules[peer.name]()))(peer)
    return f"{plain} (own module: {own})"


def signed(peer: Peer) -> str:
    """What arrives of 1, without biases: of all output units the worst."""
    if peer.excitation is None:
        return NONE
    network = made(Signed(), biases=False)

    def worst() -> str:
        maps = [peer.excitation(copy.deepcopy(network), picture(), unit) for unit in range(CLASSES)]
        return mass_cell(max(maps, key=lambda found: abs(float(found.sum()) - 1)))

    return attempt(worst, network)


def unknown(peer: Peer) -> str:
    """How many of three such operations it refuses to explain."""
    if peer.excitation is None:
        return NONE
    networks = [made(Strange(function)) for function in STRANGE]
    answers = [attempt(lambda net=net: mass_cell(peer.excitation(net, picture(), 1))) for net in networks]
    refused, failed = (sum(word in answer for answer in answers) for word in ("refused", "Error"))
    return f"{refused} of {len(answers)}" + (f", {failed} fail" if failed else "")  # all others have a map


ROWS = (
    Row("has it", has_it),
    Row("contrastive: error", contrastive),
    Row("read at any layer", any_layer),
    Row("plain network, as shipped: error", agrees(Plain, defaults=True)),
    Row("plain network, best options: error", agrees(Plain)),
    Row("negative batch norm scales: error", agrees(Normed)),
    Row("a sum of two branches: error", added),
    Row("SiLU: arrives of 1", signed),
    Row("operations without a rule refused", unknown),
)
