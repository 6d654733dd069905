"""Small networks with random weights, together passing every family of rules; for `golden_maps.py`."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
from conservation.networks import randomise
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

PICTURE = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
WIDTH = 8


def _network(*body: nn.Module, activation: type[nn.Module] = nn.ReLU, biases: bool = False) -> nn.Module:
    """A first layer that is read, a body of that width, and a head."""
    layers = [("first", nn.Conv2d(3, WIDTH, 3, padding=1)), ("active", activation())]
    layers += [(f"body{k}", each) for k, each in enumerate(body)]
    layers += [("pool", nn.AdaptiveAvgPool2d(2)), ("flat", nn.Flatten()), ("head", nn.Linear(4 * WIDTH, 4))]
    network = nn.Sequential(OrderedDict(layers)).eval()
    randomise(network, PICTURE, seed=3, biases=biases)
    return network


def _convolution(groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=groups)


class Beside(nn.Module):
    """Two branches that are added or put side by side."""

    def __init__(self, left: nn.Module, right: nn.Module, *, added: bool) -> None:
        super().__init__()
        self.left, self.right, self.added = left, right, added

    def forward(self, x: Tensor) -> Tensor:
        """Both branches of x."""
        left, right = self.left(x), self.right(x)
        return left + right if self.added else torch.cat([left, right], dim=1)


class Gated(nn.Module):
    """A product with a gate (squeeze and excitation), or of two equals."""

    def __init__(self, *, gate: bool) -> None:
        super().__init__()
        self.one, self.two, self.gate = _convolution(), nn.Conv2d(WIDTH, WIDTH, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        """One factor times the other."""
        if self.gate:
            return self.one(x) * torch.sigmoid(self.two(x.mean((2, 3), keepdim=True)))
        return self.one(x).relu() * self.two(x).relu()


class Attending(nn.Module):
    """Each place takes the mean of all places, weighted by a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.value = nn.Conv2d(WIDTH, 64, 1), nn.Conv2d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Attention over the places of a smaller map."""
        small = functional.adaptive_avg_pool2d(x, 8)
        scores, values = self.score(small).flatten(2).softmax(dim=1), self.value(small).flatten(2)
        return torch.einsum("npq,ncp->ncq", scores, values).view_as(small)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "convolutions and max pooling": lambda: _network(_convolution(), nn.ReLU(), nn.MaxPool2d(2), _convolution()),
    "biases": lambda: _network(_convolution(), nn.ReLU(), _convolution(), nn.ReLU(), biases=True),
    "batch norms": lambda: _network(_convolution(), nn.BatchNorm2d(WIDTH), nn.ReLU(), biases=True),
    "layer and group norms": lambda: _network(
        nn.GroupNorm(2, WIDTH), _convolution(), nn.LayerNorm([WIDTH, 16, 16]), nn.GELU(), activation=nn.GELU
    ),
    "depthwise": lambda: _network(_convolution(WIDTH), nn.ReLU6(), nn.Conv2d(WIDTH, WIDTH, 1), activation=nn.ReLU6),
    "signed activations": lambda: _network(_convolution(), nn.SiLU(), _convolution(), nn.Tanh(), activation=nn.SiLU),
    "a sum of branches": lambda: _network(Beside(_convolution(), nn.Identity(), added=True), nn.ReLU()),
    "branches side by side": lambda: _network(
        Beside(_convolution(), nn.AvgPool2d(3, 1, 1), added=False), nn.Conv2d(2 * WIDTH, WIDTH, 1), nn.ReLU()
    ),
    "a gate": lambda: _network(Gated(gate=True), nn.ReLU()),
    "a product of equals": lambda: _network(Gated(gate=False)),
    "attention": lambda: _network(Attending(), nn.ReLU()),
    "strides and transposed convolutions": lambda: _network(
        nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(WIDTH, WIDTH, 2, stride=2)
    ),
    "interpolation": lambda: _network(nn.Upsample(scale_factor=2, mode="bilinear"), _convolution(), nn.ReLU()),
    "dilated and local response": lambda: _network(
        nn.Conv2d(WIDTH, WIDTH, 3, padding=2, dilation=2), nn.ReLU(), nn.LocalResponseNorm(3)
    ),
}


class SmallTransformer(nn.Module):
    """Patches of 56 pixels and a class token, through four blocks with attention, in single or double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 56, 56)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        blocks = (nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, 0.0, "gelu", 1e-5, True, True) for _ in range(4))
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, images: Tensor) -> Tensor:
        """Logits from the class token."""
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = self.blocks(torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1))
        logits: Tensor = self.head(self.norm(tokens[:, 0]))
        return logits


def transformer() -> nn.Module:
    """The small transformer with random weights."""
    network = SmallTransformer().eval()
    drawn = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=drawn))
    return network
