"""What the reader makes of a .prototxt, in the old and the new syntax, for use and for training."""

import pytest

from excite.errors import ModelError
from excite.models.caffe.definition import Layer
from excite.models.caffe.reading import read_network

# The styles of the three networks of the paper's Caffe files, cut down to a few layers.
CNN_S = """
name: "CNN_S"
input: "data" input_dim: 10 input_dim: 3 input_dim: 224 input_dim: 224
layers { bottom: "data" top: "conv1" name: "conv1" type: CONVOLUTION blobs_lr: 1 blobs_lr: 2 weight_decay: 1
  weight_decay: 0 convolution_param { num_output: 96 kernel_size: 7 stride: 2 } }
layers { bottom: "conv1" top: "conv1" name: "relu1" type: RELU }
layers { bottom: "conv1" top: "norm1" name: "norm1" type: LRN  # old style
  lrn_param { local_size: 5 alpha: 0.0005 beta: 0.75 k: 2 } }
layers { bottom: "norm1" top: "pool1" name: "pool1" type: POOLING pooling_param { pool: MAX kernel_size: 3 stride: 3 } }
layers { bottom: "pool1" top: "fc6" name: "fc6" type: INNER_PRODUCT inner_product_param { num_output: 4096 } }
layers { bottom: "fc6" top: "fc6" name: "drop6" type: DROPOUT dropout_param { dropout_ratio: 0.5 } }
layers { bottom: "fc6" top: "prob" name: "prob" type: SOFTMAX }
"""
GOOGLENET = """
name: "GoogleNet"
layer { name: "data" type: "Input" top: "data" input_param { shape: { dim: 10 dim: 3 dim: 224 dim: 224 } } }
layer {
  name: "conv1/7x7_s2" type: "Convolution" bottom: "data" top: "conv1/7x7_s2"
  param { lr_mult: 1 decay_mult: 1 }
  param { lr_mult: 2 decay_mult: 0 }
  convolution_param {
    num_output: 64 pad: 3 kernel_size: 7 stride: 2
    weight_filler { type: "xavier" std: 0.1 }
    bias_filler { type: "constant" value: 0.2 }
  }
}
layer { name: "pool" type: "Pooling" bottom: "conv1/7x7_s2" top: "pool"
        pooling_param { pool: AVE kernel_h: 3 kernel_w: 2 stride: 1 pad_h: 1 round_mode: FLOOR engine: CAFFE } }
layer { name: "output" type: "Concat" bottom: "conv1/7x7_s2" bottom: "pool" top: "output" concat_param { axis: -3 } }
layer { name: "norm" type: "BatchNorm" bottom: "output" top: "norm"
        batch_norm_param { use_global_stats: true eps: 1e-3 } }
layer { name: "sum" type: "Eltwise" bottom: "norm" bottom: "norm" top: "sum"
        eltwise_param { operation: SUM coeff: 1 coeff: -0.5 } }
layer { name: "flat" type: "Reshape" bottom: "sum" top: "flat" reshape_param { shape { dim: 0 dim: -1 } } }
"""
TRAINED_VGG = """
name: "VGG" state { stage: "deep" }
layer { name: "data" type: "ImageData" top: "data" top: "label" include { phase: TRAIN }
        transform_param { mirror: true crop_size: 224 mean_value: 104 mean_value: 117 }
        image_data_param { source: "train.txt" batch_size: 64 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
        data_param { source: "lmdb" backend: LMDB } }
layer { name: "fc8" type: "InnerProduct" bottom: "data" top: "fc8" inner_product_param { num_output: 2 } }
layer { name: "drop" type: "Dropout" bottom: "fc8" top: "fc8" exclude { phase: TEST } }
layer { name: "deep" type: "ReLU" bottom: "fc8" top: "fc8" include { stage: "deep" not_stage: "quick" max_level: 0 } }
layer { name: "quick" type: "ReLU" bottom: "fc8" top: "fc8" include { stage: "quick" } include { min_level: 1 } }
layer { name: "same" type: "Slice" bottom: "label" top: "half" top: "other" slice_param { axis: 0 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc8" bottom: "half" top: "loss" loss_param { normalize: true } }
layer { name: "top5" type: "Accuracy" bottom: "fc8" bottom: "label" top: "top5" accuracy_param { top_k: 5 } }
"""


def test_old_syntax(saved):
    network = read_network(saved(CNN_S))
    assert (network.name, network.inputs) == ("CNN_S", {"data": (10, 3, 224, 224)})
    assert [layer.kind for layer in network.layers] == [
        "Convolution", "ReLU", "LRN", "Pooling", "InnerProduct", "Dropout", "Softmax",
    ]  # fmt: skip
    convolution, relu, norm, *_ = network.layers
    options = {"num_output": 96, "kernel_size": (7,), "stride": (2,)}
    assert convolution == Layer("conv1", "Convolution", ("data",), ("conv1",), options)
    assert relu == Layer("relu1", "ReLU", ("conv1",), ("conv1",), {})
    assert norm.options == {"local_size": 5, "alpha": pytest.approx(0.0005), "beta": 0.75, "k": 2.0}


def test_new_syntax(saved):
    network = read_network(saved(GOOGLENET))
    assert network.inputs == {"data": (10, 3, 224, 224)}
    convolution, pool, concat, norm, eltwise, reshape = network.layers
    assert convolution.options == {"num_output": 64, "pad": (3,), "kernel_size": (7,), "stride": (2,)}
    assert pool.options == {
        "pool": "AVE", "kernel_h": 3, "kernel_w": 2, "stride": 1, "pad_h": 1, "round_mode": "FLOOR", "engine": "CAFFE",
    }  # fmt: skip
    assert concat.bottoms == ("conv1/7x7_s2", "pool")
    assert concat.options == {"axis": -3}
    assert norm.options == {"use_global_stats": True, "eps": pytest.approx(1e-3)}
    assert eltwise.options == {"operation": "SUM", "coeff": (1.0, -0.5)}
    assert reshape.options == {"shape": (0, -1)}


def test_a_file_for_training_gives_the_network_in_use(saved):
    network = read_network(saved(TRAINED_VGG))
    assert (network.inputs, [layer.name for layer in network.layers]) == ({"data": ()}, ["fc8", "deep"])


def test_several_inputs(saved):
    layer = 'layer { name: "r" type: "ReLU" bottom: "a" top: "b" }'
    shapes = "input_shape { dim: 1 dim: 2 } input_shape { dim: 5 }"
    assert read_network(saved(f'input: "a" input: "b" {shapes} {layer}')).inputs == {"a": (1, 2), "b": (5,)}
    assert read_network(saved(f'input: "a" {layer}')).inputs == {"a": ()}
    both = 'layer { name: "in" type: "Input" top: "a" top: "b" input_param { %s } }'
    assert read_network(saved(both % "shape { dim: 7 }" + layer)).inputs == {"a": (7,), "b": (7,)}
    assert read_network(saved(both % "" + layer)).inputs == {"a": (), "b": ()}
    for wrong in (
        f'input: "a" input: "b" input_dim: 1 input_dim: 3 input_dim: 2 input_dim: 2 {layer}',
        f'input: "a" input_dim: 1 input_dim: 3 {layer}',
        f'input: "a" input_shape {{ dim: 0 }} {layer}',
        f'input: "a" input_shape {{ dim: 1 dim: {2**40} }} {layer}',
        f'input: "a" input: "a" {layer}',
        f'input: "b" {both % ""} {layer}',
        both % "shape { dim: 1 } shape { dim: 2 } shape { dim: 3 }" + layer,
    ):
        with pytest.raises(ModelError, match=r"input|shapes"):
            read_network(saved(wrong))


def test_a_layer_of_an_unsupported_kind_is_there_with_its_kind(saved):
    text = """
      layer { name: "odd" type: "SpatialTransformer" bottom: "a" top: "b"  # a brace } in a comment
        st_param { theta_1_1: 0.5 list: [1, 2] nested < text: "a } brace" > } }
      layer { name: "crop" type: "Crop" bottom: "b" top: "c" crop_param { axis: 2 offset: 4 } }
      layer { name: "relu" type: "ReLU" bottom: "c" top: "d" }
    """
    assert [layer.kind for layer in read_network(saved(text)).layers] == ["SpatialTransformer", "Crop", "ReLU"]
    with pytest.raises(ModelError, match=r'line 6: .*no field named "negative_slop"'):
        read_network(saved(text + 'layer { type: "ReLU" relu_param { negative_slop: 1 } }'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('layer {\n name: "c"\n type: "Convolution"\n foo: 1 }', 'line 4: .*"LayerParameter" has no field named "foo"'),
        ('layer {\n type: "Convolution" convolution_param { kernel: 3 } }', r'line 2: .*no field named "kernel"'),
        ("layers { type: WARP }", "line 1: .*no value named WARP"),
        ("layer { type: CONVOLUTION }", "line 1: .*Expected string"),
        ('layer { type: "Pooling" pooling_param { pool: MEAN } }', "no value named MEAN"),
        ('layer { type: "Pooling" pooling_param { kernel_size: -3 } }', "line 1"),
        ('layer { type: "LRN" lrn_param { alpha: 1e99 } }', "alpha of layer"),
        ('layer { type: "InnerProduct" name: "f" inner_product_param { num_output: 1099511627776 } }', "of layer 'f'"),
        ('layer { name: "n" }', "layer 'n' says no type"),
        ('layer { type: "ReLU" } layers { type: RELU }', "keep one"),
        ('layer { name: "r" type: "ReLU" include { } exclude { } }', "one or the other"),
        ('layers { layer { name: "c" type: "conv" num_output: 3 } bottom: "a" top: "b" }', r"2013 \(V0\)"),
        ("# nothing", "no layers"),
        ('layer { type: "EuclideanLoss" bottom: "a" bottom: "b" top: "c" }', "none is left"),
        ("net: 'train.prototxt' base_lr: 0.1", "has no field named"),
        ("layer { " * 5000, "nested more than 16 deep"),
        ("layer { name: " + "[" * 5000, "nested more than 16 deep"),
        ("layer { }" * 2**15, "more than 4096 layers"),
        ("}}}} layer {", "line 1"),
        ('layer { name: "' + '\\"' * 100_000, "line 1"),
        ("layer { name: 'a", "line 1"),
    ],
)
def test_what_is_wrong_with_a_text(saved, text, message):
    with pytest.raises(ModelError, match=message) as caught:
        read_network(saved(text, "deploy.prototxt"))
    assert "deploy.prototxt" in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)
