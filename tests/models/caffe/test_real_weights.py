"""Real weights of GoogleNet in Caffe's files: read by us and by OpenCV, in both formats, asked about images."""

import numpy as np
import pytest
import torch
from samples import photographs, top
from writing import files

import excite
from excite.models.caffe.reading import read_network, read_network_of_weights, read_weights


@pytest.fixture(scope="module")
def real(shared_data):
    folder = shared_data.parent / "weights"
    paths = folder / "bvlc_googlenet.prototxt", folder / "bvlc_googlenet.caffemodel"
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no real weights in {folder}")
    return paths


@pytest.fixture(scope="module")
def samples(shared_data):
    return [(picture.resize((224, 224)), unit) for picture, unit, _ in photographs(shared_data, 30, 10)]


@pytest.fixture(scope="module")
def known(real):
    return excite.load("googlenet", weights=real[1])


def logits(classifier, picture):
    with torch.inference_mode():
        return classifier.module(classifier.preprocess(picture)[None])


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


@pytest.mark.parametrize("old", [None, True, False], ids=["real", "old format", "new format"])
def test_all_readers_agree(known, real, samples, tmp_path, old):
    """Our own network, the one read from the files, and OpenCV's; also written again in Caffe's old format."""
    definition, weights = real
    if old is not None:
        paths = tmp_path / "deploy.prototxt", tmp_path / "net.caffemodel"
        for path, content in zip(paths, files(read_network(definition), read_weights(weights), old=old), strict=True):
            path.write_bytes(content)
        definition, weights = paths
    read = excite.load(definition, weights=weights)
    picture, unit = samples[1]
    expected = logits(known, picture)
    assert torch.equal(logits(read, picture), expected)
    for one, other in zip(excite.attend(read, picture, unit, layer="pool2/3x3_s2"),
                          excite.attend(known, picture, unit), strict=True):  # fmt: skip
        torch.testing.assert_close(one.values, other.values)
    cv2 = pytest.importorskip("cv2")
    net = cv2.dnn.readNetFromCaffe(str(definition), str(weights))
    net.setInput(known.preprocess(picture)[None].numpy())
    theirs = torch.from_numpy(np.array(net.forward("prob"))).reshape(1, -1)
    torch.testing.assert_close(theirs, expected.flatten(1).softmax(1), rtol=1e-3, atol=1e-5)
