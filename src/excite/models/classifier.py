"""A classifier with what is needed to ask it: how it takes images, and what its outputs mean."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ImageError, ModelError
from excite.vocabulary import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn


# From an image to what a classifier takes: resize, shift, scale.

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
LONGEST = 4


@dataclass(frozen=True)
class Preprocess:
    """Resize an image to what the classifier was trained on, and give the tensor ``(x - mean) * scale``.

    Nothing is cropped, so that the map covers the whole image: the shorter side becomes ``shorter_side``
    and the other keeps the shape of the image. Only an image more than four times as long as wide is
    squeezed to four times: enlarged as it is, a strip of a few pixels by thousands would take all memory and
    show nothing. With ``square`` every image is squashed to ``shorter_side`` by ``shorter_side``.

    Both sides are made multiples of ``multiple``, for networks whose branches only meet again at such sizes.

    ``antialias`` averages what falls together when an image is made smaller; without it pixels are picked, as in the
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
        """The image, in mode RGB, as a float tensor [3, height, width]."""
        if picture.mode != "RGB":
            raise ImageError(f"The image is in mode {picture.mode}: convert it with image.convert('RGB').")
        width, height = self.size(picture.size)
        if self.antialias:
            values = np.array(picture.resize((width, height), RESAMPLING[self.interpolation]), dtype=np.float32)
        else:
            pixels = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)[None]
            resized = functional.interpolate(pixels, (height, width), mode=self.interpolation)
            values = resized[0].permute(1, 2, 0).numpy()
        if self.channels == "bgr":
            values = values[..., ::-1]
        values = (values - np.asarray(self.mean, np.float32)) * np.asarray(self.scale, np.float32)
        return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))

    def scaled(self, scale: float) -> Preprocess:
        """The same for images so many times as large.

        Example:
            >>> Preprocess(224).scaled(1.5).shorter_side
            336
        """
        return replace(self, shorter_side=max(1, round(self.shorter_side * scale)))

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height of what is made of an image of this width and height."""
        if min(size) < 1:
            raise ImageError(f"The image has no pixels: its size is {size[0]} x {size[1]}.")
        other = shorter = self.shorter_side
        if not self.square:
            other = min(max(size) * shorter // min(size), LONGEST * shorter)
        shorter = max(self.multiple, round(shorter / self.multiple) * self.multiple)
        other = max(self.multiple, round(other / self.multiple) * self.multiple)
        return (shorter, other) if size[0] <= size[1] else (other, shorter)


# A classifier with what is needed to ask it: how it takes images, and what its outputs mean.


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """A network and the facts about it that its own code does not tell.

    Attributes:
        module: Gives logits [N, C], or [N, C, H, W] when it answers for each place.
        preprocess: Makes of an image in mode RGB what the module takes, [3, H, W].
        labels: The words of its outputs; None when nobody gave any, see ``labels_for``.
        name: For people to read.
        layer: The layer to read when none is asked for; None when nobody knows a good one.
        multilabel: Several outputs may be true at once: sigmoid instead of softmax. A range: of these outputs, while
            of all others exactly one is true.
        layers: Layers worth reading, best first.
        extent: The layers that the method ``extent`` reads, such as "layer4.1+layer3"; empty: a dry run tells.
    """

    module: nn.Module
    preprocess: Callable[[Image.Image], Tensor]
    labels: Labels | None
    name: str
    layer: str | None
    multilabel: bool | range = False
    layers: tuple[str, ...] = ()
    extent: str = ""

    def __repr__(self) -> str:
        words = "no labels" if self.labels is None else f"{len(self.labels)} labels"
        return f"Classifier({self.name!r}, {type(self.module).__name__}, {words}, layer {self.layer!r})"

    def prepared(self, picture: Image.Image, scale: float = 1.0) -> Tensor:
        """The image as the module takes it, [3, H, W]; at another scale, larger or smaller than usual.

        A preparation of one's own knows one size only: what it gives is stretched.
        """
        if scale == 1:
            return self.preprocess(picture)
        if isinstance(self.preprocess, Preprocess):
            return self.preprocess.scaled(scale)(picture)
        usual = self.preprocess(picture)[None]
        height, width = (max(1, int(side * scale)) for side in usual.shape[-2:])
        return functional.interpolate(usual, (height, width), mode="bicubic", antialias=True)[0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities [N, C] of the module's logits.

        Logits for each place are averaged over the places first. That is what a network ending in average
        pooling does: pooling before or after its last linear layer is the same, so it gives the same answer
        in both forms. The average of probabilities would not.
        """
        if logits.dim() not in {2, 4}:
            raise ModelError(
                f"{self.name} gave an output of shape {list(logits.shape)}: it must give logits [N, C] or [N, C, H, W]."
            )
        flat = logits.mean(dim=(2, 3)) if logits.dim() == 4 else logits
        independent = self._independent(flat.shape[1]).to(flat.device)
        return torch.where(independent, flat.sigmoid(), flat.masked_fill(independent, -torch.inf).softmax(dim=1))

    def chance(self, probabilities: Tensor, units: Sequence[int]) -> float:
        """How probable it is that any of these outputs is true, given the probabilities [C] of all.

        Those that exclude each other add up; of the others it is at least the greatest.

        Example:
            >>> mixed = excite.wrap(nn.Identity(), multilabel=range(2, 4))
            >>> mixed.chance(torch.tensor([0.25, 0.5, 0.125, 0.375]), [0, 1, 2])
            0.75
        """
        wanted, independent = probabilities[list(units)].cpu(), self._independent(len(probabilities))[list(units)]
        return float(torch.cat([wanted[independent], wanted[~independent].sum()[None]]).max())

    def _independent(self, outputs: int) -> Tensor:
        """For each output whether it may be true beside any other."""
        if isinstance(self.multilabel, bool):
            return torch.full((outputs,), self.multilabel)
        return torch.isin(torch.arange(outputs), torch.tensor(self.multilabel, dtype=torch.long))

    def labels_for(self, outputs: int) -> Labels:
        """The labels of a module seen to have this many outputs; numbers when there are no words."""
        if self.labels is None:
            return Labels.numbered(outputs)
        if len(self.labels) != outputs:
            raise ModelError(f"{self.name} has {outputs} outputs but {len(self.labels)} labels: give one for each.")
        return self.labels


# What tells one network from another, so that answers are kept only for the one that gave them.


def network_identity(network: nn.Module, without: str = "") -> str:
    """Changes when the network would give other answers: its modules, its weights.

    Args:
        network: any.
        without: the name of a layer that does not matter.

    Example:
        >>> from torch import nn
        >>> len(network_identity(nn.Linear(2, 2)))
        32
    """
    content = hashlib.blake2b(digest_size=16)
    for name, module in network.named_modules():  # strides and the like are in no tensor
        if not (without and name == without):
            content.update(f"{name} {type(module).__name__} {module.extra_repr()}\n".encode())
    for name, values in network.state_dict().items():
        if isinstance(values, torch.Tensor) and not (without and name.startswith(f"{without}.")):
            content.update(f"{name} {tuple(values.shape)}".encode())
            content.update(values.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return content.hexdigest()


def identity(classifier: Classifier) -> list[str]:
    """Changes when the classifier would give other maps: its network, its outputs or how it takes images.

    Example:
        >>> from torch import nn
        >>> identity(excite.wrap(nn.Linear(2, 2), name="mine"))[0]
        'mine'
    """
    preprocess = getattr(classifier.preprocess, "__qualname__", repr(classifier.preprocess))
    return [classifier.name, preprocess, f"multilabel {classifier.multilabel}", network_identity(classifier.module)]
