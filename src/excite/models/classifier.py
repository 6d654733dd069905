"""A classifier: a network with its preprocessing and the labels of its outputs."""

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

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
MAX_ASPECT = 4  # a longer image is squeezed: enlarged as it is, a strip would take all memory


@dataclass(frozen=True)
class Preprocess:
    """Resize an image without cropping, so that the map covers all of it, and normalise: ``(x - mean) * scale``."""

    shorter_side: int = 224  # of the resized image; the other keeps the aspect ratio, up to four times the shorter one
    mean: float | tuple[float, float, float] = (127, 127, 127)  # for values 0 to 255, of all or of each of ``channels``
    scale: float | tuple[float, float, float] = 1 / 128
    channels: Literal["rgb", "bgr"] = "rgb"
    square: bool = False  # squash every image to ``shorter_side`` by ``shorter_side``
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    antialias: bool = True  # average where the image becomes smaller; without it, as in the paper, pixels are picked
    multiple: int = 1  # both sides are multiples of it, for networks whose branches only fit each other at such sizes

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
        """The preprocessed tensor [3, height, width] of an image in mode RGB."""
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
        """The same for another scale."""
        return replace(self, shorter_side=max(1, round(self.shorter_side * scale)))

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height of a preprocessed image, by those of the original."""
        if min(size) < 1:
            raise ImageError(f"The image has no pixels: its size is {size[0]} x {size[1]}.")
        other = shorter = self.shorter_side
        if not self.square:
            other = min(max(size) * shorter // min(size), MAX_ASPECT * shorter)
        shorter = max(self.multiple, round(shorter / self.multiple) * self.multiple)
        other = max(self.multiple, round(other / self.multiple) * self.multiple)
        return (shorter, other) if size[0] <= size[1] else (other, shorter)


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """A network with its preprocessing, labels and layers.

    Attributes:
        module: Computes logits [N, C], or [N, C, H, W] where it is fully convolutional.
        preprocess: From an image in mode RGB to the module's input [3, H, W].
        labels: The labels of its outputs; None where there are none, see ``labels_for``.
        name: For display.
        layer: The default layer; None: found in a dry run.
        multilabel: The outputs are independent: sigmoid instead of softmax. A range: these outputs, while exactly one
            of all others is true.
        layers: Layers worth reading, best first.
        extent: The layers of the method ``extent``, such as "layer4.1+layer3"; empty: found in a dry run.
        verified: The sets of layers that were verified on their first image (`excite.propagation.verify`); None: none
            is to be.
    """

    module: nn.Module
    preprocess: Callable[[Image.Image], Tensor]
    labels: Labels | None
    name: str
    layer: str | None
    multilabel: bool | range = False
    layers: tuple[str, ...] = ()
    extent: str = ""
    verified: set[tuple[str, ...]] | None = None

    def __repr__(self) -> str:
        words = "no labels" if self.labels is None else f"{len(self.labels)} labels"
        return f"Classifier({self.name!r}, {type(self.module).__name__}, {words}, layer {self.layer!r})"

    def prepared(self, picture: Image.Image, scale: float = 1.0) -> Tensor:
        """The preprocessed image [3, H, W] at a scale; the output of a user's own preprocessing is interpolated."""
        if scale == 1:
            return self.preprocess(picture)
        if isinstance(self.preprocess, Preprocess):
            return self.preprocess.scaled(scale)(picture)
        return rescaled(self.preprocess(picture)[None], scale)[0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities [N, C] of the module's logits.

        Logits of a fully convolutional network are averaged over the positions first, as a network ending in average
        pooling does: pooling before or after its last linear layer is the same.
        """
        if logits.dim() not in {2, 4}:
            raise ModelError(
                f"{self.name} gave an output of shape {list(logits.shape)}: it must give logits [N, C] or [N, C, H, W]."
            )
        flat = logits.mean(dim=(2, 3)) if logits.dim() == 4 else logits
        independent = self.independent(flat.shape[1]).to(flat.device)
        return torch.where(independent, flat.sigmoid(), flat.masked_fill(independent, -torch.inf).softmax(dim=1))

    def chance(self, probabilities: Tensor, units: Sequence[int]) -> float:
        """The probability that any of these outputs is true, given the probabilities [C] of all.

        Exclusive outputs add up; of independent ones the maximum is taken, a lower bound.

        Example:
            >>> mixed = excite.wrap(nn.Identity(), multilabel=range(2, 4))
            >>> mixed.chance(torch.tensor([0.25, 0.5, 0.125, 0.375]), [0, 1, 2])
            0.75
        """
        wanted, independent = probabilities[list(units)].cpu(), self.independent(len(probabilities))[list(units)]
        return float(torch.cat([wanted[independent], wanted[~independent].sum()[None]]).max())

    def independent(self, outputs: int) -> Tensor:
        """Mask [C] of the independent outputs."""
        if isinstance(self.multilabel, bool):
            return torch.full((outputs,), self.multilabel)
        return torch.isin(torch.arange(outputs), torch.tensor(self.multilabel, dtype=torch.long))

    def labels_for(self, outputs: int) -> Labels:
        """The labels of this many outputs; numbers where there are no words."""
        if self.labels is None:
            return Labels.numbered(outputs)
        if len(self.labels) != outputs:
            raise ModelError(f"{self.name} has {outputs} outputs but {len(self.labels)} labels: give one for each.")
        return self.labels


def rescaled(batch: Tensor, scale: float) -> Tensor:
    """Preprocessed images [N, 3, H, W] at another scale."""
    height, width = (max(1, int(side * scale)) for side in batch.shape[-2:])
    return batch if scale == 1 else functional.interpolate(batch, (height, width), mode="bicubic", antialias=True)


def network_identity(network: nn.Module, without: str = "") -> str:
    """A hash of the modules and weights of a network, without a layer that does not matter."""
    content = hashlib.blake2b(digest_size=16)
    for name, module in network.named_modules():  # strides and such are in no tensor
        if not (without and name == without):
            content.update(f"{name} {type(module).__name__} {module.extra_repr()}\n".encode())
    for name, values in network.state_dict().items():
        if isinstance(values, torch.Tensor) and not (without and name.startswith(f"{without}.")):
            content.update(f"{name} {tuple(values.shape)}".encode())
            content.update(values.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return content.hexdigest()


def identity(classifier: Classifier) -> list[str]:
    """Identifies the maps of a classifier: its network, outputs and preprocessing."""
    preprocess = getattr(classifier.preprocess, "__qualname__", repr(classifier.preprocess))
    return [classifier.name, preprocess, f"multilabel {classifier.multilabel}", network_identity(classifier.module)]
