"""SqueezeNet 1.0 as it was trained in Caffe: plain ReLU, max pooling that rounds up, no fully connected layer."""

import torch
from torch import Tensor, nn

__all__ = ["SqueezeNet"]

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
        """Logits [N, classes] of pictures [N, 3, H, W] of any size."""
        features = self.pool1(self.relu(self.conv1(pictures)))
        features = self.pool4(self.fire4(self.fire3(self.fire2(features))))
        features = self.pool8(self.fire8(self.fire7(self.fire6(self.fire5(features)))))
        classes = self.relu(self.conv_final(self.drop9(self.fire9(features))))
        logits: Tensor = self.pool10(classes).flatten(1)
        return logits
