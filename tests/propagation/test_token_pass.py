"""Tokens as neurons, against the same chain written with explicit matrices in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import excite
from excite.errors import LayerError
from excite.models.tokens import stream_of
from excite.propagation import TokenPass, attention_layers
from excite.propagation.tokens import TokenGrid
from excite.session import Session


class Block(nn.Module):
    """A pre-norm block with fused attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.proj(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A vision transformer of 2 x 2 patches, read at a class token or at the mean of all."""

    def __init__(self, *, heads: int = 2, blocks: int = 3, pooled: bool = False, classes: int = 4) -> None:
        super().__init__()
        width = 4 * heads
        self.pooled = pooled
        self.patches = nn.Conv2d(3, width, 2, 2)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Identity()
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = self.place(torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1))
        tokens = self.norm(self.blocks(tokens))
        answer: Tensor = self.head(tokens.mean(1) if self.pooled else tokens[:, 0])
        return answer


def network(seed: int, **options: object) -> Transformer:
    torch.manual_seed(seed)
    made = Transformer(**options).double().eval()  # type: ignore[arg-type]
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.6)
    return made


def passed(net: Transformer, images: Tensor) -> TokenPass:
    names = ["place", *(f"blocks.{k}" for k in range(len(net.blocks)))]
    edges = [(f"{name}:edges",) for name in names[1:]]
    return TokenPass(net, images, dict(zip(names, [*edges, ()], strict=True)))


# --- the slow twin -------------------------------------------------------------------------------------------------


def held(norm: nn.LayerNorm, tokens: Tensor) -> Tensor:
    """The matrices [T, in, out] of a norm with its deviation held constant."""
    size = tokens.shape[-1]
    deviation = (tokens.var(-1, unbiased=False) + norm.eps).sqrt()
    centred = torch.eye(size, dtype=tokens.dtype) - 1 / size
    return centred[None] * norm.weight / deviation[:, None, None]


def explicit(net: Transformer, image: Tensor, unit: int, sign: int) -> list[Tensor]:
    """The chain of one image, with every direction and every flow as an explicit matrix product; lowest layer first."""
    tokens = net.patches(image[None]).flatten(2).transpose(1, 2)
    tokens = torch.cat([net.first, tokens], 1)[0]
    kept = []
    for block in net.blocks:
        heads = block.heads
        values = block.qkv(block.norm1(tokens)).unflatten(-1, (3, heads, -1))
        q, k, v = values.permute(1, 2, 0, 3)
        weights = torch.softmax(torch.einsum("hid,hjd->hij", q, k) / math.sqrt(q.shape[-1]), -1)
        between = tokens + block.proj(torch.einsum("hij,hjd->ihd", weights, v).flatten(1))
        inner = block.up(block.norm2(between))
        slope = nn.functional.gelu(inner) / inner
        kept.append((tokens, v, weights, between, slope))
        tokens = between + block.down(nn.functional.gelu(inner))
    share = (
        torch.full((len(tokens), 1), 1 / len(tokens)).double() if net.pooled else torch.eye(len(tokens)).double()[:, :1]
    )
    direction = torch.einsum("tio,o,tz->ti", held(net.norm, tokens), net.head.weight[unit], share)
    contributions = (direction * tokens).sum(-1)
    start = (sign * contributions).clamp(min=0)
    start = start if start.sum() > 0 else contributions.abs()
    won = start / start.sum()
    found = [won]
    for block, (before, v, weights, between, slope) in zip(reversed(net.blocks), reversed(kept), strict=True):
        inward = torch.einsum("to,oi->ti", direction, block.down.weight) * slope
        inward = torch.einsum("to,oi->ti", inward, block.up.weight)
        direction = direction + torch.einsum("tio,to->ti", held(block.norm2, between), inward)
        by_head = torch.einsum("to,oi->ti", direction, block.proj.weight).unflatten(-1, (block.heads, -1))
        flow = torch.einsum("hij,ihd,hjd->ij", weights, by_head, v)
        arriving = torch.einsum("hij,ihd->jhd", weights, by_head).flatten(1)
        values = block.qkv.weight[2 * len(block.proj.weight) :]
        direction = direction + torch.einsum("tio,to->ti", held(block.norm1, before), arriving @ values)
        stays = (sign * ((direction * before).sum(-1) - flow.sum(0))).clamp(min=0)
        moves = (sign * flow).clamp(min=0)
        total = stays + moves.sum(1)
        next_won = torch.zeros_like(won)
        for i in range(len(won)):
            if total[i] == 0:
                next_won[i] += won[i]
            else:
                next_won += won[i] * moves[i] / total[i]
                next_won[i] += won[i] * stays[i] / total[i]
        won = next_won
        found.append(won)
    return found[::-1]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    heads=st.integers(1, 3),
    blocks=st.integers(1, 3),
    pooled=st.booleans(),
    unit=st.integers(0, 3),
)
def test_the_chain_is_that_of_explicit_matrices(seed: int, heads: int, blocks: int, pooled: bool, unit: int) -> None:
    net = network(seed, heads=heads, blocks=blocks, pooled=pooled)
    images = torch.randn(2, 3, 4, 6).double()
    forward = passed(net, images)
    assert torch.equal(forward.output, net(images).detach())
    signal = torch.zeros(2, 4).double()
    signal[:, unit] = 1
    plain, contrast = forward.down(signal), forward.down(signal, dual=-1.0)
    with torch.no_grad():
        for k, image in enumerate(images):
            for layer, won, lost in zip(
                forward.stream, explicit(net, image, unit, 1), explicit(net, image, unit, -1), strict=True
            ):
                torch.testing.assert_close(plain[layer][k, :, 0], won, rtol=1e-9, atol=1e-10)
                torch.testing.assert_close(contrast[layer][k, :, 0], won - lost, rtol=1e-9, atol=1e-10)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), pooled=st.booleans())
def test_probabilities_are_conserved_and_contrasts_cancel(seed: int, pooled: bool) -> None:
    forward = passed(network(seed, pooled=pooled), torch.randn(1, 3, 6, 6).double())
    signal = torch.zeros(1, 4).double()
    signal[0, 1], signal[0, 3] = 0.75, 0.25
    for layer, won in forward.down(signal).items():
        assert won.min() >= 0, layer
        assert float(won.sum()) == pytest.approx(1, abs=1e-12)
        assert float(forward.down(signal, dual=-1.0)[layer].sum()) == pytest.approx(0, abs=1e-12)


def test_several_signals_are_each_by_itself_and_negative_units_are_subtracted() -> None:
    forward = passed(network(3), torch.randn(2, 3, 4, 4).double())
    one, other = torch.eye(4).double()[[0, 1]], torch.eye(4).double()[[2, 2]]
    together = forward.down(torch.stack([one, other, one - other]), dual=-1.0)
    for layer, values in together.items():
        alone = [forward.down(each, dual=-1.0)[layer] for each in (one, other)]
        torch.testing.assert_close(values, torch.stack([*alone, alone[0] - alone[1]]))


def test_weights_that_are_not_between_the_tokens_are_refused() -> None:
    net = network(0)
    with pytest.raises(LayerError, match="are not between the tokens"):
        TokenPass(net, torch.randn(1, 3, 4, 4).double(), {"patches": ("blocks.0:edges",), "blocks.0": ()})


# --- where there is such a stream ------------------------------------------------------------------------------------


def test_the_stream_of_a_plain_transformer_is_found_and_read_by_the_methods() -> None:
    net = network(5).float()
    classifier = excite.wrap(net, verify=False)
    session = Session(classifier, {1.0: torch.randn(1, 3, 8, 8)}, [excite.METHODS["mwp"]], layer="blocks.0")
    assert list(session.stream) == ["blocks.0", "blocks.1", "blocks.2"]
    assert isinstance(session.winning(["blocks.0"]), TokenPass)
    maps = session.maps(excite.METHODS["mwp"], [[{1: 1.0}]])["blocks.0"]
    whole = session.winning(["blocks.0"]).readings["blocks.0"].activation
    assert maps.shape == (1, 1, 4, 4)
    assert whole.shape == (1, 17, 8)
    assert 0 < float(maps.sum()) < 1  # the rest is at the class token


def test_other_networks_have_none() -> None:
    net = network(0)
    edges = dict.fromkeys(attention_layers(net, torch.randn(1, 3, 4, 4).double()), torch.Size([1, 2, 5, 5]))
    grid = TokenGrid(2, 2, (-2,), (1, 2, 3, 4), 5)
    grids = {"place": grid, "blocks.0": grid, "blocks.1": grid, "blocks.2": grid}
    calls = [("blocks.0", "linear"), ("patches", "conv2d")]
    stream = stream_of(grids, edges, calls)
    assert list(stream) == list(grids)
    assert stream["blocks.2"] == ()
    assert stream_of(grids, edges, [*calls, ("blocks.1.local", "conv2d")]) == {}  # tokens mix beside attention
    assert stream_of(grids, edges | {"blocks.1:edges": torch.Size([4, 2, 3, 3])}, calls) == {}  # windows
    assert stream_of(grids, edges | {"blocks.1:edges": torch.Size([1, 2, 5, 2])}, calls) == {}  # fewer keys
    assert stream_of({}, edges, calls) == {}
    assert stream_of(grids, {}, calls) == {}
