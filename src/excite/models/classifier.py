"""A classifier: a network with its preprocessing and the labels of its outputs."""

from __future__ import annotations

import copy
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.lazy import LazyModuleMixin

from excite.errors import ExciteError, ImageError, ModelError, TrainingModeWarning
from excite.propagation.taps import as_found, main_output, plain_modules
from excite.vocabulary import Labels

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
MAX_ASPECT = 4  # a longer image is squeezed: enlarged as it is, a strip would take all memory
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # that a network computes in
ASPECTS = ((4, 3), (3, 2))  # of the blank images on which a network shows what it takes; rounded, one may be square
EVEN = 32  # the stride of most networks: some take only sides that are multiples of it
LARGEST_SIDE = 2048  # a larger number in an error is no side of an image


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


@dataclass(frozen=True)
class OneSize(Preprocess):
    """The preprocessing for a network that takes images of one size only: at every scale they are squashed to it."""

    square: bool = True

    def scaled(self, scale: float) -> Preprocess:  # noqa: ARG002 - there is one size
        """The same."""
        return self


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
        trial: Whether the network is tried on a blank image first, to see which sizes it takes.
        known: What was found out about the network: the preprocessing that it takes at each scale, and so on. A
            classifier that `dataclasses.replace` makes knows nothing yet.
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
    trial: bool = False
    known: dict[Any, Any] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        words = "no labels" if self.labels is None else f"{len(self.labels)} labels"
        return f"Classifier({self.name!r}, {type(self.module).__name__}, {words}, layer {self.layer!r})"

    @property
    def device(self) -> torch.device:
        """Where the network computes: the device of its first floating-point parameter or buffer."""
        return self._own.device

    @property
    def dtype(self) -> torch.dtype:
        """The type in which the network computes, likewise; float32 where it has no numbers of its own."""
        return self._own.dtype

    @property
    def _own(self) -> Tensor:
        for tensor in chain(self.module.parameters(), self.module.buffers()):
            if tensor.dtype in FLOATS and not tensor.is_meta:
                return tensor
        return torch.empty(0)

    @property
    def lazy(self) -> bool:
        """Whether parts of the network get their shapes from the first image."""
        return any(isinstance(child, LazyModuleMixin) for child in self.module.modules())

    def fixed(self) -> nn.Module:
        """The network for some forward passes that belong together; an open vocabulary may grow beside them."""
        return self.module

    def placed(self, images: Tensor) -> Tensor:
        """Preprocessed images on the network's device and in its type; the one place where they are moved.

        Example:
            >>> excite.wrap(nn.Linear(2, 2).double()).placed(torch.ones(1)).dtype
            torch.float64
        """
        own = self._own
        return images.to(own.device, own.dtype)

    def prepared(self, picture: Image.Image, scale: float = 1.0) -> Tensor:
        """The preprocessed image [3, H, W] at a scale, where the network computes.

        The output of a user's own preprocessing is interpolated. A network that takes one size only gets that.
        """
        if isinstance(self.preprocess, Preprocess):
            prepare = self.preprocess if scale == 1 else self.preprocess.scaled(scale)
            return self.placed((self._fitting(prepare, scale) if self.trial else prepare)(picture))
        return self.placed(rescaled(self.preprocess(picture)[None], scale)[0])

    def _fitting(self, preprocess: Preprocess, scale: float) -> Preprocess:
        """The preprocessing that the network takes: as it is, with even sides, or squashed to one size.

        It is found on blank images, so that it depends on no image; where none fits, the first error is the user's.
        """
        if self.lazy or isinstance(preprocess, OneSize):
            return preprocess
        if scale not in self.known:
            error = self._error(preprocess)
            self.known[scale] = preprocess if error is None else self._other_size(preprocess, error)
        fitting: Preprocess = self.known[scale]
        return fitting

    def _other_size(self, preprocess: Preprocess, error: str) -> Preprocess:
        even = replace(preprocess, multiple=EVEN)
        own = [side for side in (setting(self.preprocess, "shorter_side"), preprocess.shorter_side) if side]
        sides = [*demanded_sides(self.module), *own, *map(int, re.findall(r"\d+", error))]
        facts = vars(preprocess) | {"square": True, "multiple": 1}
        squares = (
            OneSize(**{**facts, "shorter_side": side}) for side in dict.fromkeys(sides) if 0 < side <= LARGEST_SIDE
        )
        return next((each for each in (even, *squares) if self._error(each) is None), preprocess)

    def _error(self, preprocess: Preprocess) -> str | None:
        """The error of the network on blank images; None where there is none."""
        modules = plain_modules(self.module)
        try:
            with as_found(modules), torch.no_grad(), torch.random.fork_rng(devices=[]):
                for aspect in ASPECTS if preprocess.multiple > 1 else ASPECTS[:1]:
                    width, height = preprocess.size(aspect)
                    self.module(self.placed(torch.zeros(1, 3, height, width)))
        except Exception as error:  # noqa: BLE001 - a network may raise anything
            return None if "allocate" in str(error) else str(error)  # too little memory says nothing about sizes
        return None

    @contextmanager
    def running(self, *batches: Tensor, remedy: str = "") -> Iterator[None]:
        """While the network runs: whatever it raises becomes one line with its name, the input's size and the remedy.

        A network in training mode is named once.
        """
        if "training" not in self.known and (active := active_in_training(self.module)):
            self.known["training"] = active
            warnings.warn(
                f"{self.name} is in training mode, with {active}: its answers and maps change with chance and with the "
                "other images; call .eval() on it first",
                TrainingModeWarning,
                stacklevel=4,
            )
        try:
            yield
        except ExciteError:
            raise
        except Exception as error:
            if not (isinstance(error, RuntimeError) or _from_network(error)):
                raise  # a fault of excite
            sizes = " and ".join(" x ".join(map(str, batch.shape[1:])) for batch in batches)
            once = ", and choose a method with one scale, such as c-mwp" if len(batches) > 1 else ""
            usual = f"load it with fully_convolutional=True, or use Preprocess(square=True){once}"
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            if not isinstance(error, RuntimeError | AssertionError):
                reason = f"{type(error).__name__}: {reason}"
            raise ModelError(
                f"{self.name} fails on an image preprocessed to {sizes}: {reason.rstrip('.')}. If it takes images of "
                f"one size only, {remedy or usual}"
            ) from error

    def logits(self, images: Tensor) -> Tensor:
        """The network's output units for preprocessed images, without gradients.

        Example:
            >>> excite.wrap(nn.Flatten()).logits(torch.ones(1, 3, 1, 1))
            tensor([[1., 1., 1.]])
        """
        images = self.placed(images)
        with self.running(images), torch.no_grad():
            return main_output(self.module(images)).float()

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
        if ("independent", outputs) not in self.known:
            mask = torch.full((outputs,), self.multilabel is True)
            if not isinstance(self.multilabel, bool):
                mask[self.multilabel.start : self.multilabel.stop : self.multilabel.step] = True
            self.known["independent", outputs] = mask
        known: Tensor = self.known["independent", outputs]
        return known

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


def on_cpu(classifier: Classifier) -> Classifier:
    """The classifier on the CPU and in float32, itself or a copy: for graphs that other runtimes run there."""
    if (classifier.device.type, classifier.dtype) == ("cpu", torch.float32):
        return classifier
    return replace(classifier, module=copy.deepcopy(classifier.module).cpu().float())


def _from_network(error: Exception) -> bool:
    """Whether an exception passed through the call of a module."""
    trace, here = error.__traceback__, nn.Module._call_impl.__code__  # noqa: SLF001 - the function that calls forward
    while trace is not None and trace.tb_frame.f_code is not here:
        trace = trace.tb_next
    return trace is not None


def active_in_training(module: nn.Module) -> str:
    """What makes a network in training mode answer by chance or by the rest of the batch; empty where nothing does.

    Example:
        >>> active_in_training(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm2d(3)))
        "active dropout ('0') and batch statistics ('1')"
    """
    found: dict[str, str] = {}
    for name, child in module.named_modules():
        if not child.training:  # nearly always, and this is asked several times for each map
            continue
        if isinstance(child, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - the parent of all
            found.setdefault("batch statistics", name)
        chance = getattr(child, "p", None) or getattr(child, "drop_prob", None)  # torch's, and timm's DropPath
        if chance and "drop" in type(child).__name__.lower():
            found.setdefault("active dropout", name)
    return " and ".join(f"{kind} ({name!r})" for kind, name in found.items()) if found else ""


def demanded_sides(module: nn.Module) -> list[int]:
    """The sides of images that a network or its parts say they were made for (timm, torchvision, transformers)."""
    found: list[Any] = []
    for child in module.modules():
        cards = [getattr(child, name, None) for name in ("pretrained_cfg", "default_cfg", "config")]
        found += [setting(card, "input_size") for card in cards] + [setting(card, "image_size") for card in cards]
        found += [getattr(child, name, None) for name in ("img_size", "image_size")]
    sides = [each[-1] if isinstance(each, tuple | list) and each else each for each in found]
    return [side for side in dict.fromkeys(sides) if type(side) is int]


def setting(card: object, name: str) -> Any:
    """A setting in a dictionary or an object; None where there is none."""
    return card.get(name) if isinstance(card, dict) else getattr(card, name, None)


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
