"""From a picture to what a classifier takes: resize, shift, scale."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from excite.errors import ImageError, ModelError

__all__ = ["Preprocess"]

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
LONGEST = 4


@dataclass(frozen=True)
class Preprocess:
    """Resize a picture to what the classifier was trained on, and give the tensor ``(x - mean) * scale``.

    Nothing is cropped, so that the map covers the whole picture: the shorter side becomes ``shorter_side``
    and the other keeps the shape of the picture. Only a picture more than four times as long as wide is
    squeezed to four times: enlarged as it is, a strip of a few pixels by thousands would take all memory and
    show nothing. With ``square`` every picture is squashed to ``shorter_side`` by ``shorter_side``.

    Both sides are made multiples of ``multiple``, for networks whose branches only meet again at such sizes.

    ``antialias`` averages what falls together when a picture is made smaller; without it pixels are picked, as in the
    paper's experiments.

    ``mean`` and ``scale`` are for values 0 to 255: one for all channels, or one for each in the order of
    ``channels``.
    """

    shorter_side: int = 224
    mean: float | tuple[float, float, float] = (127, 127, 127)
    scale: float | tuple[float, float, float] = 1 / 128
    channels: Literal["rgb", "bgr"] = "rgb"
    square: bool = False
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    antialias: bool = True
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.shorter_side < 1:
            raise ModelError(f"The shorter side is {self.shorter_side}: give at least one pixel.")
        if self.multiple < 1:
            raise ModelError(f"The sides shall be multiples of {self.multiple}: give at least 1.")
        if self.channels not in {"rgb", "bgr"}:
            raise ModelError(f"The channels are {self.channels!r}: give 'rgb' or 'bgr'.")
        if self.interpolation not in RESAMPLING:
            raise ModelError(f"The interpolation is {self.interpolation!r}: give 'bilinear' or 'bicubic'.")

    def __call__(self, picture: Image.Image) -> Tensor:
        """The picture, in mode RGB, as a float tensor [3, height, width]."""
        if picture.mode != "RGB":
            raise ImageError(f"The picture is in mode {picture.mode}: convert it with picture.convert('RGB').")
        values = self._resized(picture)
        if self.channels == "bgr":
            values = values[..., ::-1]
        values = (values - np.asarray(self.mean, np.float32)) * np.asarray(self.scale, np.float32)
        return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))

    def scaled(self, scale: float) -> "Preprocess":
        """The same for pictures so many times as large.

        Example:
            >>> Preprocess(224).scaled(1.5).shorter_side
            336
        """
        return replace(self, shorter_side=max(1, round(self.shorter_side * scale)))

    def _resized(self, picture: Image.Image) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The picture in its new size, float [height, width, 3]."""
        width, height = self.size(picture.size)
        if self.antialias:
            return np.array(picture.resize((width, height), RESAMPLING[self.interpolation]), dtype=np.float32)
        pixels = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)[None]
        picked = functional.interpolate(pixels, (height, width), mode=self.interpolation)
        return picked[0].permute(1, 2, 0).numpy()

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height of what is made of a picture of this width and height."""
        if min(size) < 1:
            raise ImageError(f"The picture has no pixels: its size is {size[0]} x {size[1]}.")
        other = shorter = self.shorter_side
        if not self.square:
            other = min(max(size) * shorter // min(size), LONGEST * shorter)
        shorter, other = (max(self.multiple, round(side / self.multiple) * self.multiple) for side in (shorter, other))
        return (shorter, other) if size[0] <= size[1] else (other, shorter)
