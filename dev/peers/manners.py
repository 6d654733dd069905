"""Rows about manners: what happens to somebody's network, and what a question costs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from peers.asking import one_hot, part, tapped, zennit_composite
from peers.cells import Row, attempt, yes
from peers.networks import CLASSES, KNOWN, Plain, known, made, picture
from torch import Tensor, nn

from excite.propagation import mwp

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers.asking import Peer

__all__ = ["ROWS"]


def grad_cam(network: nn.Module, layer: nn.Module, shown: Tensor, targets: list[Callable[[Tensor], Tensor]]) -> Tensor:
    """The map of the package grad-cam, which stands for its other methods here."""
    with part("pytorch_grad_cam").GradCAM(model=network, target_layers=[layer]) as method:
        return torch.from_numpy(method(input_tensor=shown, targets=targets))


def _unit(unit: int) -> Callable[[Tensor], Tensor]:
    return lambda output: output[unit]


def _contrastive(network: nn.Module, shown: Tensor) -> None:
    """Also the contrastive map, where there is one."""
    part("torchray.attribution.excitation_backprop").contrastive_excitation_backprop(
        network, shown, 1, "act_1", "act_3", "classifier"
    )


def left_as_found(peer: Peer) -> str:
    """What is different about a network in training, with one weight frozen, after it was asked for a map."""
    network, shown = made(Plain()).train(), picture()
    network.first.weight.requires_grad_(requires_grad=False)
    logits, before = network(shown).detach(), _looks(network)
    if peer.excitation is None:
        grad_cam(network, network.act_2, shown, [_unit(1)])
    else:
        peer.excitation(network, shown, 1)
    if peer.name == "excite":
        mwp(network, shown, 1, layer="act_1", contrastive=True)
    if peer.name == "TorchRay":
        _contrastive(network, shown)
    after = _looks(network)
    changed = [look for look in before if before[look] != after[look]]
    if not torch.equal(network(shown), logits):
        changed.append("answers")
    return f"no: {', '.join(changed)}" if changed else "yes"


def _looks(network: nn.Module) -> dict[str, Any]:
    """What somebody could notice about a network."""
    modules, weights = dict(network.named_modules()), dict(network.named_parameters())
    return {
        "training": [module.training for module in modules.values()],
        "frozen weights": [weight.requires_grad for weight in weights.values()],
        "gradients": [weight.grad is None for weight in weights.values()],
        "weights": [weight.detach().numpy().tobytes() for weight in weights.values()],
        "hooks": [len(found) for module in modules.values() for key, found in vars(module).items() if "_hooks" in key],
        "attributes": [sorted(vars(module)) for module in modules.values()],
        "modules": [(name, type(module)) for name, module in modules.items()],
    }


def in_place(peer: Peer) -> str:
    """Whether ResNet-18 as torchvision ships it has the map of its copy in which nothing works in place."""
    shown = picture(KNOWN["resnet18"][1])

    def ask(network: nn.Module) -> Tensor:
        if peer.excitation is None:
            return grad_cam(network, network.layer3, shown, [_unit(1)])
        return peer.excitation(network, shown, 1)

    def compare() -> str:
        maps = [ask(copy.deepcopy(known("resnet18", in_place=found))) for found in (True, False)]
        return "yes" if torch.allclose(*maps) else "no: another map"

    answer = attempt(compare)
    return f"no: {answer}" if answer.endswith("Error") else answer


class Counted(Plain):
    """Counts the images that it looks at."""

    seen = 0

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        self.seen += len(x)
        return super().forward(x)


def looks_for_five(peer: Peer) -> str:
    """How many times the image goes up through the network for the maps of five concepts, where it is asked best."""
    network, shown, units = made(Counted()), picture(), range(CLASSES)
    alone = peer.excitation and [peer.excitation(copy.deepcopy(network), shown, unit) for unit in units]
    network.seen = 0
    if peer.name == "excite":
        together = mwp(tapped(network), shown, torch.eye(CLASSES, dtype=shown.dtype)[:, None], layer="tap")
    elif peer.name == "zennit":
        with zennit_composite(network).context(network) as ruled:
            entered = shown.clone().requires_grad_()
            output = ruled(entered)
            together = [
                torch.autograd.grad(output, entered, one_hot(output, unit), retain_graph=True)[0] for unit in units
            ]
    elif peer.excitation is None:
        grad_cam(network, network.act_2, shown.expand(CLASSES, -1, -1, -1), [_unit(unit) for unit in units])
        return str(network.seen)
    else:
        together = [peer.excitation(network, shown, unit) for unit in units]
        if peer.name == "captum":
            network.seen -= CLASSES  # the logit, which we look up ourselves
    right = all(torch.allclose(one, other) for one, other in zip(together, alone, strict=True))
    return str(network.seen) if right else "other maps"


def several_units(peer: Peer) -> str:
    """Whether a signal can start at several output units with weights, and gives the weighted sum of their maps."""
    network, shown = made(Plain()), picture()
    signal = torch.tensor([[0.75, 0.0, 0.25, 0.0, 0.0]], dtype=shown.dtype)
    asks: dict[str, Callable[[], Any]] = {
        "excite": lambda: mwp(tapped(network), shown, signal, layer="tap"),
        "captum": lambda: part("captum.attr").LRP(network).attribute(shown.clone(), target=signal),
        "zennit": lambda: part("zennit.attribution").Gradient(network, zennit_composite(network), attr_output=signal)(
            shown.clone()
        )[1],
        "TorchRay": lambda: part("torchray.attribution.excitation_backprop").excitation_backprop(
            tapped(network), shown.clone(), signal, "tap", gradient_to_saliency=lambda layer: layer.grad
        ),
        "grad-cam": lambda: grad_cam(network, network.act_2, shown, [lambda output: (signal[0] * output).sum()]),
    }

    def compare() -> str:
        found = asks[peer.name]()
        if peer.excitation is None:
            return yes(found.isfinite().all())
        apart = [peer.excitation(copy.deepcopy(network), shown, unit) for unit in (0, 2)]
        return yes(torch.allclose(found.detach(), 0.75 * apart[0] + 0.25 * apart[1]))

    answer = attempt(compare)
    return "no" if answer.endswith("Error") else answer


ROWS = (
    Row("the network is left as found", left_as_found),
    Row("works with in-place ReLU and `+=`", in_place, quick=False),
    Row("forward passes for five concepts", looks_for_five),
    Row("a signal over several output units", several_units),
)
