"""AttnLRP of excite beside its authors' package lxt (explicit rules) and zennit's gamma, on a small transformer.

python dev/compare_lxt.py   # needs: pip install lxt zennit

Every operation of the network is written with lxt's functions, whose gradient is the relevance itself; weights follow
zennit's epsilon or gamma rule, as lxt recommends for vision transformers. Prints the largest difference of the
relevance of pixels, in parts of the largest, and fails above 1e-6.
"""

import sys
from functools import partial

import torch
from lxt.explicit import functional as lxt_functional
from lxt.explicit import rules as lxt_rules
from torch import Tensor, nn

from excite.models.sources import torchvision_models
from excite.propagation import Gradients
from excite.propagation.gradients import Gamma

torchvision_models()  # zennit imports torchvision, and fails where its operators do not fit this torch

from zennit import composites, rules  # noqa: E402 - see above

TINY, TOLERANCE = 1e-12, 1e-6
CHANNELS, HEADS, PATCH, CLASSES = 12, 3, 4, 5


class Plain:
    """The operations as torch has them."""

    add, softmax, matmul = torch.add, partial(torch.softmax, dim=-1), torch.matmul
    scale, activation = torch.mul, nn.GELU
    norm = staticmethod(lambda norm, x: norm(x))


class Peer:
    """The same with lxt's rules."""

    add = partial(lxt_functional.add2, epsilon=TINY)
    softmax = partial(lxt_functional.softmax, dim=-1)
    matmul = partial(lxt_functional.matmul, epsilon=TINY)
    scale = lxt_functional.mul2
    activation = staticmethod(lambda: lxt_rules.IdentityRule(nn.GELU()))
    norm = staticmethod(
        lambda norm, x: lxt_functional.layer_norm_grad_fn.apply(x, norm.weight, norm.bias, norm.eps, TINY)
    )


class Transformer(nn.Module):
    """Two blocks between all tokens, a class token, positions, biases everywhere."""

    def __init__(self, operations: type[Plain] | type[Peer]) -> None:
        super().__init__()
        self.operations = operations
        self.patches = nn.Conv2d(3, CHANNELS, PATCH, PATCH)
        self.first, self.position = nn.Parameter(torch.ones(1, 1, CHANNELS)), nn.Parameter(torch.ones(1, 7, CHANNELS))
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(5))
        self.qkv = nn.ModuleList(nn.Linear(CHANNELS, 3 * CHANNELS) for _ in range(2))
        self.proj = nn.ModuleList(nn.Linear(CHANNELS, CHANNELS) for _ in range(2))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(CHANNELS, 20), operations.activation(), nn.Linear(20, CHANNELS)) for _ in range(2)
        )
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        run = self.operations
        x = torch.cat([self.first.expand(len(images), -1, -1), self.patches(images).flatten(2).transpose(1, 2)], 1)
        x = run.add(x, self.position.expand_as(x))
        for k in range(2):
            heads = self.qkv[k](run.norm(self.norms[2 * k], x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            scores = run.matmul(run.scale(heads[0], (CHANNELS / HEADS) ** -0.5), heads[1].transpose(-2, -1))
            mixed = run.matmul(run.softmax(scores), heads[2]).transpose(1, 2).flatten(2)
            x = run.add(x, self.proj[k](mixed))
            x = run.add(x, self.mlp[k](run.norm(self.norms[2 * k + 1], x)))
        return self.head(run.norm(self.norms[4], x)[:, 0])


def difference(gamma: Gamma) -> float:
    """The largest difference of the two, in parts of the largest relevance."""
    generator = torch.Generator().manual_seed(0)
    network, peer = Transformer(Plain).double().eval(), Transformer(Peer).double().eval()
    for mine, other in zip(network.parameters(), peer.parameters(), strict=True):
        mine.data.copy_(0.4 * torch.randn(mine.shape, generator=generator))
        other.data.copy_(mine.data)
    images = torch.randn(2, 3, 2 * PATCH, 3 * PATCH, generator=generator, dtype=torch.float64)
    gradients = Gradients(network, images, ["input"])
    signal = torch.zeros_like(gradients.output)
    signal[:, 2] = 1.0
    found = gradients.down(signal, "attn-lrp", epsilon=TINY, gamma=gamma)["input"]

    def rule(value: float) -> rules.BasicHook:
        return rules.Gamma(value, stabilizer=TINY) if value else rules.Epsilon(TINY)

    pixels = images.clone().requires_grad_()
    kinds = [(nn.Conv2d, rule(gamma.convolution)), (nn.Linear, rule(gamma.dense))]
    with composites.LayerMapComposite(kinds).context(peer) as explained:
        (expected,) = torch.autograd.grad(explained(pixels), pixels, signal)
    return float((found - expected).abs().max() / expected.abs().max())


def main() -> None:
    """Compare the epsilon rule and several gammas."""
    found = {gamma: difference(gamma) for gamma in (Gamma(), Gamma(0.25, 0.05), Gamma(1.0, 1.0))}
    for gamma, each in found.items():
        print(f"gamma of convolutions {gamma.convolution:g}, of dense layers {gamma.dense:g}: {each:.1e}")
    if max(found.values()) > TOLERANCE:
        sys.exit("excite and lxt differ")


if __name__ == "__main__":
    main()
