"""The networks of the comparison: small ones whose matrices can be written down, and well-known ones."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from conservation.networks import randomise
from speed_peers import private_copy
from torch import Tensor, nn
from torch.nn import functional

from excite.models import load
from excite.models.sources import torchvision_models

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KNOWN", "Added", "Called", "Normed", "Plain", "Signed", "Small", "known", "made", "picture"]

CLASSES = 5
SIDE = 8


class Small(nn.Module):
    """Features below two full connections; every ReLU is a module that is used once, as most packages need it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act_1 = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()
        self.second, self.act_2 = nn.Conv2d(4, 6, 3, padding=1), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.hidden, self.act_3 = nn.Linear(6 * 16, 12), nn.ReLU()
        self.classifier = nn.Linear(12, CLASSES)

    def features(self, x: Any) -> Any:
        """The part that differs."""
        return self.act_2(self.second(self.act_1(self.first(x))))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.classifier(self.act_3(self.hidden(self.pool(self.features(x)).flatten(1))))

    def folded(self) -> Small:
        """The same function without norms; what has none is its own."""
        return self

    def matrices(self, units: Any, steps: Any) -> Any:
        """The way up to the classifier's input, as `peers.matrices` takes it."""
        one = steps.relu(steps.layer(units, self.first))
        two = steps.max_pool(steps.relu(steps.layer(one, self.second)), 2)
        return steps.relu(steps.layer(steps.flat(two), self.hidden))


class Plain(Small):
    """Convolutions, ReLUs, pooling, full connections, all with biases."""


class Called(Small):
    """The same, with ReLUs called as functions."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        features = functional.relu(self.second(functional.relu(self.first(x))))
        return self.classifier(functional.relu(self.hidden(self.pool(features).flatten(1))))


class Normed(Small):
    """A batch norm behind each convolution, some of whose scales are negative."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)),
            nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6)),
        )

    def folded(self) -> Small:
        """The norms' scales and shifts put into the convolutions, which changes no answer."""
        plain = copy.deepcopy(self)
        plain.first, plain.second = (
            torch.nn.utils.fusion.fuse_conv_bn_eval(*pair) for pair in (plain.first, plain.second)
        )
        return plain


class Added(Small):
    """Two branches, both never negative, are added: as ``one + other``, or by a module of a package."""

    def __init__(self, add: Callable[[Tensor, Tensor], Tensor] = torch.add) -> None:
        super().__init__()
        self.other, self.act_4 = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU()
        self.add = add

    def features(self, x: Any) -> Any:
        """The sum."""
        return self.add(super().features(x), self.act_4(self.other(x)))

    def matrices(self, units: Any, steps: Any) -> Any:
        """The same in matrices."""
        one = steps.relu(steps.layer(steps.relu(steps.layer(units, self.first)), self.second))
        added = steps.added(one, steps.relu(steps.layer(units, self.other)))
        return steps.relu(steps.layer(steps.flat(steps.max_pool(added, 2)), self.hidden))


class Signed(Small):
    """SiLU in the place of ReLU, without biases: responses of both signs."""

    def __init__(self) -> None:
        super().__init__()
        self.act_1, self.act_2, self.act_3 = nn.SiLU(), nn.SiLU(), nn.SiLU()


def made(network: nn.Module, *, biases: bool = True) -> nn.Module:
    """The network with weights of both signs, always the same."""
    generator = torch.Generator().manual_seed(0)
    network = network.double().eval()
    with torch.no_grad():
        for name, weight in [*network.named_parameters(), *network.named_buffers()]:
            if name.endswith("running_var"):
                weight.uniform_(0.5, 2.0, generator=generator)
            elif weight.is_floating_point():
                weight.copy_(torch.randn(weight.shape, generator=generator))
            if name.endswith("bias") and not biases:
                weight.zero_()
    return network


def picture(side: int = SIDE) -> Tensor:
    """An image that is never negative."""
    return torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


KNOWN = {  # how torchvision is asked for each, and the side of its image, small because maps are not looked at
    "googlenet": ({"aux_logits": False, "init_weights": False}, 64),
    "resnet50": ({}, 64),
    "resnet18": ({}, 64),
    "inception_v3": ({"aux_logits": False, "init_weights": False}, 96),
    "densenet121": ({}, 64),
    "efficientnet-lite0": ({}, 64),
}


@cache
def known(name: str, *, in_place: bool = False) -> nn.Module:
    """A well-known network with random weights: norms with scales of both signs, and nothing added by biases.

    It is kept: ask for maps of a copy.
    """
    if in_place:
        options, side = KNOWN[name]
        network = load(name, weights="random").module if "-" in name else _of_torchvision(name, options)
        network = network.double().eval()
        randomise(network, picture(side), seed=0)
        return network
    return private_copy(known(name, in_place=True))


def _of_torchvision(name: str, options: dict[str, bool]) -> nn.Module:
    network: nn.Module = torchvision_models().get_model(name, weights=None, **options)
    if hasattr(network, "transform_input"):
        network.transform_input = False  # it would make the image negative
    return network
