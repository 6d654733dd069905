"""ResNet-50 as it was first published: the blocks that halve the map do so in their first convolution.

(torchvision halves in the second one. The tensors have the same names and shapes, so weights of the one load into the
other without a word, and answer wrongly.)
"""

from itertools import repeat

from torch import Tensor, nn

__all__ = ["ResNet50"]

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
        """Logits [N, classes] of pictures [N, 3, H, W] of any size."""
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
