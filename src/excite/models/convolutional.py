"""Any classifier as a fully convolutional network, so that a picture of any shape gives a map of confidences.

The paper turns fully connected layers into convolutions and global pooling into pooling over the trained window. Both
are the same thing: the head of the classifier, which reads a map of one fixed size, slides over a larger map. Here it
does so literally. The windows that it would see are put side by side in the batch and the network's own code runs on
them, so there is nothing to translate: whatever the head is made of, each place of the answer is what the network
itself says of that window. Its body runs on the whole picture as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from excite.errors import ImageError, ModelError
from excite.models.heads import head_of
from excite.models.sliding import Sliding
from excite.propagation.taps import main_output, plain_network

if TYPE_CHECKING:
    from torch import Tensor

    from excite.models.heads import Head

__all__ = ["FullyConvolutional", "fully_convolutional"]


def fully_convolutional(module: nn.Module, size: int | tuple[int, int] = 224, *, channels: int = 3) -> nn.Module:
    """The same classifier, for pictures of any shape: it gives a map of logits [N, classes, h, w].

    At the trained size that map is 1 x 1 and holds the network's own answer to the bit. On a larger picture there is
    one place for each position of the trained window on the last map, one step of that map apart. Pooling *inside* the
    network, as in squeeze-and-excite blocks, is over the whole picture.

    The module is not changed and shares its weights, layers and their names with the new one.

    Args:
        module: gives logits [N, classes]; one that answers for each place already is used as it is.
        size: the pictures' size that it was trained on: one number, or height and width.
        channels: of the pictures.

    Raises:
        ModelError: it is no plain ``nn.Module``, or gives something else.

    Example:
        >>> import torch
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 3 * 3, 2))
        >>> fully_convolutional(network, 8)(torch.ones(1, 3, 8, 12)).shape
        torch.Size([1, 2, 1, 3])
    """
    network = plain_network(module)
    height, width = (size, size) if isinstance(size, int) else size
    if isinstance(network, FullyConvolutional):
        network = network.network
    return FullyConvolutional(network, (height, width), head_of(network, (height, width), channels))


class FullyConvolutional(nn.Module):
    """A network whose head slides over the picture; see `fully_convolutional`.

    It holds the very dictionaries of the network's children, parameters and buffers, so that both always have the same
    layers under the same names.
    """

    network: nn.Module

    def __init__(self, network: nn.Module, size: tuple[int, int], head: Head) -> None:
        super().__init__()
        self.size = size
        self.head = head
        self.training = network.training
        vars(self).update(network=network)  # not as a child, which would change the layers' names
        for shared in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            vars(self)[shared] = vars(network)[shared]

    def train(self, mode: bool = True) -> FullyConvolutional:  # noqa: FBT001, FBT002 -- as torch has it
        """Set both to training or to use."""
        self.network.train(mode)
        self.training = mode
        return self

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes, h, w] of pictures [N, channels, H, W]."""
        self._check(pictures)
        sliding = Sliding(self.network, self.head)
        with sliding, sliding.showing_maps():
            output = main_output(self.network(pictures))
        return sliding.as_map(output) if self.head.calls else output

    def _check(self, pictures: Tensor) -> None:
        if pictures.dim() != 4:
            raise ModelError(f"the pictures have shape {tuple(pictures.shape)}: give a batch [N, channels, H, W]")
        height, width = pictures.shape[-2:]
        if height < self.size[0] or width < self.size[1]:
            raise ImageError(
                f"the picture is {width} x {height} pixels, smaller than what the network was trained on: make it at "
                f"least {self.size[1]} x {self.size[0]}"
            )
