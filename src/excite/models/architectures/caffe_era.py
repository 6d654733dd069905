"""ResNet-50 as it was first published: the blocks that halve the map do so in their first convolution.

(torchvision halves in the second one. The tensors have the same names and shapes, so weights of the one load into the
other without a word, and answer wrongly.)
"""

from itertools import repeat

import torch
from torch import Tensor, nn

STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, inner channels, stride of the first block
EXPANSION = 4


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut; ``downsample`` fits the shortcut to what it is added to."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = inner * EXPANSION
        self.conv1 = nn.Conv2d(inputs, inner, 1, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
            if inputs != outputs or stride > 1
            else None
        )

    def forward(self, features: Tensor) -> Tensor:
        """Add what the three convolutions find to the shortcut."""
        found = self.relu(self.bn1(self.conv1(features)))
        found = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(found)))))
        shortcut = features if self.downsample is None else self.downsample(features)
        added: Tensor = self.relu(found + shortcut)
        return added


class ResNet50(nn.Module):
    """The architecture: ``conv1``, ``maxpool``, ``layer1`` to ``layer4``, ``avgpool``, ``fc``."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * EXPANSION, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes] of images [N, 3, H, W] of any size."""
        features = self.maxpool(self.relu(self.bn1(self.conv1(pictures))))
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
        logits: Tensor = self.fc(self.avgpool(features).flatten(1))
        return logits


def stages() -> list[nn.Sequential]:
    """The four stages, as STAGES says."""
    made: list[nn.Sequential] = []
    inputs = 64
    for number, inner, first_stride in STAGES:
        blocks = []
        for stride in (first_stride, *repeat(1, number - 1)):
            blocks.append(Bottleneck(inputs, inner, stride))
            inputs = inner * EXPANSION
        made.append(nn.Sequential(*blocks))
    return made


# SqueezeNet 1.0 as it was trained in Caffe: plain ReLU, max pooling that rounds up, no fully connected layer.

FIRES = (  # fire2 to fire9 (conv1 comes before them): inputs, squeezed, expanded by each of the two kernels
    (96, 16, 64),
    (128, 16, 64),
    (128, 32, 128),
    (256, 32, 128),
    (256, 48, 192),
    (384, 48, 192),
    (384, 64, 256),
    (512, 64, 256),
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

    def __init__(self, classes: int = 1000) -> None:
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
