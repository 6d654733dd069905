"""Whole networks: how blobs go from layer to layer, what comes out, and how weights come in."""

import struct
from weakref import ref

import numpy as np
import pytest
import torch
from torch import nn

from excite.errors import ModelError
from excite.models.caffe.definition import Layer, Network
from excite.models.caffe.layers import KINDS, InnerProduct
from excite.models.caffe.network import CaffeNetwork
from excite.propagation import mwp

SHAPE = (1, 3, 11, 9)
CONV = {"num_output": 4, "kernel_size": (3,), "pad": (1,)}
PARAMETERS = {
    "BatchNorm": "batch_norm_param",
    "Convolution": "convolution_param",
    "Deconvolution": "convolution_param",
    "ELU": "elu_param",
    "InnerProduct": "inner_product_param",
    "LRN": "lrn_param",
    "PReLU": "prelu_param",
    "ReLU": "relu_param",
}


def row(text, **options):
    """A layer from "name kind bottom,... -> top,...", the top being the name when it is left out."""
    left, arrow, tops = text.partition("->")
    name, kind, *bottoms = left.split()
    return Layer(name, kind, tuple(bottoms), tuple(tops.split()) if arrow else (name,), options)


def network(*rows, shape=SHAPE, name="net", **arguments):
    return CaffeNetwork(Network(name, {"data": shape}, rows), **arguments)


def pictures(number=2, shape=SHAPE, seed=0):
    return torch.randn(number, *shape[1:], generator=torch.Generator().manual_seed(seed))


def random_blobs(module, seed=0):
    """Blobs for every layer of a network, in Caffe's shapes: variances and slopes positive, all else of both signs."""
    generator = torch.Generator().manual_seed(seed)
    blobs = {}
    for step in module._steps:
        child = module.get_submodule(step.module)
        tensors = {
            key: torch.randn(value.shape, generator=generator) * 0.5 for key, value in child.state_dict().items()
        }
        if "variance" in tensors:
            tensors |= {"variance": tensors["variance"].abs() + 0.5, "factor": torch.tensor([2.5])}
        if isinstance(child, InnerProduct) and child.transposed:
            tensors["weight"] = tensors["weight"].T
        if tensors:
            blobs[step.layer.name] = list(tensors.values())
    return blobs


# ---------------------------------------------------------------- OpenCV as the judge


def text_of(option, value):
    if option == "shape":
        return f"shape {{ {' '.join(f'dim: {dim}' for dim in value)} }}"
    if isinstance(value, tuple):
        return " ".join(text_of(option, one) for one in value)
    return f"{option}: {str(value).lower() if isinstance(value, bool) else value}"


def prototxt(definition):
    """The definition as Caffe writes it; the messages of options are named after the kind of layer."""
    (name, shape), *_ = definition.inputs.items()
    lines = [f'name: "{definition.name}"', f'input: "{name}"', *(f"input_dim: {size}" for size in shape)]
    for layer in definition.layers:
        lines += ["layer {", f'name: "{layer.name}" type: "{layer.kind}"']
        lines += [f'bottom: "{blob}"' for blob in layer.bottoms] + [f'top: "{blob}"' for blob in layer.tops]
        fields = [text_of(option, value) for option, value in layer.options.items()]
        if fields:
            lines.append(f"{PARAMETERS.get(layer.kind, layer.kind.lower() + '_param')} {{ {' '.join(fields)} }}")
        lines.append("}")
    return "\n".join(lines).encode()


def varint(value):
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)


def field(number, content):
    return varint(number * 8 + 2) + varint(len(content)) + content


def caffemodel(definition, blobs):
    """Weights as Caffe writes them: layers are field 100, with name 1, kind 2, blobs 7; a blob has data 5, shape 7."""
    layers = []
    for layer in definition.layers:
        content = field(1, layer.name.encode()) + field(2, layer.kind.encode())
        content += b"".join(field(3, blob.encode()) for blob in layer.bottoms)
        content += b"".join(field(4, blob.encode()) for blob in layer.tops)
        for blob in blobs.get(layer.name, []):
            values = blob.flatten().tolist()
            data = field(5, struct.pack(f"<{len(values)}f", *values))
            content += field(7, data + field(7, field(1, b"".join(map(varint, blob.shape)))))
        layers.append(field(100, content))
    return field(1, definition.name.encode()) + b"".join(layers)


POOL = {"pool": "MAX", "kernel_size": 3, "stride": 2}
INCEPTION = (
    row("conv1/7x7_s2 Convolution data", num_output=8, kernel_h=5, kernel_w=3, stride=(2,), pad_h=2, pad_w=1),
    row("relu1 ReLU conv1/7x7_s2 -> conv1/7x7_s2"),
    row("norm1 LRN conv1/7x7_s2", local_size=5, alpha=0.1, beta=0.75),
    row("pool1 Pooling norm1", **POOL),
    row("a Convolution pool1", num_output=4, kernel_size=(1,)),
    row("a/relu ReLU a -> a", negative_slope=0.1),
    row("b Convolution pool1", num_output=6, kernel_size=(3,), pad=(2,), dilation=(2,), group=2, bias_term=False),
    row("c/pool Pooling pool1", pool="AVE", kernel_size=3, stride=1, pad=1),
    row("c Convolution c/pool", num_output=2, kernel_size=(1,)),
    row("joined Concat a b c"),
    row("near LRN joined", local_size=3, alpha=0.3, beta=0.6, norm_region="WITHIN_CHANNEL"),
    row("drop Dropout near -> near", dropout_ratio=0.4),
    row("pool2 Pooling near", pool="AVE", kernel_size=2, stride=2),
    row("fc InnerProduct pool2", num_output=7),
    row("prob Softmax fc"),
)
RESIDUAL = (
    row("conv1 Convolution data", **CONV, bias_term=False),
    row("bn1 BatchNorm conv1 -> conv1", eps=0.001),
    row("scale1 Scale conv1 -> conv1", bias_term=True),
    row("relu1 ReLU conv1 -> conv1"),
    row("split Split conv1 -> skip in2"),
    row("conv2 Convolution in2", **CONV),
    row("bn2 BatchNorm conv2"),
    row("scale2 Scale bn2 -> bn2"),
    row("sum Eltwise skip bn2", operation="SUM", coeff=(1.0, -0.5)),
    row("slope PReLU sum -> sum"),
    row("most Eltwise sum conv1 skip", operation="MAX"),
    row("conv3 Convolution most", num_output=5, kernel_size=(1,)),
    row("pool Pooling conv3", pool="AVE", global_pooling=True),
    row("prob Sigmoid pool"),
)
ODD_ENDS = (
    row("conv Convolution data", **CONV),
    row("tanh TanH conv"),
    row("up Deconvolution tanh", num_output=4, kernel_size=(4,), stride=(2,), pad=(1,), group=2),
    row("elu ELU up -> up", alpha=0.5),
    row("small Pooling up", pool="MAX", kernel_size=2, stride=2, pad=1),
    row("gate Sigmoid small"),
    row("shifted Power gate", power=2.0, scale=0.5, shift=1.0),
    row("product Eltwise small shifted", operation="PROD"),
    row("parts Softmax product"),
    row("doubled Power parts", scale=2.0),
    row("folded Reshape doubled", shape=(0, 8, -1, 5)),
    row("flat Flatten folded"),
    row("fc InnerProduct flat", num_output=6, bias_term=False),
)


@pytest.mark.parametrize("rows", [INCEPTION, RESIDUAL, ODD_ENDS], ids=["inception", "residual", "odd ends"])
def test_whole_networks_answer_as_in_opencv(rows):
    """OpenCV has a reader of its own. It differs from Caffe in five points, which the loops of numpy judge instead.

    It takes no notice of LRN's k nor of InnerProduct's transpose, knows no round_mode and no Bias layer, and builds
    what a Silence ends.
    """
    cv2 = pytest.importorskip("cv2")
    ours = network(*rows)
    blobs = random_blobs(ours)
    assert ours.load_blobs(blobs, "test") == []
    files = prototxt(ours.definition), caffemodel(ours.definition, blobs)
    theirs = cv2.dnn.readNetFromCaffe(*(np.frombuffer(file, np.uint8) for file in files))
    x = pictures(1)
    theirs.setInput(x.numpy())
    logits = {"prob": ours._answer}.get(rows[-1].tops[0], rows[-1].tops[0])
    with torch.no_grad():
        found = ours(x).numpy()
    expected = theirs.forward(logits)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected.reshape(found.shape), atol=1e-5)


def test_opencv_saw_every_kind_it_knows():
    seen = {layer.kind for rows in (INCEPTION, RESIDUAL, ODD_ENDS) for layer in rows}
    assert set(KINDS) - seen == {"Bias", "Silence"}


# ---------------------------------------------------------------- how blobs go


def test_in_place_layers_change_what_is_read_after_them_and_not_what_was_read_before():
    net = network(
        row("double Power data -> x", scale=2.0),
        row("before Power x", scale=1.0),
        row("positive ReLU x -> x"),
        row("sum Eltwise before x"),
    )
    x = pictures()
    torch.testing.assert_close(net(x), 2 * x + (2 * x).relu())


def test_pictures_are_left_alone_even_by_a_layer_in_place_on_them():
    x = pictures()
    before = x.clone()
    network(row("r ReLU data -> data"), row("p Power data", shift=1.0))(x)
    assert torch.equal(x, before)


def test_children_have_the_names_of_the_layers():
    net = network(*INCEPTION)
    assert [name for name, _ in net.named_children()] == [layer.name for layer in INCEPTION[:-1]]
    assert net.get_submodule("conv1/7x7_s2").kernel_size == (5, 3)


def test_names_that_torch_does_not_allow_are_changed():
    rows = [
        row("v1.0.a Convolution data", **CONV),
        row("v1_0_a Convolution v1.0.a", **CONV),
        row("type ReLU v1_0_a"),
        row("shapes ReLU type"),
    ]
    net = network(*rows)
    assert [name for name, _ in net.named_children()] == ["v1_0_a", "v1_0_a_", "type_", "shapes_"]
    blobs = random_blobs(net)
    assert set(blobs) == {"v1.0.a", "v1_0_a"}
    net.load_blobs(blobs, "test")
    assert torch.equal(net.get_submodule("v1_0_a_").weight, blobs["v1_0_a"][0])
    assert net(pictures()).shape == (2, 4, 11, 9)


def test_shapes_are_those_of_the_run():
    net = network(*RESIDUAL).initialise()
    seen = {}
    for step in net._steps:
        net.get_submodule(step.module).register_forward_hook(
            lambda _m, _i, given, step=step: seen.update(dict.fromkeys(step.layer.tops, tuple(given.shape)))
        )
    net(pictures(1))
    assert {"data": SHAPE, **seen} == net.shapes


def test_blobs_are_let_go_after_their_last_reader():
    net = network(*INCEPTION)
    finished = {step.layer.name: set(step.finished) for step in net._steps}
    assert finished["relu1"] == set()
    assert finished["pool1"] == {"norm1"}
    assert finished["b"] == set()
    assert finished["c/pool"] == {"pool1"}
    assert finished["joined"] == {"a", "b", "c"}

    net.initialise()
    given, alive = {}, {}

    def note(name):
        return lambda _module, _inputs, output: given.update({name: ref(output)})

    for name, child in net.named_children():
        child.register_forward_hook(note(name))
    net.fc.register_forward_pre_hook(lambda *_: alive.update({k: one() is not None for k, one in given.items()}))
    with torch.no_grad():
        net(pictures())
    assert {name for name, there in alive.items() if there} == {"pool2"}


def test_a_blob_that_is_written_anew_does_not_need_its_old_writer():
    net = network(row("old Convolution data -> x", **CONV), row("new Power data -> x", shift=1.0), row("end ReLU x"))
    assert [name for name, _ in net.named_children()] == ["new", "end"]


# ---------------------------------------------------------------- what comes out

FC = row("fc InnerProduct data", num_output=5)


@pytest.mark.parametrize(
    "ending",
    [
        [],
        [row("prob Softmax fc")],
        [row("prob Softmax fc -> fc")],
        [row("prob Sigmoid fc")],
        [row("loss SoftmaxWithLoss fc label")],
        [row("loss SigmoidCrossEntropyLoss fc label"), row("acc Accuracy fc label")],
        [row("prob Softmax fc"), row("loss MultinomialLogisticLoss prob label")],
        [row("s Split fc -> fc_0 fc_1"), row("prob Softmax fc_0"), row("acc Accuracy fc_1 label")],
        [row("other Convolution data", **CONV), row("quiet Silence other ->")],
    ],
    ids=lambda rows: " ".join(layer.kind for layer in rows) or "none",
)
def test_the_answer_is_the_logits(ending):
    net = CaffeNetwork(Network("net", {"data": SHAPE, "label": (1,)}, (FC, *ending)))
    assert [name for name, _ in net.named_children()] == ["fc"]
    assert net.initialise()(pictures()).shape == (2, 5)


def test_a_softmax_in_the_middle_stays():
    net = network(row("parts Softmax data"), row("p Power parts", scale=3.0))
    torch.testing.assert_close(net(pictures()).sum(1), torch.full((2, 11, 9), 3.0))


def test_a_network_that_answers_for_each_place_or_for_one():
    net = network(row("score Convolution data", num_output=5, kernel_size=(11, 9))).initialise()
    assert net(pictures()).shape == (2, 5)
    assert net(pictures(shape=(1, 3, 13, 10))).shape == (2, 5, 3, 2)
    torch.testing.assert_close(
        net(pictures(shape=(1, 3, 13, 10)))[:, :, 2, 1], net(pictures(shape=(1, 3, 13, 10))[..., 2:, 1:])
    )


TWO = (FC, row("other InnerProduct data", num_output=3), row("prob Softmax fc"))


def test_several_outputs_are_to_be_chosen_from():
    with pytest.raises(ModelError, match=r"net has several outputs, fc, other: choose one with output="):
        network(*TWO)
    assert network(*TWO, output="other").initialise()(pictures()).shape == (2, 3)
    for output in ("fc", "prob"):
        net = network(*TWO, output=output)
        assert [name for name, _ in net.named_children()] == ["fc"]


def test_an_unknown_output_is_refused_with_those_there_are():
    with pytest.raises(ModelError, match=r"no blob 'pool9' to answer with; it has fc, other, prob\."):
        network(*TWO, output="pool9")


def test_a_network_of_nothing_has_no_output():
    with pytest.raises(ModelError, match="net has no output"):
        network()


def test_layers_that_do_not_feed_the_output_may_be_of_any_kind():
    assert network(FC, row("odd Python data"), output="fc")
    with pytest.raises(ModelError, match=r"Layer 'odd' \(Python\) is of a kind"):
        network(FC, row("odd Python data"), output="odd")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row("fc InnerProduct dat", num_output=5)],
            r"'fc' \(InnerProduct\) reads the blob 'dat', which no layer before",
        ),
        ([row("s Eltwise data im_info")], r"net takes data, im_info: excite can feed it one input"),
        ([row("c Convolution data", num_output=2, kernel_size=(12,))], r"'c' \(Convolution\).*input 1 x 3 x 11 x 9: "),
        ([row("c Convolution data", num_output=2, kernel_size=(1,), group=2)], r"'c' \(Convolution\) does not fit"),
        ([row("p Pooling data", kernel_size=3, pad=2)], r"'p' \(Pooling\) does not fit its input"),
        (
            [row("p Pooling data", pool="AVE", global_pooling=True), row("s Eltwise p data")],
            r"'s' \(Eltwise\) combines blobs of different shapes: \(1, 3, 1, 1\), \(1, 3, 11, 9\)",
        ),
        (
            [row("p Pooling data", kernel_size=2), row("s Concat p data")],
            r"'s' \(Concat\).*1 x 3 x 10 x 8, 1 x 3 x 11 x 9: ",
        ),
        (
            [row("f Flatten data", axis=2), row("p Pooling f", kernel_size=2)],
            r"'p' \(Pooling\) takes blobs of 4.*has 3",
        ),
        ([row("r Reshape data", shape=(0, 7, -1))], r"'r' \(Reshape\) does not fit"),
        ([row("f Flatten data", axis=7)], r"'f' \(Flatten\) does not fit"),
    ],
)
def test_what_cannot_work_is_refused_at_once(rows, message):
    with pytest.raises(ModelError, match=message):
        CaffeNetwork(Network("net", {"data": SHAPE, "im_info": (1, 3)}, tuple(rows)))


def test_an_input_without_shape_needs_one():
    with pytest.raises(
        ModelError, match=r"does not say the shape of its input 'data': give shape=\(1, 3, height, width\)"
    ):
        network(FC, shape=())
    net = CaffeNetwork(Network("net", {"data": ()}, (FC,)), shape=(9, 3, 2, 2))
    assert net.get_submodule("fc").in_features == 12
    assert net.shapes["data"] == (1, 3, 2, 2)


# ---------------------------------------------------------------- how weights come in


def test_old_shapes_with_four_dimensions_are_the_same_weights():
    net = network(row("conv Convolution data", **CONV), row("fc InnerProduct conv", num_output=5))
    new = random_blobs(net)
    old = {name: [blob.reshape((1,) * (4 - blob.dim()) + blob.shape) for blob in blobs] for name, blobs in new.items()}
    assert old["fc"][0].shape == (1, 1, 5, 396)
    assert old["conv"][1].shape == (1, 1, 1, 4)
    net.load_blobs(new, "new")
    expected = net(pictures())
    net.initialise(seed=3)
    assert not torch.allclose(net(pictures()), expected)
    net.load_blobs(old, "old")
    assert torch.equal(net(pictures()), expected)


def test_a_transposed_inner_product():
    straight, turned = (network(row("fc InnerProduct data", num_output=5, transpose=turn)) for turn in (False, True))
    weight, bias = random_blobs(straight)["fc"]
    straight.load_blobs({"fc": [weight, bias]}, "test")
    turned.load_blobs({"fc": [weight.T, bias]}, "test")
    assert torch.equal(turned(pictures()), straight(pictures()))
    with pytest.raises(ModelError, match="takes a weight of shape 297 x 5, but that in test is 5 x 297"):
        turned.load_blobs({"fc": [weight, bias]}, "test")


def test_two_layers_of_one_name_share_their_weights():
    net = network(
        row("c Convolution data -> one", num_output=3, kernel_size=(1,)),
        row("c Convolution one", num_output=3, kernel_size=(1,)),
    )
    net.load_blobs(random_blobs(net), "test")
    assert torch.equal(net.get_submodule("c").weight, net.get_submodule("c_").weight)


def test_weights_of_other_layers_are_reported():
    net = network(FC)
    extra = {**random_blobs(net), "loss1/classifier": [torch.zeros(2, 2)], "relu": []}
    assert net.load_blobs(extra, "test") == ["loss1/classifier"]


def without(blobs, name):
    return {key: value for key, value in blobs.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda blobs: without(blobs, "fc"), r"file.caffemodel has no weights for fc of net: use the weights and the"),
        (lambda blobs: {**blobs, "fc": []}, r"has no weights for fc of net"),
        (lambda blobs: {}, r"has no weights for a, b, c, d, e and 2 more of net"),
        (
            lambda blobs: {**blobs, "fc": blobs["fc"][:1]},
            r"'fc' \(InnerProduct\) has 2 blobs \(weight, bias\), but 1 in file",
        ),
        (
            lambda blobs: {**blobs, "bn": blobs["bn"][:2]},
            r"'bn' \(BatchNorm\) has 3 blobs \(mean, variance, factor\), but 2",
        ),
        (
            lambda blobs: {**blobs, "fc": blobs["fc"][::-1]},
            r"'fc'.*a weight of shape 5 x 396, but that in file.* is 5: use",
        ),
        (
            lambda blobs: {**blobs, "a": [blobs["a"][0].flatten(1), blobs["a"][1]]},
            r"shape 4 x 3 x 3 x 3, but .* is 4 x 27",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_nothing_is_changed(change, message):
    convolutions = [
        row(f"{name} Convolution {bottom}", **CONV) for bottom, name in zip(["data", *"abcd"], "abcde", strict=True)
    ]
    net = network(*convolutions, row("bn BatchNorm e"), row("fc InnerProduct bn", num_output=5)).initialise()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(ModelError, match=message):
        net.load_blobs(change(random_blobs(net)), "file.caffemodel")
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_loading_leaves_eval_mode_float32_and_trainable_weights():
    net = network(*RESIDUAL).train()
    net.load_blobs({name: [blob.double() for blob in blobs] for name, blobs in random_blobs(net).items()}, "test")
    assert not any(module.training for module in net.modules())
    assert all(weight.dtype == torch.float32 and weight.requires_grad for weight in net.parameters())


def test_without_weights_it_says_so():
    with pytest.raises(ModelError, match=r"net has no weights yet: load_blobs\(...\) or initialise\(seed\) first"):
        network(FC)(pictures())


def test_building_and_loading_draw_no_random_number():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    net = network(*RESIDUAL)
    net.load_blobs(random_blobs(net), "test")
    net.initialise(seed=1)
    assert torch.equal(torch.rand(1), expected)


def test_random_weights_depend_on_the_seed_and_keep_the_size_of_activations():
    first, again, other = (network(*RESIDUAL).initialise(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv2.weight"], other["conv2.weight"])
    assert not first["conv2.bias"].any()
    assert torch.equal(first["slope.weight"], torch.full((4,), 0.25))
    rows = [
        layer
        for k in range(12)
        for layer in (
            row(f"c{k} Convolution x -> x", num_output=16, kernel_size=(3,), pad=(1,)),
            row(f"r{k} ReLU x -> x"),
        )
    ]
    deep = CaffeNetwork(Network("deep", {"x": (1, 16, 16, 16)}, tuple(rows))).initialise()
    size = deep(pictures(1, (1, 16, 16, 16))).square().mean()
    assert 0.01 < size < 100  # torch's own start would leave 1e-9 of it


# ---------------------------------------------------------------- how it is explained


def test_norm_and_scale_are_explained_as_one_batch_norm():
    """Half of the scales are negative: there what excited the convolution inhibits the neuron."""
    rows = [
        row("below Convolution data", **CONV),
        row("low ReLU below -> below"),
        row("conv Convolution below", **CONV, bias_term=False),
        row("bn BatchNorm conv -> conv", eps=0.01),
        row("scale Scale conv -> conv", bias_term=True),
        row("relu ReLU conv -> conv"),
        row("fc InnerProduct conv", num_output=5),
    ]
    net = network(*rows)
    blobs = random_blobs(net, seed=4)
    assert (blobs["scale"][0] < 0).sum() == 2
    net.load_blobs(blobs, "test")
    norm = nn.BatchNorm2d(4, eps=0.01)
    mean, variance, factor = blobs["bn"]
    norm.load_state_dict(
        {
            "running_mean": mean / factor,
            "running_var": variance / factor,
            "weight": blobs["scale"][0],
            "bias": blobs["scale"][1],
            "num_batches_tracked": torch.tensor(0),
        }
    )
    usual = nn.Sequential(net.below, net.low, net.conv, norm, nn.ReLU(), nn.Flatten(), nn.Linear(396, 5)).eval()
    usual[-1].load_state_dict(net.fc.state_dict())
    x = pictures(2)
    torch.testing.assert_close(net(x), usual(x))
    for contrastive in (False, True):
        found = mwp(net, x, 3, layer="low", contrastive=contrastive)
        expected = mwp(usual, x, 3, layer="1", contrastive=contrastive)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("rows", "layer"), [(INCEPTION, "pool1"), (RESIDUAL, "conv1"), (ODD_ENDS[:7], "tanh")])
def test_whole_networks_are_explained(rows, layer):
    net = network(*rows, row("top InnerProduct " + rows[-1].bottoms[0], num_output=4), output="top")
    net.load_blobs(random_blobs(net, seed=1), "test")
    x = pictures(1)
    found = mwp(net, x, 2, layer=layer)
    assert tuple(found.shape) == net.shapes[layer]
    assert 0.2 < found.sum() <= 1 + 1e-5
    assert found.min() >= 0
