"""Small vision transformers for the tests of methods, written by hand: their weights of attention can be had."""

import networks
import torch
from networks import CLASSES
from torch import nn
from torch.nn import functional

CHANNELS, HEADS, PATCH = 8, 2, 4
HEIGHT, WIDTH = 2, 3  # of the grid of tokens


class Attention(nn.Module):
    """Attention between all tokens; ``weigh`` makes weights of scores."""

    def __init__(self, fused, weigh, bias):
        super().__init__()
        self.fused, self.weigh, self.weights = fused, weigh, None
        self.qkv, self.proj = (nn.Linear(CHANNELS, n * CHANNELS, bias=bias) for n in (3, 1))

    def forward(self, x):
        heads = self.qkv(x).unflatten(-1, (3, HEADS, CHANNELS // HEADS)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        else:
            self.weights = self.weigh(query * (CHANNELS // HEADS) ** -0.5 @ key.transpose(-2, -1))
            mixed = self.weights @ value
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, *about):
        super().__init__()
        *_, bias = about
        self.attention = Attention(*about)
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS, bias=bias) for _ in range(2))
        act = nn.GELU()
        self.mlp = nn.Sequential(nn.Linear(CHANNELS, 12, bias=bias), act, nn.Linear(12, CHANNELS, bias=bias))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    """The classifier reads a class token, or the mean of all others."""

    def __init__(self, pooled=False, *, fused=False, weigh=None, bias=True):
        super().__init__()
        self.pooled = pooled
        self.patches = nn.Conv2d(3, CHANNELS, PATCH, PATCH, bias=bias)
        self.first = None if pooled else nn.Parameter(torch.ones(1, 1, CHANNELS).cumsum(-1))
        self.position = nn.Parameter(torch.zeros(1, HEIGHT * WIDTH + (not pooled), CHANNELS)) if bias else 0
        self.blocks = nn.ModuleList(Block(fused, weigh or nn.Softmax(-1), bias) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(CHANNELS, bias=bias), nn.Linear(CHANNELS, CLASSES, bias=bias)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        if not self.pooled:
            x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        x = x + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(1) if self.pooled else x[:, 0])


def made(kind):
    """With smaller weights, so that attention is spread over several tokens."""
    network = networks.made(kind)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.4)
    return network


def images(count=2):
    values = torch.rand(count, 3, HEIGHT * PATCH, WIDTH * PATCH, generator=torch.Generator().manual_seed(1))
    return values.double() - 0.5
