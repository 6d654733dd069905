"""Output layers of one network on top of each other: a picture goes through once, and all of them answer."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import torch

from excite.models.efficientnet_lite0 import EfficientNetLite0, efficientnet_lite0
from excite.models.weights import fill

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HEAD", "stacked"]

HEAD = "head.safetensors"


def stacked(packages: Sequence[str]) -> EfficientNetLite0:
    """The embedded network with ImageNet's output layer, and below it those that lie in these packages.

    Example:
        >>> stacked(["excite.models.everyday"]).classifier.out_features
        1080
    """
    from safetensors.torch import load

    tensors = dict(efficientnet_lite0().state_dict())
    for package in packages:
        for name, rows in load(files(package).joinpath(HEAD).read_bytes()).items():
            tensors[f"classifier.{name}"] = torch.cat([tensors[f"classifier.{name}"], rows.float()])
    with torch.device("meta"):
        network = EfficientNetLite0(len(tensors["classifier.bias"]))
    fill(network, tensors, HEAD)
    return network
