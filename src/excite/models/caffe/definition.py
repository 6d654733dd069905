"""A Caffe network in plain Python, made from a NetParameter message of the V1 or the new format, in its test phase."""

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import repeat
from math import isfinite
from typing import Any

# The supported layers have their options in a field of this name and "_param", spelled as the kind in lower case.
_OPTIONS = """batch_norm bias concat convolution dropout elu eltwise flatten inner_product input lrn prelu pooling power
    relu reshape scale sigmoid softmax tanh"""
PARAMETERS_OF = {name.replace("_", ""): f"{name}_param" for name in _OPTIONS.split()}
PARAMETERS_OF["deconvolution"] = "convolution_param"
TRAINING = "Training"  # the message of what only training reads
OUTDATED = "it is in Caffe's format of 2013 (V0); Caffe's upgrade_net_proto_{} makes a newer file of it"

SOURCES = set("Input AnnotatedData Data DummyData HDF5Data ImageData MemoryData WindowData".split())
ENDS = {"Accuracy", "HDF5Output", "Silence"}  # and all that end in Loss: they feed nothing
LARGEST = 2**31 - 1  # Caffe's integers
UNEVEN_NAMES = {  # of V1; the others are the old word in camel case
    "ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output",
    "IM2COL": "Im2col", "LRN": "LRN", "MVN": "MVN", "RELU": "ReLU", "SOFTMAX_LOSS": "SoftmaxWithLoss", "TANH": "TanH",
}  # fmt: skip
TEST = 1  # the phase


class BrokenFile(Exception):  # noqa: N818 -- never seen by users: it becomes a ModelError that names the file
    """The bytes are not Caffe's; the message says why, without the name of the file."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a Caffe network."""

    name: str  # also that of its weights
    kind: str
    bottoms: tuple[str, ...]  # the blobs that it reads
    tops: tuple[str, ...]  # and writes
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # {"num_output": 96, "kernel_size": (7,)}


@dataclasses.dataclass(frozen=True)
class Network:
    """A network in its test phase; ``inputs`` are blobs with their shapes [N, C, H, W], or () where unknown."""

    name: str
    inputs: Mapping[str, tuple[int, ...]]
    layers: tuple[Layer, ...]


def network_of(net: Any, *, filtered: bool = False) -> Network:
    """The network of a NetParameter; ``filtered`` where only one phase is left, as in a trained .caffemodel."""
    if any(layer.HasField("layer") for layer in net.layers):
        raise BrokenFile(OUTDATED.format("text"))
    if net.layer and net.layers:
        raise BrokenFile("it has layers of the old format ('layers') and of the new one ('layer'): keep one")
    if not net.layer and not net.layers:
        raise BrokenFile("it has no layers")
    _check_fields(net, "the network", deep=False)
    inputs: dict[str, tuple[int, ...]] = {}
    layers: list[Layer] = []
    labels: set[str] = set()
    _feed(inputs, _declared_inputs(net))
    for message in net.layer or net.layers:
        if not filtered and not _used(message, net.state):
            continue
        layer = _layer(message)
        if layer.kind in SOURCES:
            _feed(inputs, _fed_by(layer))
            labels.update(set(layer.tops) - set(inputs))
        elif layer.bottoms and labels.issuperset(layer.bottoms):
            labels.update(layer.tops)
        elif layer.kind not in ENDS and not layer.kind.endswith("Loss"):
            layers.append(layer)
    if not layers:
        raise BrokenFile("all its layers are for training: none is left in the test phase")
    return Network(name=_text(net.name), inputs=inputs, layers=tuple(layers))


def kind_of(layer: Any) -> str:
    """The type of a layer message of either format, as the new one spells it; "" where it has none."""
    if not layer.HasField("type"):
        return ""
    if isinstance(layer.type, str | bytes):
        return _text(layer.type)
    word: str = layer.LayerType.Name(layer.type)
    return UNEVEN_NAMES.get(word, word.title().replace("_", ""))


def _check_fields(message: Any, where: str, *, deep: bool = True) -> None:
    """Refuse fields that are not in the schema, which a binary message may have."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    unknown, kind = UnknownFieldSet(message), message.DESCRIPTOR.name
    if len(unknown) and kind != TRAINING:
        raise BrokenFile(f"{where} has a field {unknown[0].field_number} in its {kind}, which excite does not know")
    for field, value in message.ListFields() if deep else ():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                _check_fields(part, where)


def _declared_inputs(net: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The inputs that are declared before the layers, as in old files."""
    names = [_text(name) for name in net.input]
    if net.input_shape:
        shapes = [tuple(shape.dim) for shape in net.input_shape]
    elif net.input_dim:
        sizes = list(net.input_dim)
        shapes = [tuple(sizes[at : at + 4]) for at in range(0, len(sizes), 4)]
    else:
        shapes = [()] * len(names)
    if len(shapes) != len(names) or (net.input_dim and (net.input_shape or len(net.input_dim) % 4)):
        raise BrokenFile(f"the sizes of its inputs do not fit their number, {len(names)}")
    return zip(names, shapes, strict=True)


def _fed_by(layer: Layer) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The blobs that a layer without bottoms feeds: the images of a data layer, all tops of an Input layer."""
    if layer.kind != "Input":
        return zip(layer.tops[:1], [()], strict=False)
    shapes: tuple[tuple[int, ...], ...] = layer.options.get("shape", ((),))
    if len(shapes) not in {1, len(layer.tops)}:
        raise BrokenFile(f"layer '{layer.name}' has {len(layer.tops)} tops and {len(shapes)} shapes")
    return zip(layer.tops, shapes if len(shapes) > 1 else repeat(shapes[0]), strict=False)  # one shape is for all tops


def _feed(inputs: dict[str, tuple[int, ...]], fed: Iterator[tuple[str, tuple[int, ...]]]) -> None:
    for name, shape in fed:
        if name in inputs:
            raise BrokenFile(f"its input '{name}' is there twice")
        if not all(1 <= size <= LARGEST for size in shape):
            raise BrokenFile(f"its input '{name}' is of size {' x '.join(map(str, shape))}")
        inputs[name] = shape


def _layer(message: Any) -> Layer:
    kind, name = kind_of(message), _text(message.name)
    if not kind:
        raise BrokenFile(f"layer '{name}' says no type that Caffe knows")
    parameters = PARAMETERS_OF.get(kind.lower(), "")
    options = {}
    if parameters:
        _check_fields(message, f"layer '{name}'")
    if parameters in message.DESCRIPTOR.fields_by_name:
        given = getattr(message, parameters).ListFields()
        read = [(field, value) for field, value in given if getattr(field.message_type, "name", "") != TRAINING]
        options = {field.name: _plain(field, value, name) for field, value in read}
    return Layer(name, kind, tuple(map(_text, message.bottom)), tuple(map(_text, message.top)), options)


def _plain(field: Any, value: Any, layer: str) -> Any:
    """A value in plain Python: shapes and lists as tuples, enumerations as words."""
    if hasattr(value, "dim"):
        return tuple(value.dim)
    if not isinstance(value, bool | int | float | str | bytes):
        return tuple(_plain(field, one, layer) for one in value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, int | float) and not (isfinite(value) and abs(value) <= LARGEST):
        raise BrokenFile(f"{field.name} of layer '{layer}' is {value}")
    return value


def _used(message: Any, state: Any) -> bool:
    """Whether the rules of a layer include it in the test phase."""
    if message.include and message.exclude:
        raise BrokenFile(f"layer '{message.name}' has rules to include and to exclude it: Caffe takes one or the other")
    return any(_meets(state, rule) for rule in message.include or message.exclude) == bool(message.include)


def _meets(state: Any, rule: Any) -> bool:
    stages = set(state.stage)
    return (
        (not rule.HasField("phase") or rule.phase == TEST)
        and (not rule.HasField("min_level") or state.level >= rule.min_level)
        and (not rule.HasField("max_level") or state.level <= rule.max_level)
        and stages.issuperset(rule.stage)
        and stages.isdisjoint(rule.not_stage)
    )


def _text(value: Any) -> str:
    if isinstance(value, str):  # protobuf gives the bytes where they are no text
        return value
    raise BrokenFile(f"the name {value!r:.60} is not UTF-8")
