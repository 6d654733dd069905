"""Whole networks: how blobs go from layer to layer, what comes out, and how weights come in."""

from itertools import pairwise
from weakref import ref

import numpy as np
import pytest
import torch
from torch import nn
from writing import files, row

from excite.errors import ModelError
from excite.models.caffe.definition import Network
from excite.models.caffe.layers import InnerProduct
from excite.models.caffe.network import CaffeNetwork
from excite.propagation import mwp

SHAPE = (1, 3, 11, 9)
CONV = {"num_output": 4, "kernel_size": (3,), "pad": (1,)}


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
        shapes = {key: value.shape for key, value in child.state_dict().items()}
        tensors = {key: torch.randn(shape, generator=generator) * 0.5 for key, shape in shapes.items()}
        if "variance" in tensors:
            tensors |= {"variance": tensors["variance"].abs() + 0.5, "factor": torch.tensor([2.5])}
        if isinstance(child, InnerProduct) and child.transposed:
            tensors["weight"] = tensors["weight"].T
        if tensors:
            blobs[step.layer.name] = list(tensors.values())
    return blobs


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
    heads = {"loss1/classifier": [torch.zeros(1000, 1024)]}  # of training: reported
    assert ours.load_blobs({**blobs, **heads}, "test") == ["loss1/classifier"]
    written = files(ours.definition, blobs)
    theirs = cv2.dnn.readNetFromCaffe(*(np.frombuffer(file, np.uint8) for file in written))
    x = pictures(1)
    theirs.setInput(x.numpy())
    logits = {"prob": ours._answer}.get(rows[-1].tops[0], rows[-1].tops[0])
    with torch.no_grad():
        found = ours(x).numpy()
    expected = theirs.forward(logits)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected.reshape(found.shape), atol=1e-5)


def test_in_place_layers_change_what_is_read_after_them_and_not_what_was_read_before():
    rows = row("double Power data -> x", scale=2.0), row("before Power x", scale=1.0), row("positive ReLU x -> x")
    net = network(*rows, row("sum Eltwise before x"))
    x = pictures()
    torch.testing.assert_close(net(x), 2 * x + (2 * x).relu())


def test_names_that_torch_does_not_allow_are_changed():
    rows = row("v1.0.a Convolution data", **CONV), row("v1_0_a Convolution v1.0.a", **CONV)
    net = network(*rows, row("type ReLU v1_0_a"), row("shapes ReLU type"))
    assert [name for name, _ in net.named_children()] == ["v1_0_a", "v1_0_a_", "type_", "shapes_"]
    blobs = random_blobs(net)
    assert set(blobs) == {"v1.0.a", "v1_0_a"}
    net.load_blobs(blobs, "test")
    assert torch.equal(net.get_submodule("v1_0_a_").weight, blobs["v1_0_a"][0])
    assert net(pictures()).shape == (2, 4, 11, 9)


def test_blobs_are_let_go_after_their_last_reader():
    net = network(*INCEPTION).initialise()
    given, alive = {}, {}

    def note(name):
        return lambda _module, _inputs, output: given.update({name: ref(output)})

    for name, child in net.named_children():
        child.register_forward_hook(note(name))
    net.fc.register_forward_pre_hook(lambda *_: alive.update({k: one() is not None for k, one in given.items()}))
    with torch.no_grad():
        net(pictures())
    assert {name for name, there in alive.items() if there} == {"pool2"}


FC = row("fc InnerProduct data", num_output=5)


@pytest.mark.parametrize(
    "ending",
    [
        [row("prob Softmax fc -> fc")],
        [row("loss SigmoidCrossEntropyLoss fc label"), row("acc Accuracy fc label")],
        [row("prob Softmax fc"), row("loss MultinomialLogisticLoss prob label")],
        [row("s Split fc -> fc_0 fc_1"), row("prob Softmax fc_0"), row("acc Accuracy fc_1 label")],
        [row("other Convolution data", **CONV), row("quiet Silence other ->")],
    ],
    ids=lambda rows: " ".join(layer.kind for layer in rows),
)
def test_the_answer_is_the_logits(ending):
    net = CaffeNetwork(Network("net", {"data": SHAPE, "label": (1,)}, (FC, *ending)))
    assert [name for name, _ in net.named_children()] == ["fc"]
    assert net.initialise()(pictures()).shape == (2, 5)


def test_a_network_that_answers_for_each_place_or_for_one():
    net = network(row("score Convolution data", num_output=5, kernel_size=(11, 9))).initialise()
    large = pictures(shape=(1, 3, 13, 10))
    assert net(pictures()).shape == (2, 5)
    assert net(large).shape == (2, 5, 3, 2)
    torch.testing.assert_close(net(large)[:, :, 2, 1], net(large[..., 2:, 1:]))


TWO = (FC, row("other InnerProduct data", num_output=3), row("prob Softmax fc"))


def test_several_outputs_are_to_be_chosen_from():
    with pytest.raises(ModelError, match=r"net has several outputs, fc, other: choose one with output=, or"):
        network(*TWO)
    assert network(*TWO, output="other").initialise()(pictures()).shape == (2, 3)
    for output in ("fc", "prob"):
        net = network(*TWO, output=output)
        assert [name for name, _ in net.named_children()] == ["fc"]
    with pytest.raises(ModelError, match=r"no blob 'pool9' to answer with; it has fc, other, prob\."):
        network(*TWO, output="pool9")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("fc InnerProduct dat", num_output=5)], r"'fc' \(InnerProduct\) reads the blob 'dat', which no layer"),
        ([row("s Eltwise data im_info")], r"net takes data, im_info: excite can feed it one input"),
        ([row("c Convolution data", num_output=2, kernel_size=(12,))], r"'c' \(Convolution\).*input 1 x 3 x 11 x 9: "),
        ([row("p Pooling data", kernel_size=3, pad=2)], r"'p' \(Pooling\) does not fit its input"),
        (
            [row("p Pooling data", pool="AVE", global_pooling=True), row("s Eltwise p data")],
            r"'s' \(Eltwise\) combines blobs of different shapes: \(1, 3, 1, 1\), \(1, 3, 11, 9\)",
        ),
        ([row("p Pooling data", kernel_size=2), row("s Concat p data")], r"'s' \(Concat\).*1 x 3 x 10 x 8, 1 x 3 x 11"),
        ([row("f Flatten data", axis=2), row("p Pooling f", kernel_size=2)], r"'p' \(Pooling\) takes blobs of 4.* 3"),
        ([row("f Flatten data", axis=7)], r"'f' \(Flatten\) does not fit"),
    ],
)
def test_what_cannot_work_is_refused_at_once(rows, message):
    with pytest.raises(ModelError, match=message):
        CaffeNetwork(Network("net", {"data": SHAPE, "im_info": (1, 3)}, tuple(rows)))


def test_an_input_without_shape_needs_one():
    with pytest.raises(ModelError, match=r"does not say the shape of its input 'data': give shape=\(1, 3, height, w"):
        network(FC, shape=())
    net = CaffeNetwork(Network("net", {"data": ()}, (FC,)), shape=(9, 3, 2, 2))
    assert net.get_submodule("fc").in_features == 12
    assert net.shapes["data"] == (1, 3, 2, 2)


def test_a_transposed_inner_product():
    straight, turned = (network(row("fc InnerProduct data", num_output=5, transpose=turn)) for turn in (False, True))
    weight, bias = random_blobs(straight)["fc"]
    straight.load_blobs({"fc": [weight, bias]}, "test")
    turned.load_blobs({"fc": [weight.T, bias]}, "test")
    assert torch.equal(turned(pictures()), straight(pictures()))
    with pytest.raises(ModelError, match="takes a weight of shape 297 x 5, but that in test is 5 x 297"):
        turned.load_blobs({"fc": [weight, bias]}, "test")


def test_two_layers_of_one_name_share_their_weights():
    small = {"num_output": 3, "kernel_size": (1,)}
    net = network(row("c Convolution data -> one", **small), row("c Convolution one", **small))
    net.load_blobs(random_blobs(net), "test")
    assert torch.equal(net.get_submodule("c").weight, net.get_submodule("c_").weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc": []}, r"file.caffemodel has no weights for fc of net: it is cut off, or those of another n"),
        ({name: [] for name in ("fc", "bn", *"abcde")}, r"has no weights for a, b, c, d, e and 2 more of net"),
        ({"fc": [torch.ones(5)]}, r"'fc' \(InnerProduct\) has 2 blobs \(weight, bias\), but 1 in file"),
        ({"fc": [torch.ones(5), torch.ones(5)]}, r"'fc'.*a weight of shape 5 x 396, but that in file.* is 5: use"),
        ({"a": [torch.ones(4, 27), torch.ones(4)]}, r"shape 4 x 3 x 3 x 3, but .* is 4 x 27"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_nothing_is_changed(change, message):
    convolutions = [row(f"{name} Convolution {below}", **CONV) for below, name in pairwise(["data", *"abcde"])]
    net = network(*convolutions, row("bn BatchNorm e"), row("fc InnerProduct bn", num_output=5)).initialise()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(ModelError, match=message):
        net.load_blobs(random_blobs(net) | change, "file.caffemodel")
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_random_weights_depend_on_the_seed():
    with pytest.raises(ModelError, match=r"net has no weights yet: load_blobs\(...\) or initialise\(seed\) first"):
        network(FC)(pictures())
    first, again, other = (network(*RESIDUAL).initialise(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv2.weight"], other["conv2.weight"])
    assert not first["conv2.bias"].any()
    assert torch.equal(first["slope.weight"], torch.full((4,), 0.25))


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
    (mean, variance, factor), norm = blobs["bn"], nn.BatchNorm2d(4, eps=0.01)
    norm.load_state_dict(dict(zip(("weight", "bias"), blobs["scale"], strict=True)), strict=False)
    norm.running_mean, norm.running_var = mean / factor, variance / factor
    usual = nn.Sequential(net.below, net.low, net.conv, norm, nn.ReLU(), nn.Flatten(), nn.Linear(396, 5)).eval()
    usual[-1].load_state_dict(net.fc.state_dict())
    x = pictures(2)
    torch.testing.assert_close(net(x), usual(x))
    for contrastive in (False, True):
        found = mwp(net, x, 3, layer="low", contrastive=contrastive)
        expected = mwp(usual, x, 3, layer="1", contrastive=contrastive)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
