"""Output layers of one network on top of each other: a picture goes through once, and all of them answer."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import torch

from excite.models.architectures.efficientnet_lite0 import EfficientNetLite0, efficientnet_lite0
from excite.models.weights import fill

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HEADS", "stacked"]

HEADS = files("excite.models.architectures").joinpath("heads")  # the trained output layers, with their labels


def stacked(heads: Sequence[str]) -> EfficientNetLite0:
    """The embedded network with ImageNet's output layer, and the named ones of `HEADS` below it.

    Example:
        >>> stacked(["everyday"]).classifier.out_features
        1080
    """
    from safetensors.torch import load

    tensors = dict(efficientnet_lite0().state_dict())
    for head in heads:
        for name, rows in load(HEADS.joinpath(f"{head}.safetensors").read_bytes()).items():
            tensors[f"classifier.{name}"] = torch.cat([tensors[f"classifier.{name}"], rows.float()])
    with torch.device("meta"):
        network = EfficientNetLite0(len(tensors["classifier.bias"]))
    fill(network, tensors, str(HEADS))
    return network
