"""Caffe's file format: the messages of the supported layers as protobuf classes, and a network in plain Python.

The classes are made at run time in a pool of their own, so that nothing clashes with an installed Caffe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from excite.errors import ModelError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto


PACKAGE = "excite.caffe"

ENUMS = {
    "Phase": "TRAIN 0, TEST 1",
    "Engine": "DEFAULT 0, CAFFE 1, CUDNN 2",
    "VarianceNorm": "FAN_IN 0, FAN_OUT 1, AVERAGE 2",
    "DimCheckMode": "STRICT 0, PERMISSIVE 1",
    "NormalizationMode": "FULL 0, VALID 1, BATCH_SIZE 2, NONE 3",
    "PoolMethod": "MAX 0, AVE 1, STOCHASTIC 2",
    "RoundMode": "CEIL 0, FLOOR 1",
    "EltwiseOp": "PROD 0, SUM 1, MAX 2",
    "NormRegion": "ACROSS_CHANNELS 0, WITHIN_CHANNEL 1",
    "LayerType": """NONE 0, ACCURACY 1, BNLL 2, CONCAT 3, CONVOLUTION 4, DATA 5, DROPOUT 6, EUCLIDEAN_LOSS 7, FLATTEN 8,
        HDF5_DATA 9, HDF5_OUTPUT 10, IM2COL 11, IMAGE_DATA 12, INFOGAIN_LOSS 13, INNER_PRODUCT 14, LRN 15,
        MULTINOMIAL_LOGISTIC_LOSS 16, POOLING 17, RELU 18, SIGMOID 19, SOFTMAX 20, SOFTMAX_LOSS 21, SPLIT 22, TANH 23,
        WINDOW_DATA 24, ELTWISE 25, POWER 26, SIGMOID_CROSS_ENTROPY_LOSS 27, HINGE_LOSS 28, MEMORY_DATA 29, ARGMAX 30,
        THRESHOLD 31, DUMMY_DATA 32, SLICE 33, MVN 34, ABSVAL 35, SILENCE 36, CONTRASTIVE_LOSS 37, EXP 38,
        DECONVOLUTION 39""",
}

# "name type number" with * for a repeated field. Integers are wider than Caffe's, so that none wraps around.
MESSAGES = {
    "BlobShape": "dim int64* 1",
    "BlobProto": """num int64 1, channels int64 2, height int64 3, width int64 4, data float* 5, diff float* 6,
        shape BlobShape 7, double_data double* 8, double_diff double* 9""",
    "FillerParameter": """type string 1, value float 2, min float 3, max float 4, mean float 5, std float 6,
        sparse int64 7, variance_norm VarianceNorm 8""",
    "NetState": "phase Phase 1, level int64 2, stage string* 3",
    "NetStateRule": "phase Phase 1, min_level int64 2, max_level int64 3, stage string* 4, not_stage string* 5",
    "ParamSpec": "name string 1, share_mode DimCheckMode 2, lr_mult float 3, decay_mult float 4",
    "TransformationParameter": """scale float 1, mirror bool 2, crop_size uint64 3, mean_file string 4,
        mean_value float* 5, force_color bool 6, force_gray bool 7""",
    "LossParameter": "ignore_label int64 1, normalize bool 2, normalization NormalizationMode 3",
    "BatchNormParameter": "use_global_stats bool 1, moving_average_fraction float 2, eps float 3",
    "BiasParameter": "axis int64 1, num_axes int64 2, filler FillerParameter 3",
    "ConcatParameter": "concat_dim uint64 1, axis int64 2",
    "ConvolutionParameter": """num_output uint64 1, bias_term bool 2, pad uint64* 3, kernel_size uint64* 4,
        group uint64 5, stride uint64* 6, weight_filler FillerParameter 7, bias_filler FillerParameter 8,
        pad_h uint64 9, pad_w uint64 10, kernel_h uint64 11, kernel_w uint64 12, stride_h uint64 13,
        stride_w uint64 14, engine Engine 15, axis int64 16, force_nd_im2col bool 17, dilation uint64* 18""",
    "DropoutParameter": "dropout_ratio float 1",
    "EltwiseParameter": "operation EltwiseOp 1, coeff float* 2, stable_prod_grad bool 3",
    "ELUParameter": "alpha float 1",
    "FlattenParameter": "axis int64 1, end_axis int64 2",
    "InnerProductParameter": """num_output uint64 1, bias_term bool 2, weight_filler FillerParameter 3,
        bias_filler FillerParameter 4, axis int64 5, transpose bool 6""",
    "InputParameter": "shape BlobShape* 1",
    "LRNParameter": """local_size uint64 1, alpha float 2, beta float 3, norm_region NormRegion 4, k float 5,
        engine Engine 6""",
    "PoolingParameter": """pool PoolMethod 1, kernel_size uint64 2, stride uint64 3, pad uint64 4, kernel_h uint64 5,
        kernel_w uint64 6, stride_h uint64 7, stride_w uint64 8, pad_h uint64 9, pad_w uint64 10, engine Engine 11,
        global_pooling bool 12, round_mode RoundMode 13""",
    "PowerParameter": "power float 1, scale float 2, shift float 3",
    "PReLUParameter": "filler FillerParameter 1, channel_shared bool 2",
    "ReLUParameter": "negative_slope float 1, engine Engine 2",
    "ReshapeParameter": "shape BlobShape 1, axis int64 2, num_axes int64 3",
    "ScaleParameter": """axis int64 1, num_axes int64 2, filler FillerParameter 3, bias_term bool 4,
        bias_filler FillerParameter 5""",
    "SigmoidParameter": "engine Engine 1",
    "SoftmaxParameter": "engine Engine 1, axis int64 2",
    "TanHParameter": "engine Engine 1",
    "LayerParameter": """name string 1, type string 2, bottom string* 3, top string* 4, loss_weight float* 5,
        param ParamSpec* 6, blobs BlobProto* 7, include NetStateRule* 8, exclude NetStateRule* 9, phase Phase 10,
        propagate_down bool* 11, transform_param TransformationParameter 100, loss_param LossParameter 101,
        concat_param ConcatParameter 104, convolution_param ConvolutionParameter 106,
        dropout_param DropoutParameter 108, eltwise_param EltwiseParameter 110,
        inner_product_param InnerProductParameter 117, lrn_param LRNParameter 118, pooling_param PoolingParameter 121,
        power_param PowerParameter 122, relu_param ReLUParameter 123, sigmoid_param SigmoidParameter 124,
        softmax_param SoftmaxParameter 125, tanh_param TanHParameter 127, prelu_param PReLUParameter 131,
        reshape_param ReshapeParameter 133, flatten_param FlattenParameter 135, batch_norm_param BatchNormParameter 139,
        elu_param ELUParameter 140, bias_param BiasParameter 141, scale_param ScaleParameter 142,
        input_param InputParameter 143""",
    "V0LayerParameter": "",  # only to be recognised
    "V1LayerParameter": """layer V0LayerParameter 1, bottom string* 2, top string* 3, name string 4, type LayerType 5,
        blobs BlobProto* 6, blobs_lr float* 7, weight_decay float* 8, concat_param ConcatParameter 9,
        convolution_param ConvolutionParameter 10, dropout_param DropoutParameter 12,
        inner_product_param InnerProductParameter 17, lrn_param LRNParameter 18, pooling_param PoolingParameter 19,
        power_param PowerParameter 21, eltwise_param EltwiseParameter 24, relu_param ReLUParameter 30,
        include NetStateRule* 32, exclude NetStateRule* 33, loss_weight float* 35,
        transform_param TransformationParameter 36, tanh_param TanHParameter 37, sigmoid_param SigmoidParameter 38,
        softmax_param SoftmaxParameter 39, loss_param LossParameter 42, param string* 1001,
        blob_share_mode DimCheckMode* 1002""",
    "NetParameter": """name string 1, layers V1LayerParameter* 2, input string* 3, input_dim int64* 4,
        force_backward bool 5, state NetState 6, debug_info bool 7, input_shape BlobShape* 8,
        layer LayerParameter* 100""",
}

PARAMETERS_OF = {  # the supported layers, and the field of their options
    "BatchNorm": "batch_norm_param",
    "Bias": "bias_param",
    "Concat": "concat_param",
    "Convolution": "convolution_param",
    "Deconvolution": "convolution_param",
    "Dropout": "dropout_param",
    "ELU": "elu_param",
    "Eltwise": "eltwise_param",
    "Flatten": "flatten_param",
    "InnerProduct": "inner_product_param",
    "Input": "input_param",
    "LRN": "lrn_param",
    "PReLU": "prelu_param",
    "Pooling": "pooling_param",
    "Power": "power_param",
    "ReLU": "relu_param",
    "Reshape": "reshape_param",
    "Scale": "scale_param",
    "Sigmoid": "sigmoid_param",
    "Softmax": "softmax_param",
    "TanH": "tanh_param",
}

UNEVEN_NAMES = {  # the others are the old word in camel case
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "IM2COL": "Im2col",
    "LRN": "LRN",
    "MVN": "MVN",
    "RELU": "ReLU",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
}


def _entries(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.split(",") if entry.strip()]


KIND_OF_V1 = {word: UNEVEN_NAMES.get(word, word.title().replace("_", "")) for word, _ in _entries(ENUMS["LayerType"])}


@cache
def messages() -> dict[str, Any]:
    """The protobuf class of each message, by Caffe's name.

    Raises:
        ModelError: protobuf is not installed.

    Example:
        >>> layer = messages()["LayerParameter"](name="conv1", type="Convolution")
        >>> layer.convolution_param.kernel_size.append(3)
        >>> layer.SerializeToString().hex(" ")
        '0a 05 63 6f 6e 76 31 12 0b 43 6f 6e 76 6f 6c 75 74 69 6f 6e d2 06 02 20 03'
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ModelError("Reading Caffe's files needs protobuf: pip install 'excite[caffe]'.") from error
    file = descriptor_pb2.FileDescriptorProto(name="excite/caffe.proto", package=PACKAGE, syntax="proto2")
    for name, table in ENUMS.items():
        holder = file.message_type.add(name=name)  # a scope of its own: two enumerations have a MAX
        values = holder.enum_type.add(name="Value").value
        for word, number in _entries(table):
            values.add(name=word, number=int(number))
    for name, table in MESSAGES.items():
        _add_fields(file.message_type.add(name=name), table)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


def kind_of(layer: Any) -> str:
    """The type of a layer message of either format, as the new one spells it; "" where it has none."""
    if not layer.HasField("type"):
        return ""
    if isinstance(layer.type, int):
        return KIND_OF_V1[layer.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[layer.type].name]
    kind: str = layer.type
    return kind


def _add_fields(message: "DescriptorProto", table: str) -> None:
    for name, kind, number in _entries(table):
        field = message.field.add(name=name, number=int(number), label="LABEL_OPTIONAL")
        if kind.endswith("*"):
            field.label = field.LABEL_REPEATED
        _set_type(field, kind.removesuffix("*"))


def _set_type(field: "FieldDescriptorProto", kind: str) -> None:
    if kind in ENUMS:
        field.type, field.type_name = field.TYPE_ENUM, f".{PACKAGE}.{kind}.Value"
    elif kind in MESSAGES:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")


@dataclass(frozen=True)
class Layer:
    """One layer of a Caffe network.

    Attributes:
        name: Its name, which is also that of its weights.
        kind: Its type, as the new format spells it: "Convolution", "InnerProduct", ...
        bottoms: The blobs it reads.
        tops: The blobs it writes; the same as a bottom where it works in place.
        options: Its parameters under Caffe's names, lists as tuples and enumerations as words:
            ``{"num_output": 96, "kernel_size": (7,), "stride": (2,)}``.
    """

    name: str
    kind: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """A network in its test phase; ``inputs`` are blobs with their shapes [N, C, H, W], or () where unknown."""

    name: str
    inputs: Mapping[str, tuple[int, ...]]
    layers: tuple[Layer, ...]
