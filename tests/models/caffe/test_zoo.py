"""The paper's networks: their sizes against numbers from elsewhere; test_papers_networks.py has their maps."""

import pytest
import torch

from excite.models.caffe.zoo import cnn_s, googlenet, vgg16

BUILDERS = {"cnn_s": cnn_s, "vgg16": vgg16, "googlenet": googlenet}
COUNTS = {"cnn_s": 102_908_520, "vgg16": 138_357_544, "googlenet": 6_998_552}  # as published

# Table 1 of "Going deeper with convolutions": inputs, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool proj, places
INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32, 28),
    "3b": (256, 128, 128, 192, 32, 96, 64, 28),
    "4a": (480, 192, 96, 208, 16, 48, 64, 14),
    "4b": (512, 160, 112, 224, 24, 64, 64, 14),
    "4c": (512, 128, 128, 256, 24, 64, 64, 14),
    "4d": (512, 112, 144, 288, 32, 64, 64, 14),
    "4e": (528, 256, 160, 320, 32, 128, 128, 14),
    "5a": (832, 256, 160, 320, 32, 128, 128, 7),
    "5b": (832, 384, 192, 384, 48, 128, 128, 7),
}


CNN_S_SHAPES = {
    "data": (3, 224, 224),
    "conv1": (96, 109, 109),
    "norm1": (96, 109, 109),
    "pool1": (96, 37, 37),  # 36 if the last window were left out
    "conv2": (256, 33, 33),
    "pool2": (256, 17, 17),  # not 16
    "conv3": (512, 17, 17),
    "conv4": (512, 17, 17),
    "conv5": (512, 17, 17),
    "pool5": (512, 6, 6),  # not 5
    "fc6": (4096,),
    "fc7": (4096,),
    "fc8": (1000,),
}


def vgg16_shapes():
    yield "data", (3, 224, 224)
    for stage, (number, outputs, places) in enumerate(
        [(2, 64, 224), (2, 128, 112), (3, 256, 56), (3, 512, 28), (3, 512, 14)], 1
    ):
        yield from ((f"conv{stage}_{place}", (outputs, places, places)) for place in range(1, number + 1))
        yield f"pool{stage}", (outputs, places // 2, places // 2)
    yield from {"fc6": (4096,), "fc7": (4096,), "fc8": (1000,)}.items()


def googlenet_shapes():
    yield "data", (3, 224, 224)
    yield "conv1/7x7_s2", (64, 112, 112)
    yield from ((name, (64, 56, 56)) for name in ("pool1/3x3_s2", "pool1/norm1", "conv2/3x3_reduce"))
    yield from ((name, (192, 56, 56)) for name in ("conv2/3x3", "conv2/norm2"))
    yield "pool2/3x3_s2", (192, 28, 28)
    for stage, (inputs, one, reduce3, three, reduce5, five, pooled, places) in INCEPTIONS.items():
        channels = {"1x1": one, "3x3_reduce": reduce3, "3x3": three, "5x5_reduce": reduce5, "5x5": five}
        channels |= {"pool": inputs, "pool_proj": pooled, "output": one + three + five + pooled}
        yield from ((f"inception_{stage}/{name}", (number, places, places)) for name, number in channels.items())
        if stage in {"3b", "4e"}:
            yield f"pool{stage[0]}/3x3_s2", (channels["output"], places // 2, places // 2)
    yield "pool5/7x7_s1", (1024, 1, 1)
    yield "loss3/classifier", (1000,)


SHAPES = {"cnn_s": CNN_S_SHAPES, "vgg16": dict(vgg16_shapes()), "googlenet": dict(googlenet_shapes())}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_blob_has_the_published_shape(name):
    found = BUILDERS[name]().shapes
    assert {blob: shape[1:] for blob, shape in found.items()} == SHAPES[name]
    assert list(found) == list(SHAPES[name])
    assert {shape[0] for shape in found.values()} == {1}
    assert sum(weight.numel() for weight in BUILDERS[name]().parameters()) == COUNTS[name]


def test_names_and_order_of_the_layers():
    assert " ".join(layer.name for layer in cnn_s().definition.layers) == (
        "conv1 relu1 norm1 pool1 conv2 relu2 pool2 conv3 relu3 conv4 relu4 conv5 relu5 pool5 "
        "fc6 relu6 drop6 fc7 relu7 drop7 fc8 prob"
    )
    assert " ".join(layer.name for layer in vgg16().definition.layers) == (
        "conv1_1 relu1_1 conv1_2 relu1_2 pool1 conv2_1 relu2_1 conv2_2 relu2_2 pool2 "
        "conv3_1 relu3_1 conv3_2 relu3_2 conv3_3 relu3_3 pool3 conv4_1 relu4_1 conv4_2 relu4_2 conv4_3 relu4_3 pool4 "
        "conv5_1 relu5_1 conv5_2 relu5_2 conv5_3 relu5_3 pool5 fc6 relu6 drop6 fc7 relu7 drop7 fc8 prob"
    )
    names = [layer.name for layer in googlenet().definition.layers]
    assert len(names) == len(set(names)) == 142
    assert (
        names[:10]
        == (
            "conv1/7x7_s2 conv1/relu_7x7 pool1/3x3_s2 pool1/norm1 conv2/3x3_reduce conv2/relu_3x3_reduce conv2/3x3 "
            "conv2/relu_3x3 conv2/norm2 pool2/3x3_s2"
        ).split()
    )
    assert names[10:24] == [
        f"inception_3a/{name}"
        for name in (
            "1x1 relu_1x1 3x3_reduce relu_3x3_reduce 3x3 relu_3x3 5x5_reduce relu_5x5_reduce 5x5 relu_5x5 pool "
            "pool_proj relu_pool_proj output"
        ).split()
    ]
    assert names[-4:] == ["pool5/7x7_s1", "pool5/drop_7x7_s1", "loss3/classifier", "prob"]


def test_weights_go_to_their_layers_and_those_of_other_heads_are_reported():
    network = googlenet()
    shapes = {name: child.state_dict() for name, child in network.named_children() if child.state_dict()}
    blobs = {name: [torch.zeros(blob.shape) for blob in found.values()] for name, found in shapes.items()}
    heads = {"loss1/classifier": [torch.zeros(1000, 1024)]}
    assert network.load_blobs({**blobs, **heads}, "test") == ["loss1/classifier"]
    assert not network(torch.rand(1, 3, 224, 224)).any()
