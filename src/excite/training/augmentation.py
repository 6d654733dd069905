"""What an image looks like in training: squared by mirrors, a random part of it, perhaps flipped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.models import Preprocess

__all__ = ["Views", "Whole", "mirrored_square", "noise"]

MARGIN = 256 / 224  # the paper's squares are so much larger than the parts cut out of them
LARGE = 2048  # a longer side says nothing more here; the square of a long strip would take all memory


@dataclass(frozen=True)
class Views:
    """Random views of images; which, is told by the seed, the image's name and the view's number alone.

    Attributes:
        preprocess: how the classifier takes images; a view has its shorter side as both sides.
        seed: another one gives other views.
    """

    preprocess: Preprocess
    seed: int = 0

    def __call__(self, picture: Image.Image, name: str, numbers: Sequence[int]) -> Tensor:
        """The views of these numbers, [numbers, 3, side, side].

        Example:
            >>> from excite.models import Preprocess
            >>> Views(Preprocess(shorter_side=28))(Image.new("RGB", (60, 40)), "photo", range(2)).shape
            torch.Size([2, 3, 28, 28])
        """
        side = self.preprocess.shorter_side
        square = replace(self.preprocess, shorter_side=round(side * MARGIN), square=True, multiple=1)
        whole = square(mirrored_square(picture))
        return torch.stack([self._view(whole, name, number) for number in numbers])

    def _view(self, whole: Tensor, name: str, number: int) -> Tensor:
        content = hashlib.blake2b(f"{self.seed} {number} {name}".encode(errors="surrogateescape")).digest()
        random = np.random.default_rng(int.from_bytes(content, "big"))
        side = self.preprocess.shorter_side
        top, left = (int(random.integers(whole.shape[1] - side + 1)) for _ in range(2))
        part = whole[:, top : top + side, left : left + side]
        return part.flip(-1) if random.integers(2) else part


@dataclass(frozen=True)
class Whole:
    """The one view of an image that is not random: all of it, squared by mirrors as in training.

    Attributes:
        preprocess: how the classifier takes images; a view has its shorter side as both sides.
    """

    preprocess: Preprocess

    def __call__(self, picture: Image.Image, _name: str, numbers: Sequence[int]) -> Tensor:
        """The view, [numbers, 3, side, side].

        Example:
            >>> from excite.models import Preprocess
            >>> Whole(Preprocess(shorter_side=28))(Image.new("RGB", (60, 40)), "photo", (0,)).shape
            torch.Size([1, 3, 28, 28])
        """
        square = replace(self.preprocess, square=True, multiple=1)
        return torch.stack([square(mirrored_square(picture))] * len(numbers))


def mirrored_square(picture: Image.Image) -> Image.Image:
    """The image continued as in mirrors along its longer sides, so that it becomes a square.

    Example:
        >>> mirrored_square(Image.new("RGB", (6, 4))).size
        (6, 6)
    """
    picture = picture.copy()
    picture.thumbnail((LARGE, LARGE))
    width, height = picture.size
    missing = [max(width, height) - side for side in (height, width)]
    around = [(lack // 2, lack - lack // 2) for lack in missing]
    return Image.fromarray(np.pad(np.asarray(picture), [*around, (0, 0)], mode="symmetric"))


def noise() -> Image.Image:
    """An image that tells nothing, to see how a network runs.

    Example:
        >>> noise().size
        (300, 300)
    """
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8))
