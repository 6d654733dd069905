"""What a Caffe network is, in plain Python: what the files say and what the networks are built from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Layer", "Network"]


@dataclass(frozen=True)
class Layer:
    """One layer of a Caffe network.

    Attributes:
        name: Its own name, which is also that of its weights.
        kind: What it does, as the new format spells it: "Convolution", "InnerProduct", ...
        bottoms: The blobs it reads.
        tops: The blobs it writes; the same as a bottom when it works in place.
        options: The fields of its parameters that were set, under Caffe's names, lists as tuples and enumerations as
            their words: ``{"num_output": 96, "kernel_size": (7,), "stride": (2,)}``.
    """

    name: str
    kind: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """A network for use, not for training: its inputs with their shapes, and its layers in the order of the file.

    ``inputs`` has the blob names and shapes [N, C, H, W] of what is fed in; a file may leave the shape out: ().
    """

    name: str
    inputs: Mapping[str, tuple[int, ...]]
    layers: tuple[Layer, ...]
