"""Layers of tokens and layers with channels last are read as maps: each value where its patch of the image is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from zoo import timm_models, torchvision_models

import excite
from excite.errors import LayerError
from excite.models.layers import (
    candidate_layers,
    default_layer,
    layer_grids,
    layer_pair,
    outline,
    spatial_layers,
    top_layer,
)
from excite.models.sources import timm_card
from excite.propagation.tokens import TokenGrid

PATCH, CHANNELS = 4, 6


class Block(nn.Module):
    """Attention beside a residual, by torch's function or by hand; ``mixing=False`` leaves each token alone."""

    def __init__(self, mixing=True, by_hand=False):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, 3 * CHANNELS)
        self.proj, self.mixing, self.by_hand = nn.Linear(CHANNELS, CHANNELS), mixing, by_hand

    def forward(self, x):
        images, tokens, channels = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(images, tokens, 3, 2, channels // 2).permute(2, 0, 3, 1, 4).unbind(0)
        if self.by_hand:
            v = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        elif self.mixing:
            v = functional.scaled_dot_product_attention(q, k, v)
        return x + self.proj(v.transpose(1, 2).reshape(images, tokens, channels))


class Transformer(nn.Module):
    """Patches, ``before`` and ``after`` further tokens, blocks; answers by its first token or by the mean of all."""

    def __init__(self, before=1, after=0, blocks=3, pooled=False, **options):
        super().__init__()
        self.patches = nn.Conv2d(3, CHANNELS, PATCH, PATCH)
        self.extra = nn.Parameter(torch.randn(1, before + after, CHANNELS))
        self.before, self.pooled = before, pooled
        self.blocks = nn.Sequential(*(Block(**options) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, 5)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        extra = self.extra.expand(len(x), -1, -1)
        x = torch.cat([extra[:, : self.before], x, extra[:, self.before :]], 1)
        x = self.norm(self.blocks(x))
        return self.head(x.mean(1) if self.pooled else x[:, 0])


class Windows(nn.Module):
    """Windows of a shifted map [N, h, w, C] through a layer of their own and back, then four positions merged.

    Windows that were shifted are followed by the residual beside them, others also without it.
    """

    def __init__(self, size, shift):
        super().__init__()
        self.patches, self.inside = nn.Conv2d(3, CHANNELS, PATCH, PATCH), nn.Linear(CHANNELS, CHANNELS)
        self.back, self.merged = nn.Identity(), nn.Linear(4 * CHANNELS, CHANNELS)
        self.size, self.shift, self.head = size, shift, nn.Linear(CHANNELS, 5)

    def forward(self, pictures):
        x, side = self.patches(pictures).permute(0, 2, 3, 1), self.size
        n, h, w, c = x.shape
        residual = x if self.shift else 0
        x = x.roll((-self.shift, -self.shift), (1, 2))
        x = x.view(n, h // side, side, w // side, side, c).transpose(2, 3).reshape(-1, side * side, c)
        x = self.inside(x).view(n, h // side, w // side, side, side, c).transpose(2, 3).reshape(n, h, w, c)
        x = self.back(residual + x.roll((self.shift, self.shift), (1, 2)))
        x = self.merged(torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1))
        return self.head(x.mean((1, 2)))


def changed(network, layer, size, row, column, patch=PATCH):
    """Where a layer's map changes with one patch of the image."""
    outputs = []
    hook = network.get_submodule(layer).register_forward_hook(lambda _module, _given, answer: outputs.append(answer))
    pictures = torch.rand(2, 3, *size)
    (grid,) = layer_grids(excite.wrap(network), [layer], pictures).values()
    outputs.clear()
    other = pictures.clone()
    other[:, :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch] += 1
    with hook, torch.no_grad():
        network(pictures)
        network(other)
    one, two = map(grid.as_map, outputs)
    assert one.shape == (2, outputs[0].shape[grid.channels], grid.height, grid.width)
    return (one - two).abs().amax((0, 1)).nonzero().tolist()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 3), st.integers(0, 2), st.integers(2, 5), st.integers(2, 5), st.data())
def test_a_token_is_where_its_patch_is(before, after, height, width, data):
    """With class, distillation and register tokens before and behind, also where there are as many as in a square."""
    network = Transformer(before, after, blocks=1, mixing=False, pooled=True).eval()
    place = data.draw(st.tuples(st.integers(0, height - 1), st.integers(0, width - 1)))
    size = (height * PATCH, width * PATCH)
    assert changed(network, "blocks.0", size, *place) == [list(place)]
    (grid,) = layer_grids(excite.wrap(network), ["norm"], torch.zeros(1, 3, *size)).values()
    assert (grid.count, len(grid.other_tokens)) == (before + height * width + after, before + after)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([2, 3, 4]), st.integers(0, 3), st.integers(1, 2), st.integers(1, 2), st.data())
def test_windows_and_merged_positions_are_where_they_were(side, shift, down, across, data):
    network, sides = Windows(side, shift).eval(), (2 * side * down, 2 * side * across)
    row, column = data.draw(st.tuples(*(st.integers(0, each - 1) for each in sides)))
    size = (sides[0] * PATCH, sides[1] * PATCH)
    assert changed(network, "back", size, row, column) == [[row, column]]
    assert changed(network, "merged", size, row, column) == [[row // 2, column // 2]]
    with pytest.raises(LayerError, match=r"'inside' is no map: .*; layers that are maps: patches, back, merged"):
        changed(network, "inside", size, row, column)


@pytest.mark.parametrize("dims", [(-2,), (-1,), (-3,)])
def test_a_grid_takes_leading_dimensions_and_says_what_is_not_the_images(dims):
    """Whatever the order of images, tokens and channels: the sum on the map and on the others is the sum of all."""
    rest = [dim for dim in (-3, -2, -1) if dim not in dims]
    grid = TokenGrid(2, 3, dims, tokens=(1, 2, 3, 5, 4, 6), count=8, images=rest[0], channels=rest[1])
    shape = [0, 0, 0]
    shape[dims[0]], shape[rest[0]], shape[rest[1]] = 8, 2, 4
    values = torch.rand(5, *shape)
    maps, others = grid.as_map(values), grid.others(values)
    assert maps.shape == (5, 2, 4, 2, 3)
    assert others.shape == (5, 2, 4, 2)
    assert torch.allclose(maps.sum((-2, -1)) + others.sum(-1), values.movedim(4 + dims[0], -1).sum(-1))
    first = values.movedim(4 + dims[0], -1)[..., 5]
    assert torch.equal(maps[..., 1, 0], first)


SIZE = (4 * PATCH, 4 * PATCH)


class TestLayersOfAClassToken:
    @pytest.mark.parametrize("by_hand", [False, True])
    def test_the_last_block_is_not_read(self, by_hand):
        """What lies at the image's tokens behind the last attention has no part in the output."""
        network, pictures = Transformer(2, 1, blocks=6, by_hand=by_hand).eval(), torch.rand(1, 3, *SIZE)
        network.head.weight.data.zero_()  # as at the start of training: still read
        assert top_layer(network, pictures) == "blocks.5.norm"
        assert default_layer(network, pictures) == "blocks.1"
        assert layer_pair(network, pictures) == ("blocks.1",)
        blocks = [layer.name for layer in candidate_layers(Transformer(1, blocks=3).eval(), pictures)]
        assert blocks == ["patches", "blocks.0", "blocks.1"]

    def test_where_all_tokens_are_pooled_all_is_read(self):
        network, pictures = Transformer(1, pooled=True).eval(), torch.rand(1, 3, *SIZE)
        assert top_layer(network, pictures) == "norm"
        (*_, last) = spatial_layers(network, pictures)
        assert (last.name, last.tokens, last.stride, last.receptive_field) == ("norm", True, PATCH, None)

    def test_what_is_listed(self):
        layers, recommended = outline(excite.wrap(Transformer(blocks=3).eval()))
        found = {layer.name: (layer.channels, layer.height, layer.width, layer.stride) for layer in layers}
        assert found["blocks.0"] == (CHANNELS, 56, 56, PATCH)
        assert recommended == ("blocks.0",)


@pytest.mark.parametrize(
    "method", ["mwp", "c-mwp", "c-mwp-channels", "excite", "extent", "c-extent", "grad-cam", "lrp"]
)
def test_every_method_reads_tokens(method):
    """A map of the image's positions; the mass of the winners is what arrived at the image's tokens."""
    torch.manual_seed(0)
    network, pictures = Transformer(2, blocks=3).eval(), torch.rand(2, 3, *SIZE)
    found = excite.attribute(network, pictures, [0, 3], method, "blocks.0", upsample=False)
    side = 4 if method not in {"excite", "extent", "c-extent"} else 7
    assert found.shape == (2, 1, side, side)
    if method == "c-mwp-channels":
        arrived = excite.mwp(network, pictures, torch.tensor([0, 3]), layer="blocks.0", contrastive=True)
        assert arrived.shape == (2, 18, CHANNELS)  # raw
        assert torch.allclose(found[:, 0], arrived[:, 2:].sum(-1).view(2, 4, 4).clamp(min=0), atol=1e-6)


def test_cam_of_pooled_tokens_is_the_classifiers_weights():
    network, pictures = Transformer(0, pooled=True).eval(), torch.rand(1, 3, *SIZE)
    tokens = []
    with network.norm.register_forward_hook(lambda _module, _given, answer: tokens.append(answer)), torch.no_grad():
        network(pictures)
    expected = (tokens[0] @ network.head.weight[2]).view(1, 1, 4, 4).clamp(min=0)
    assert torch.allclose(excite.attribute(network, pictures, 2, "cam", upsample=False), expected, atol=1e-6)


def test_tokens_whose_places_are_not_known_are_refused():
    class Mixed(Transformer):
        def forward(self, pictures):
            x = self.patches(pictures).flatten(2) @ torch.rand(16, 16)  # nobody knows which token is where
            return self.head(self.norm(x.transpose(1, 2)).mean(1))

    with pytest.raises(LayerError, match=r"'norm' is no map: which positions .* is not known; layers that are maps: p"):
        excite.attribute(Mixed().eval(), torch.rand(1, 3, *SIZE), 0, layer="norm")


KNOWN = {  # network: a layer, its channels and side, whether it has tokens; the default layer; the last map that counts
    "deit_tiny_distilled_patch16_224": (("blocks.3", 192, 14, True), "blocks.3", "blocks.11.norm1"),
    "vit_b_16": (
        ("encoder.ln", 96, 14, True),
        "encoder.layers.encoder_layer_3",
        "encoder.layers.encoder_layer_11.ln_1",
    ),
    "swin_t": (("features.3", 192, 28, False), "features.5", "permute"),
    "swinv2_tiny_window8_256": (("layers.1", 192, 32, False), "layers.2", "norm"),
    "xcit_nano_12_p16_224": (("cls_attn_blocks.0", 128, 14, True), "blocks.11", "cls_attn_blocks.1.norm1"),
    "pvt_v2_b0": (("stages.1.blocks.1.mlp.fc1", 512, 28, True), "stages.2", "stages"),
    "mobilevitv2_050": (("stages.4.1", 256, 8, False), "stages.3", "stages"),
    "coatnet_nano_rw_224": (("stages.3", 512, 7, False), "stages.2", "norm"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_networks(name):
    library = timm_models() if "_" in name and name not in {"vit_b_16", "swin_t"} else torchvision_models()
    torch.manual_seed(0)
    make = library.create_model if hasattr(library, "create_model") else library.get_model
    fewer = {"hidden_dim": 96, "mlp_dim": 192} if name == "vit_b_16" else {}  # its 86 million weights take seconds
    network = make(name, **fewer).eval()
    pictures = torch.rand(1, 3, *[256 if "256" in name or "mobile" in name else 224] * 2)
    (layer, channels, side, tokens), default, top = KNOWN[name]
    found = {each.name: each for each in spatial_layers(network, pictures)}[layer]
    assert (found.channels, found.height, found.width, found.tokens) == (channels, side, side, tokens)
    assert (default_layer(network, pictures), top_layer(network, pictures)) == (default, top)


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "swin_tiny_patch4_window7_224"])
def test_position_embeddings_that_can_be_interpolated_are(name):
    """So that the second, larger scale shows small objects; at the trained size nothing changes."""
    card, usual = timm_card(name), timm_models().create_model(name).eval()
    network = card.build(None).eval()
    network.load_state_dict(usual.state_dict())
    pictures = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(network(pictures), usual(pictures))
        assert network(torch.rand(1, 3, *card.preprocess.scaled(13 / 7).size((300, 200)))).shape == (1, 1000)
