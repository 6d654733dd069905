"""Training views of an image: reflected to a square, randomly cropped and flipped."""

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

MARGIN = 256 / 224  # side of the square / side of the crop, as in the paper
MAX_SIDE = 2048  # larger images are reduced first; the square of a long strip would exhaust memory


@dataclass(frozen=True)
class Views:
    """Random crops and flips, determined by the seed, the image's name and the number of the view.

    Attributes:
        preprocess: the classifier's preprocessing; a view is a square of its shorter side.
        seed: of the random numbers.
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
        digest = hashlib.blake2b(f"{self.seed} {number} {name}".encode(errors="surrogateescape")).digest()
        random = np.random.default_rng(int.from_bytes(digest, "big"))
        side = self.preprocess.shorter_side
        top, left = (int(random.integers(whole.shape[1] - side + 1)) for _ in range(2))
        crop = whole[:, top : top + side, left : left + side]
        return crop.flip(-1) if random.integers(2) else crop


@dataclass(frozen=True)
class WholeImage:
    """The deterministic view for validation: the whole image, reflected to a square as in training."""

    preprocess: Preprocess

    def __call__(self, picture: Image.Image, _name: str, numbers: Sequence[int]) -> Tensor:
        """The same view for each number, [numbers, 3, side, side]."""
        square = replace(self.preprocess, square=True, multiple=1)
        return torch.stack([square(mirrored_square(picture))] * len(numbers))


def mirrored_square(picture: Image.Image) -> Image.Image:
    """Pad the image to a square by reflection along its longer sides.

    Example:
        >>> mirrored_square(Image.new("RGB", (6, 4))).size
        (6, 6)
    """
    picture = picture.copy()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    width, height = picture.size
    missing = [max(width, height) - side for side in (height, width)]
    padding = [(lack // 2, lack - lack // 2) for lack in missing]
    return Image.fromarray(np.pad(np.asarray(picture), [*padding, (0, 0)], mode="symmetric"))


def noise_image() -> Image.Image:
    """Uniform noise, to observe a network's forward pass."""
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8))
