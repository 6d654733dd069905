"""Attention against explicit matrices: weights that the image decides are a gate over the values."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import transitions
from torch import nn
from torch.nn import functional as F

from excite.errors import LayerError, NoRuleError, SignalError
from excite.propagation import ExcitationPass, Gradients, attention_layers, sample_winners, verify

often = settings(max_examples=25, derandomize=True, deadline=None)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Attend(nn.Module):
    """Attention between two modules that can be read: its values, and what it makes of them."""

    def __init__(self, body, width, num_heads=1):
        super().__init__()
        self.body, self.num_heads = body, num_heads
        self.values, self.mixed, self.fc = nn.Identity(), nn.Identity(), nn.Linear(width, 3)
        self.double().eval()

    def forward(self, q, k, v):
        return self.fc(self.mixed(self.body(q, k, self.values(v))).flatten(1))


def arrived(net, inputs, layers=("values", "mixed", ":edges"), **options):
    """What arrives at some layers, from all classes at once; the output is that of the network."""
    excitation = ExcitationPass(net, inputs, list(layers))
    with torch.no_grad():
        assert torch.equal(excitation.output, net(*inputs))
    signal = random(*excitation.output.shape, seed=9).abs()
    return excitation.down(signal, **options), excitation


def shares(weights, values, probability):
    """Of each output token's probability the share of each contribution [..., queries, keys, channels]."""
    contributions = weights[..., None] * values[..., None, :, :]
    up = torch.where(contributions.sum(-2) >= 0, 1.0, -1.0).unsqueeze(-2)
    pushes = (contributions * up).clamp(min=0)
    total = pushes.sum(-2, keepdim=True)
    return torch.where(total > 0, pushes / total, 0) * probability.unsqueeze(-2)


def softmax(scores):
    """Rows that are masked altogether are 0."""
    e = scores.exp()
    return e / e.sum(-1, keepdim=True).where(e.sum(-1, keepdim=True) > 0, torch.ones(()).to(e))


@st.composite
def attentions(draw):
    """Arguments of scaled_dot_product_attention, and the weights [N, heads, queries, keys] that they mean."""
    size = st.integers(1, 4)
    n, heads, shared, queries, keys, d = (draw(size) for _ in range(6))
    seed, kind = draw(st.integers(0, 99)), draw(st.sampled_from(["none", "causal", "boolean", "additive", "row"]))
    heads, shared = min(heads, 2), min(shared, 2)
    q = random(n, heads * shared, queries, d, seed=seed)
    k, v = random(n, heads, keys, d, seed=seed + 1), random(n, heads, keys, draw(size), seed=seed + 2)
    scale = draw(st.sampled_from([None, 0.3]))
    options = {"scale": scale} | ({"enable_gqa": True} if shared > 1 else {})
    scores = q @ k.repeat_interleave(shared, 1).transpose(-2, -1) * (1 / math.sqrt(d) if scale is None else scale)
    if kind == "causal":
        options["is_causal"] = True
        scores = scores.masked_fill(torch.arange(keys) > torch.arange(queries)[:, None], -math.inf)
    if kind in {"boolean", "row"}:
        mask = random(queries, keys, seed=seed + 3) > (-0.5 if kind == "boolean" else 0.3)
        options["attn_mask"] = mask if kind == "boolean" else mask.expand(n, 1, queries, keys)
        scores = scores.masked_fill(~mask, -math.inf)
    if kind == "additive":
        options["attn_mask"] = random(heads * shared, queries, keys, seed=seed + 4)
        scores = scores + options["attn_mask"]
    return (q, k, v), options, shared, softmax(scores)


@often
@given(attentions(), st.sampled_from([{}, {"dual": -1.0}]))
def test_fused_attention_is_its_matrices(made, contrast):
    inputs, options, shared, weights = made
    values = inputs[2].repeat_interleave(shared, 1)
    net = Attend(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), (weights @ values)[0].numel())
    won, excitation = arrived(net, inputs, **contrast)
    expected = shares(weights, values, won["mixed"])
    to_values = expected.sum(-3).unflatten(1, (-1, shared)).sum(2)
    torch.testing.assert_close(won["values"], to_values, rtol=0, atol=1e-10)
    torch.testing.assert_close(won[":edges"], expected.sum(-1), rtol=0, atol=1e-10)
    torch.testing.assert_close(excitation.readings[":edges"].activation, weights, rtol=0, atol=1e-10)
    torch.testing.assert_close(won[":edges"].sum(-2).unflatten(1, (-1, shared)).sum(2), won["values"].sum(-1))
    torch.testing.assert_close(ExcitationPass(net, inputs, ["values"]).output, excitation.output)


HEADS, TOKENS, DEEP, WIDE = 2, 4, 3, 2
QKV = random(2, HEADS, TOKENS, DEEP), random(2, HEADS, TOKENS, DEEP, seed=1), random(2, HEADS, TOKENS, WIDE, seed=2)


def scores(q, k):
    return q @ k.transpose(-2, -1) / math.sqrt(DEEP)


def by_baddbmm(q, k, v):
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    bias = torch.zeros(1, TOKENS, TOKENS).to(q)
    weights = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=DEEP**-0.5).softmax(-1)
    return torch.bmm(weights, v).unflatten(0, (-1, HEADS))


def again(weights):
    return weights * 2 / (weights.sum(-1, keepdim=True) * 2)


WRITTEN = {
    "matmul": lambda q, k, v: scores(q, k).softmax(-1) @ v,
    "scaled queries": lambda q, k, v: F.softmax((q * DEEP**-0.5) @ k.mT, -1) @ v,
    "a type": lambda q, k, v: F.softmax(scores(q, k), dim=-1, dtype=torch.float64) @ v,
    "dropout": lambda q, k, v: torch.matmul(F.dropout(scores(q, k).softmax(-1), 0.5, training=False), v),
    "baddbmm": by_baddbmm,
    "einsum": lambda q, k, v: torch.einsum(
        "bhij,bhjd->bhid", (torch.einsum("bhid,bhjd->bhij", q, k) * DEEP**-0.5).softmax(3), v
    ),
    "einsum, turned": lambda q, k, v: torch.einsum(
        "bhjd, bhji -> bhid", v, (torch.einsum("bhid,bhjd->bhji", q, k) * DEEP**-0.5).softmax(2)
    ),
    "values first": lambda q, k, v: (v.mT @ scores(q, k).softmax(-1).mT).mT,
    "shifted": lambda q, k, v: (scores(q, k) - scores(q, k).amax(-1, keepdim=True)).softmax(-1) @ v,
    "built in": torch._C._nn.scaled_dot_product_attention,
    "normalised again": lambda q, k, v: again(scores(q, k).softmax(-1)) @ v,
    "rotated": lambda q, k, v: F.scaled_dot_product_attention(q.roll(1, -1) * 0.5 + q, k.flip(-1) + k, v),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_attention_written_by_hand(name):
    net = Attend(WRITTEN[name], HEADS * TOKENS * WIDE, HEADS)
    assert attention_layers(net, QKV) == [":edges"]
    won, excitation = arrived(net, QKV)
    weights = scores(*QKV[:2]).softmax(-1)
    if name == "rotated":
        weights = scores(QKV[0].roll(1, -1) * 0.5 + QKV[0], QKV[1].flip(-1) + QKV[1]).softmax(-1)
    expected = shares(weights, QKV[2], won["mixed"])
    torch.testing.assert_close(excitation.readings[":edges"].activation, weights, rtol=0, atol=1e-10)
    torch.testing.assert_close(won["values"], expected.sum(-3), rtol=0, atol=1e-10)
    torch.testing.assert_close(won[":edges"], expected.sum(-1), rtol=0, atol=1e-10)


def test_queries_and_keys_get_nothing_but_where_the_values_are_constant():
    parts = {"q": nn.Identity(), "k": nn.Identity()}
    net = Attend(lambda q, k, v: F.scaled_dot_product_attention(parts["q"](q), parts["k"](k), v), 16, HEADS)
    net.parts = nn.ModuleDict(parts)
    with pytest.raises(NoRuleError, match=r"only as a gate.*queries or keys"):
        ExcitationPass(net, QKV, ["parts.q"])
    won, _ = arrived(net, QKV, ["values"])
    assert float(won["values"].sum()) > 0
    net.body = lambda q, _k, _v: F.scaled_dot_product_attention(parts["q"](q), QKV[1], QKV[2])
    won, _ = arrived(net, QKV, ["parts.q", "mixed"])
    weights, given = scores(*QKV[:2]).softmax(-1), torch.zeros_like(QKV[0])
    up = torch.where(weights @ QKV[2] >= 0, 1.0, -1.0)
    pushes = (weights[..., None, :] * QKV[2].mT[..., None, :, :] * up[..., None]).clamp(min=0)
    to_weights = (pushes / pushes.sum(-1, keepdim=True) * won["mixed"][..., None]).sum(-2)
    terms = QKV[0][..., None, :] * QKV[1][..., None, :, :]
    pushes = (terms * torch.where(terms.sum(-1, keepdim=True) >= 0, 1.0, -1.0)).clamp(min=0)
    given = (pushes / pushes.sum(-1, keepdim=True) * to_weights[..., None]).sum(-2)
    torch.testing.assert_close(won["parts.q"], given, rtol=0, atol=1e-10)


# --- modules of torch ------------------------------------------------------------------------------------------------


def below(probability, children, weight, response):
    """Through a dense layer, from [..., outputs] to [..., inputs], by explicit matrices."""
    rows = []
    for p, child, y in zip(*(each.flatten(0, -2) for each in (probability, children, response)), strict=True):
        steps = transitions(child.numpy(), weight.T.numpy(), torch.where(y >= 0, 1.0, -1.0).numpy())
        rows.append(p @ torch.from_numpy(steps))
    return torch.stack(rows).view(children.shape)


@often
@given(
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["none", "boolean", "additive", "padding"]),
)
def test_multihead_attention_is_its_matrices(biases, extra, zero, separate, asked, masked):
    """In and out projections with their biases, learnt tokens, a token of zeros, masks, weights asked for or not."""
    torch.manual_seed(0)
    n, queries, keys, width = 2, 3, 4, 4
    kinds = {"kdim": 3, "vdim": 5} if separate else {}
    mha = nn.MultiheadAttention(width, HEADS, 0.1, biases, extra, zero, batch_first=True, **kinds).double().eval()
    with torch.no_grad():
        for parameter in mha.parameters():
            parameter.normal_()
    options = {"need_weights": asked}
    if masked == "padding":
        options["key_padding_mask"] = torch.tensor([[False] * keys, [False, False, True, True]])
    elif masked != "none":
        mask = random(queries, keys, seed=7)
        options["attn_mask"] = mask > 1 if masked == "boolean" else mask
    net = Attend(lambda q, k, v: mha(q, k, v, **options)[0], queries * width)
    net.mha = mha
    q, k, v = random(n, queries, width), random(n, keys, mha.kdim, seed=1), random(n, keys, mha.vdim, seed=2)
    k = k if separate else v
    assert attention_layers(net, (q, k, v)) == ["mha:edges"]
    excitation = ExcitationPass(net, (q, k, v), ["values", "mixed", "mha:edges"])
    with torch.no_grad():
        torch.testing.assert_close(excitation.output, net(q, k, v), rtol=0, atol=1e-12)
        weights = mha(q, k, v, **options | {"need_weights": True, "average_attn_weights": False})[1]
        weight = mha.v_proj_weight if separate else mha.in_proj_weight[2 * width :]
        projected = F.linear(v, weight, mha.in_proj_bias[2 * width :] if biases else None)
        values = projected
        if extra:
            values = torch.cat([values, mha.bias_v.expand(n, 1, width)], 1)
        if zero:
            values = torch.cat([values, torch.zeros(n, 1, width).to(v)], 1)
        values = values.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        mixed = (weights @ values).transpose(1, 2).flatten(2)
        won = excitation.down(random(n, 3).abs())
        at_heads = below(won["mixed"], mixed, mha.out_proj.weight, mha.out_proj(mixed))
        expected = shares(weights, values, at_heads.unflatten(-1, (HEADS, -1)).transpose(1, 2))
        to_values = expected.sum(-3)[:, :, :keys].transpose(1, 2).flatten(2)
        torch.testing.assert_close(won["mha:edges"], expected.sum(-1), rtol=0, atol=1e-10)
        torch.testing.assert_close(won["values"], below(to_values, v, weight, projected), rtol=0, atol=1e-10)


def encoder(width=8, *, norm_first=True):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, HEADS, 16, activation=F.gelu, batch_first=True, norm_first=norm_first)
    stack = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=not norm_first)
    net = nn.Sequential(stack, nn.Flatten(), nn.Linear(5 * width, 3)).eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.4)
    return net


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_fast_paths_of_torch(norm_first):
    """Without gradients torch runs an encoder layer, or attention alone, as one operation: same values, same rules."""
    net, x = encoder(norm_first=norm_first), random(2, 5, 8).float()
    names = ["0.layers.0.self_attn:edges", "0.layers.1.self_attn:edges"]
    with torch.no_grad():
        excitation, plain = ExcitationPass(net, x, ["0.layers.0", *names]), net(x)
    torch.testing.assert_close(excitation.output, plain, rtol=0, atol=1e-6)
    assert attention_layers(net, x) == names
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    alone = Padded(net[0], padding).eval()
    with torch.no_grad():
        torch.testing.assert_close(ExcitationPass(alone, x, ["net.layers.0"]).output, alone(x), rtol=0, atol=1e-6)


class RMSNorm(nn.RMSNorm):
    def __init__(self, width):
        super().__init__(width, eps=1e-5)
        self.bias = nn.Parameter(torch.zeros(width))  # torch's encoder asks for it


class Padded(nn.Module):
    def __init__(self, net, padding):
        super().__init__()
        self.net, self.padding, self.fc = net, padding, nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.net(x, src_key_padding_mask=self.padding)[:, 0])


@pytest.mark.parametrize("means", [True, False], ids=["layer norms", "RMS norms"])
def test_without_biases_all_of_the_signal_arrives_at_the_tokens(means):
    """What a layer norm's mean takes off is lost (docs/theory.md), and little where there are many channels."""
    net, x = encoder(96).double(), random(2, 5, 96)
    if not means:
        for child in net[0].layers:
            child.activation_relu_or_gelu = 0  # or torch's fast path takes them for layer norms
            child.norm1, child.norm2 = RMSNorm(96).double(), RMSNorm(96).double()
        net[0].norm = RMSNorm(96).double()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    layers = ["input", "0.layers.0", "0.layers.1", "0.layers.0.norm1"]
    excitation = ExcitationPass(net, x, layers)
    won = excitation.down(torch.eye(3, dtype=torch.float64)[:, None].expand(3, 2, 3) / 2)
    for layer in layers[:3]:
        assert won[layer].flatten(1).sum(1).min() > (0.999 if means else 1 - 1e-9), layer
        assert won[layer].min() >= 0
    contrast = excitation.down(torch.eye(3, dtype=torch.float64)[:2], unit=1.0, dual=-1.0)["0.layers.0"]
    assert contrast.sum().abs() < (5e-3 if means else 1e-9)
    assert contrast.abs().sum() > 0.01
    verify(net, x, ["input", "0.layers.1.self_attn:edges"]).check()


# --- other forms of attention ----------------------------------------------------------------------------------------


def test_windows_with_shifts_and_relative_positions():
    """Swin's: tokens attend within windows of a rolled map; as matrices, each pair of tokens is looked up."""
    side, window, shift = 4, 2, 1
    table = nn.Parameter(random((2 * window - 1) ** 2, HEADS, seed=5))
    places = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1).view(-1, 2)
    rolled = (places - shift) % side
    inside = rolled % window
    offset = inside[:, None] - inside[None] + window - 1
    bias = table.detach()[offset[..., 0] * (2 * window - 1) + offset[..., 1]].permute(2, 0, 1)
    near = (rolled[:, None] // window == rolled[None] // window).all(-1)
    met = ((rolled[:, None] >= side - shift) == (rolled[None] >= side - shift)).all(-1)  # not across the border

    def cut(x):
        x = x.unflatten(2, (side, side)).roll((-shift, -shift), (2, 3))
        x = x.unflatten(3, (-1, window)).unflatten(2, (-1, window))
        return x.permute(0, 2, 4, 1, 3, 5, 6).flatten(4, 5).flatten(0, 2)

    def body(q, k, v):
        q, k, v = map(cut, (q, k, v))
        grid = torch.arange(side * side).view(1, 1, side * side, 1)
        index = cut(grid.double()).long().view(-1, window * window)
        turned = torch.stack([torch.stack([offset[i][:, i] for i in index])])[0]
        biases = table[turned[..., 0] * (2 * window - 1) + turned[..., 1]].permute(0, 3, 1, 2)
        apart = torch.stack([torch.zeros(4, 4).masked_fill(~met[i][:, i], -100.0) for i in index])[:, None]
        weights = (scores(q, k) + biases.repeat(2, 1, 1, 1) + apart.to(q).repeat(2, 1, 1, 1)).softmax(-1)
        y = (weights @ v).unflatten(0, (2, 2, 2)).unflatten(4, (window, window))
        y = y.permute(0, 3, 1, 4, 2, 5, 6).flatten(4, 5).flatten(2, 3)
        return y.roll((shift, shift), (2, 3)).flatten(2, 3)

    tokens = side * side
    inputs = random(2, HEADS, tokens, DEEP), random(2, HEADS, tokens, DEEP, seed=1), random(2, HEADS, tokens, 2, seed=2)
    net = Attend(body, HEADS * tokens * 2)
    won, excitation = arrived(net, inputs)
    dense = (scores(*inputs[:2]) + bias).masked_fill(~near, -math.inf) + torch.where(met, 0.0, -100.0).double()
    expected = shares(dense.softmax(-1), inputs[2], won["mixed"])
    torch.testing.assert_close(won["values"], expected.sum(-3), rtol=0, atol=1e-10)
    assert excitation.readings[":edges"].activation.shape == (8, HEADS, 4, 4)
    torch.testing.assert_close(won[":edges"].sum(), won["values"].sum())


def test_talking_heads_are_weights_still():
    """Linear maps before and after softmax; the weights that multiply the values may then be negative (CaiT)."""
    before, after = nn.Linear(HEADS, HEADS).double(), nn.Linear(HEADS, HEADS).double()

    def weights_of(q, k):
        talked = before(scores(q, k).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        return after(talked.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    net = Attend(lambda q, k, v: weights_of(q, k) @ v, HEADS * TOKENS * WIDE)
    weights = weights_of(*QKV[:2]).detach()
    assert weights.min() < 0 < weights.max()
    won, _ = arrived(net, QKV)
    expected = shares(weights, QKV[2], won["mixed"])
    torch.testing.assert_close(won["values"], expected.sum(-3), rtol=0, atol=1e-10)
    torch.testing.assert_close(won[":edges"], expected.sum(-1), rtol=0, atol=1e-10)


def test_attention_between_channels():
    """Cross-covariance attention (XCiT): the weights mix channels, [heads, channels, channels]."""

    def weights_of(q, k):
        return (F.normalize(q, dim=-2).mT @ F.normalize(k, dim=-2) * 1.3).softmax(-1)

    net = Attend(lambda q, k, v: (weights_of(q, k) @ v.mT).mT, HEADS * TOKENS * DEEP)
    inputs = (*QKV[:2], random(2, HEADS, TOKENS, DEEP, seed=4))
    won, _ = arrived(net, inputs)
    expected = shares(weights_of(*QKV[:2]), inputs[2].mT, won["mixed"].mT)
    torch.testing.assert_close(won["values"].mT, expected.sum(-3), rtol=0, atol=1e-10)
    torch.testing.assert_close(won[":edges"], expected.sum(-1), rtol=0, atol=1e-10)


class Linear(nn.Module):
    """Linear attention (EfficientViT): relu(q) (relu(k)' v) / relu(q) (relu(k)' 1), the divisor by a column of ones."""

    def __init__(self, *, summary=F.relu, factor=F.relu, divides=True):
        super().__init__()
        self.summary, self.factor, self.divides = summary, factor, divides
        self.tokens, self.mixed, self.fc = nn.Identity(), nn.Identity(), nn.Linear(TOKENS * WIDE, 3)
        self.q, self.k, self.v = nn.Linear(DEEP, DEEP), nn.Linear(DEEP, DEEP), nn.Linear(DEEP, WIDE)
        self.double().eval()

    def forward(self, x):
        x = self.tokens(x)
        q, k, v = self.factor(self.q(x)), self.summary(self.k(x)), self.v(x)
        if not self.divides:
            return self.fc(self.mixed(q @ (k.mT @ v)).flatten(1))
        y = q @ (k.mT @ F.pad(v, (0, 1), value=1.0))
        return self.fc(self.mixed(y[..., :-1] / (y[..., -1:] + 1e-15)).flatten(1))


@pytest.mark.parametrize(
    "net",
    [
        Linear(),
        Linear(divides=False),
        Linear(summary=lambda k: k.softmax(-2), factor=lambda q: q, divides=False),  # CoaT's: a mixture holds values
    ],
    ids=["relu", "without divisor", "softmax"],
)
def test_linear_attention(net):
    """Two steps: keys weigh the values into a summary, and queries weigh the summary."""
    x = random(2, TOKENS, DEEP)
    won, _ = arrived(net, (x,), ["tokens", "mixed"])
    with torch.no_grad():
        q, k, v = net.factor(net.q(x)), net.summary(net.k(x)), net.v(x)
        summary = k.mT @ v
        at_summary = shares(q, summary, won["mixed"]).sum(-3)
        at_values = shares(k.mT, v, at_summary).sum(-3)
        expected = below(at_values, x, net.v.weight, v)
    torch.testing.assert_close(won["tokens"], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("act", [F.silu, F.gelu, F.relu, torch.sigmoid])
def test_gated_units(act):
    """SwiGLU and its kind, behind an RMS norm, with a layer scale: what passed a function gates the linear factor."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.mixed = nn.Identity(), nn.Identity()
            self.norm, self.gate, self.value = nn.RMSNorm(DEEP), nn.Linear(DEEP, 4), nn.Linear(DEEP, 4)
            self.scale, self.fc = nn.Parameter(random(4)), nn.Linear(4, 3)
            self.double().eval()

        def forward(self, x):
            x = self.norm(self.low(x))
            return self.fc(self.mixed(act(self.gate(x)) * self.value(x)) * self.scale)

    net, x = Gated(), random(2, DEEP)
    won, _ = arrived(net, (x,), ["low", "mixed"])
    with torch.no_grad():
        normed = net.norm(x)
        expected = below(won["mixed"], normed, net.value.weight, net.value(normed))
    torch.testing.assert_close(won["low"], expected, rtol=0, atol=1e-10)


# --- edges as layers -------------------------------------------------------------------------------------------------


def test_gradients_at_edges_are_those_of_explicit_weights():
    net, x, signal = encoder().double(), random(2, 5, 8), random(2, 3, seed=3)
    names = attention_layers(net, x)
    found = Gradients(net, x, names).down(signal)
    kept = []

    def attention(q, k, v, *_arguments, **_options):
        weights = scores_of(q, k).softmax(-1)
        weights.retain_grad()
        kept.append(weights)
        return weights @ v

    def scores_of(q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
        (net(x) * signal).sum().backward()
    assert len(kept) == 2
    for name, weights in zip(names, kept, strict=True):
        torch.testing.assert_close(found[name], weights.grad, rtol=0, atol=1e-12)


class Twice(nn.Module):
    """Two products in the code of one module, which is called twice."""

    def __init__(self):
        super().__init__()
        self.inner, self.fc = Inner(), nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.inner(self.inner(x)).mean(1))


class Inner(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x) + (x @ x.mT * 0.1).softmax(-1) @ x


def test_edges_of_one_module_are_numbered():
    net, x = Twice().double().eval(), random(1, 5, 4)
    names = attention_layers(net, x)
    assert names == [f"inner:edges#{k}" for k in range(4)]
    excitation = ExcitationPass(net, x, [*names, "inner:edges"])
    won = excitation.down(torch.eye(3, dtype=torch.float64)[:1])
    torch.testing.assert_close(won["inner:edges"], won[names[3]])
    assert len({float(won[name].sum()) for name in names}) == 4
    with pytest.raises(LayerError, match="attends 4 times, so its last call is #3"):
        ExcitationPass(net, x, ["inner:edges#4"])
    with pytest.raises(LayerError, match="attention_layers"):
        ExcitationPass(net, x, ["fc:edges"])
    with pytest.raises(LayerError, match="counted from"):
        ExcitationPass(net, x, ["inner:edges#last"])
    with pytest.raises(SignalError, match="are edges between them"):
        sample_winners(net, x, 0, layers=["inner:edges"])


def test_what_has_no_gate_is_refused_by_name():
    """Of two plain responses none is the weights of the other: lambda layers, state-space mixers, Gram matrices."""
    net = Linear(summary=lambda k: k, factor=lambda q: q, divides=False)
    with pytest.raises(NoRuleError, match=r"'matmul'.*a product of two activations, none of them weights or a gate"):
        ExcitationPass(net, random(2, TOKENS, DEEP), ["tokens"])


def test_masks_made_of_the_image_may_select_but_not_add():
    chosen = Attend(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, q.mean(-1, keepdim=True) < k.mean(-1)[..., None, :]), 16
    )
    arrived(chosen, QKV)
    added = Attend(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.tensor((v.mean(-1)[..., None, :]).numpy())), 16
    )
    with pytest.raises(NoRuleError):
        ExcitationPass(added, QKV, ["values"])
