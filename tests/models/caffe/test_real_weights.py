"""Real weights of GoogleNet in Caffe's files: as they came, written again in each format that there is, by excite and
by OpenCV, on photographs.

What is written again is not what excite read of the file, but what protobuf reads by a schema of its own.
"""

import numpy as np
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.text_format import MessageToString
from samples import photographs, top
from writing import OLD_KINDS, message, pieces

import excite
from excite.errors import ModelError
from excite.models.caffe.network import CaffeNetwork
from excite.models.caffe.reading import net_parameter, read_network, read_network_of_weights, read_weights

TRAIN, TEST = 0, 1
HEADS = {"loss1": "inception_4a/output", "loss2": "inception_4d/output"}  # that only training has, and what they read
SCHEMA = """name: "blobs.proto" package: "blobs"
    message_type { name: "Shape" field { name: "dim" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
    message_type { name: "Blob"
        field { name: "data" number: 5 type: TYPE_FLOAT label: LABEL_REPEATED options { packed: true } }
        field { name: "shape" number: 7 type: TYPE_MESSAGE type_name: ".blobs.Shape" label: LABEL_OPTIONAL } }
    message_type { name: "Layer"
        field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "blobs" number: 7 type: TYPE_MESSAGE type_name: ".blobs.Blob" label: LABEL_REPEATED } }
    message_type { name: "Net"
        field { name: "layers" number: 2 type: TYPE_BYTES label: LABEL_REPEATED }
        field { name: "layer" number: 100 type: TYPE_MESSAGE type_name: ".blobs.Layer" label: LABEL_REPEATED } }"""


@pytest.fixture(scope="module")
def real(shared_data):
    folder = shared_data.parent / "weights"
    paths = folder / "bvlc_googlenet.prototxt", folder / "bvlc_googlenet.caffemodel"
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no real weights in {folder}")
    return paths


@pytest.fixture(scope="module")
def blobs(real):
    """The weights of each layer, by protobuf alone."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(SCHEMA, descriptor_pb2.FileDescriptorProto()))
    net = message_factory.GetMessageClass(pool.FindMessageTypeByName("blobs.Net")).FromString(real[1].read_bytes())
    assert (len(net.layers), len(net.layer)) == (0, 58)  # the file is of the new format
    return {
        layer.name: [torch.tensor(np.array(blob.data, "<f4")).reshape(*blob.shape.dim) for blob in layer.blobs]
        for layer in net.layer
    }


@pytest.fixture(scope="module")
def samples(shared_data):
    return [(picture.resize((224, 224)), unit) for picture, unit, _ in photographs(shared_data, 30, 10)]


@pytest.fixture(scope="module")
def known(real):
    return excite.load("googlenet", weights=real[1])


@pytest.fixture(scope="module")
def expected(known, samples):
    """What the network answers to two photographs, with the file as it is."""
    return [logits(known, picture) for picture, _ in samples[:2]]


def logits(classifier, picture):
    with torch.inference_mode():
        return classifier.module(classifier.preprocess(picture)[None])


def same(classifier, samples, expected):
    """Whether it answers bit for bit as expected."""
    return all(
        torch.equal(logits(classifier, picture), one) for (picture, _), one in zip(samples, expected, strict=False)
    )


def head(name, bottom):
    """The definition of a head of GoogleNet that only training has, in the old format, with weights for it."""
    rows = f"""layers {{ name: "{name}/ave_pool" type: POOLING bottom: "{bottom}" top: "{name}/ave_pool"
            pooling_param {{ pool: AVE kernel_size: 5 stride: 3 }} }}
        layers {{ name: "{name}/conv" type: CONVOLUTION bottom: "{name}/ave_pool" top: "{name}/conv"
            blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0
            convolution_param {{ num_output: 8 kernel_size: 1 weight_filler {{ type: "xavier" std: 0.08 }} }} }}
        layers {{ name: "{name}/relu_conv" type: RELU bottom: "{name}/conv" top: "{name}/conv" }}
        layers {{ name: "{name}/classifier" type: INNER_PRODUCT bottom: "{name}/conv" top: "{name}/classifier"
            blobs_lr: 1 blobs_lr: 2 inner_product_param {{ num_output: 1000 }} }}
        layers {{ name: "{name}/loss" type: SOFTMAX_LOSS bottom: "{name}/classifier" bottom: "label" top: "{name}/loss"
            loss_weight: 0.3 }}"""
    channels = {"loss1": 512, "loss2": 528}[name]
    weights = {f"{name}/conv": (8, channels, 1, 1), f"{name}/classifier": (1000, 128)}
    blobs = {layer: [torch.ones(shape), torch.ones(shape[0])] for layer, shape in weights.items()}
    return text_format.Parse(rows, net_parameter()()).layers, blobs


def as_trained(definition, blobs, phases=(TRAIN,)):
    """As training saves it: in the old format, with data, learning rates, a split, two more heads, and losses.

    The text that it is trained by has the data of both phases.
    """
    net, blobs = net_parameter()(name=definition.name), dict(blobs)
    for phase in phases:
        data = net.layers.add(name="data", type=OLD_KINDS["DATA"], top=["data", "label"])
        data.include.add(phase=phase)
    for layer in message(definition, old=True).layers:
        if layer.name == "prob":
            net.layers.add(name="split", type=OLD_KINDS["SPLIT"], bottom=["label"], top=["label_0", "label_1"])
            bottoms = ["loss3/classifier", "label_0"]
            net.layers.add(name="loss3/loss3", type=OLD_KINDS["SOFTMAXLOSS"], bottom=bottoms, top=["loss3/loss3"])
            continue
        net.layers.add().CopyFrom(layer)
        if layer.name in blobs:
            net.layers[-1].blobs_lr.extend([1, 2])
            net.layers[-1].weight_decay.extend([1, 0])
        for name in [name for name, bottom in HEADS.items() if bottom == layer.name]:
            layers, more = head(name, layer.name)
            net.layers.extend(layers)
            blobs |= more
    return net, blobs


def test_the_right_class_and_a_map_of_a_wide_image(known, samples):
    right = sum(top(known, picture) == [unit] for picture, unit in samples)
    assert right >= 6  # its true rate is about 69 %
    picture, unit = samples[0]
    (found,) = excite.attend(known, picture.resize((335, 224)), unit)
    assert (found.layer, found.values.shape) == ("pool2/3x3_s2", (28, 42))


def test_our_definition_is_that_of_the_file(known, real):
    ours, theirs = known.module.network.definition, read_network(real[0])
    assert [(layer.name, layer.kind, layer.bottoms) for layer in ours.layers] == [
        (layer.name, layer.kind, layer.bottoms) for layer in theirs.layers
    ]
    assert dict(ours.inputs) == dict(theirs.inputs)
    with_weights = {layer.name for layer in theirs.layers if layer.kind in {"Convolution", "InnerProduct"}}
    assert {layer.name for layer in read_network_of_weights(real[1]).layers} == with_weights


def test_the_weights_are_those_that_protobuf_reads(real, blobs):
    found = read_weights(real[1])
    assert list(found) == list(blobs)
    assert sum(blob.numel() for layer in blobs.values() for blob in layer) == 6_998_552
    for name, expected in blobs.items():
        assert len(found[name]) == len(expected)
        assert all(torch.equal(one, other) for one, other in zip(found[name], expected, strict=True))


@pytest.mark.parametrize("form", ["old", "new", "new, old shapes", "as trained"])
def test_every_format_gives_the_same_bits(real, blobs, samples, expected, tmp_path, form):
    """By name, and by the definition in the format of the weights and in that in which it came."""
    definition, text, weights = read_network(real[0]), tmp_path / "deploy.prototxt", tmp_path / "net.caffemodel"
    net = message(definition, old=form in {"old", "as trained"})
    text.write_text(MessageToString(net))
    assert ("layers {" in text.read_text()) == (form in {"old", "as trained"})
    net, blobs = as_trained(definition, blobs) if form == "as trained" else (net, blobs)
    weights.write_bytes(b"".join(pieces(net, blobs, old_shapes=True if "shapes" in form else None)))
    for model in ("googlenet", text, real[0]):
        assert same(excite.load(model, weights=weights), samples, expected), model
    if form != "as trained":  # it describes itself, too
        assert same(excite.load(weights), samples, expected)


def test_the_definition_in_the_file_gives_the_same_bits_and_the_same_map(real, known, samples, expected):
    definition, weights = real
    read = excite.load(definition, weights=weights)
    assert same(read, samples, expected)
    picture, unit = samples[1]
    (one,) = excite.attend(read, picture, unit, layer="pool2/3x3_s2")
    (other,) = excite.attend(known, picture, unit)
    assert torch.equal(torch.as_tensor(one.values), torch.as_tensor(other.values))


def test_a_network_as_trained_has_three_outputs(real, blobs, samples, expected, tmp_path):
    """Its own definition is not one for use, and the error says what is."""
    net, blobs = as_trained(read_network(real[0]), blobs)
    paths = weights, text = tmp_path / "net.caffemodel", tmp_path / "train_val.prototxt"
    weights.write_bytes(b"".join(pieces(net, blobs)))
    text.write_text(MessageToString(as_trained(read_network(real[0]), (), (TRAIN, TEST))[0]))
    for path in paths:
        with pytest.raises(ModelError, match=r"loss1/classifier, loss2/classifier, loss3/.*take its deploy\.prototxt"):
            excite.load(path, weights=weights if path == text else None)
    chosen = CaffeNetwork(read_network(text), "loss3/classifier", shape=(1, 3, 224, 224))
    assert chosen.load_blobs(read_weights(weights)) == [
        "loss1/conv",
        "loss1/classifier",
        "loss2/conv",
        "loss2/classifier",
    ]
    classifier = excite.load(real[0], weights=weights)
    with torch.inference_mode():
        found = chosen(classifier.preprocess(samples[0][0])[None])
    assert torch.equal(found, expected[0].flatten(1))


@pytest.mark.parametrize("old", [None, True], ids=["as it is", "old format"])
def test_opencv_gives_the_same_probabilities(real, blobs, known, samples, tmp_path, old):
    cv2 = pytest.importorskip("cv2")
    text, weights = real
    if old:
        net = message(read_network(text), old=True)
        text, weights = tmp_path / "deploy.prototxt", tmp_path / "net.caffemodel"
        text.write_text(MessageToString(net))
        weights.write_bytes(b"".join(pieces(net, blobs)))
    theirs = cv2.dnn.readNetFromCaffe(str(text), str(weights))
    furthest = 0.0
    for picture, _ in samples:
        theirs.setInput(known.preprocess(picture)[None].numpy())
        found = torch.from_numpy(np.array(theirs.forward("prob"))).flatten()
        ours = logits(known, picture).flatten().softmax(0)
        furthest = max(furthest, float((found - ours).abs().max()))
        assert ours.max() > 0.1
    print(f"\nOpenCV {cv2.__version__}, {len(samples)} photographs: probabilities differ by {furthest:.1e} at most")
    assert furthest < 1e-5


@pytest.mark.parametrize(
    ("model", "make", "message"),
    [
        ("googlenet", lambda _, weights: weights[:20_000_000], "it is cut short, get it again"),
        ("googlenet", lambda _, weights: weights[:-1], "it is cut short, get it again"),
        (
            "googlenet",
            lambda _, weights: weights[:-4_100_068],
            "no weights for loss3/classifier of GoogleNet: it is cut",
        ),
        ("vgg16", lambda _, weights: weights, "no weights for conv1_1, .* of VGG_ILSVRC_16_layers: .* another network"),
        ("cnn-s", lambda _, weights: weights, "no weights for conv1, .* of VGG_CNN_S: .* another network"),
        ("resnet50-caffe", lambda _, weights: weights, "is of a Caffe network, but ResNet50 is none"),
        ("googlenet", lambda text, _: text, "is text, as a .prototxt is: the weights are in the binary .caffemodel"),
        (None, lambda _, weights: weights, "GoogleNet has no output: take its deploy.prototxt"),
    ],
    ids="cut,last byte,last layer,vgg16,cnn-s,resnet,text,alone".split(","),
)
def test_the_wrong_file_is_one_line_that_says_what_to_do(real, tmp_path, model, make, message):
    path = tmp_path / "given.caffemodel"
    path.write_bytes(make(*(file.read_bytes() for file in real)))
    with pytest.raises(ModelError, match=message) as caught:
        excite.load(model or path, weights=path if model else None)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_definition_given_as_the_weights(real):
    with pytest.raises(ModelError, match=r"prototxt holds no weights; give .* or a \.caffemodel"):
        excite.load("googlenet", weights=real[0])
