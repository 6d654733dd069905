"""The comparison of an exported file with the library, on the same images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from excite.errors import ModelError
from excite.models import Preprocess
from excite.propagation import prior

if TYPE_CHECKING:
    from PIL import Image

    from excite.export.trace import MapModule, Sizes
    from excite.models import Classifier

MapFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

LIMIT = 1e-4  # the largest difference from the library, as a share of the map's sum
FAINT = 1e-2  # of the signal: a contrast with a smaller sum is the difference of two nearly equal maps, whose
# rounding is more than 1e-4 of it, in the library too. There the limit is 1e-6 of the signal.


@dataclass(frozen=True)
class Agreement:
    """The differences of a file from the library.

    Attributes:
        pictures: the number of images.
        map: the largest difference at any position, over the sum of the map's absolute values (at least `FAINT`).
        output: the largest difference of any score, over the largest absolute score.
        faintest: the least sum of a map's absolute values, for a signal of 1.
    """

    pictures: int
    map: float
    output: float
    faintest: float

    @property
    def good(self) -> bool:
        """Whether both are within the limit; NaN is not."""
        return self.map <= LIMIT and self.output <= LIMIT


def compare(run: MapFunction, module: MapModule, pictures: Sequence[Tensor], *, batch: bool) -> Agreement:
    """Run a file and the library on preprocessed images [3, H, W], with the top class of each as the signal.

    Args:
        run: the file.
        module: the library.
        pictures: one or more.
        batch: also compare a batch of two: an image, and the same upside down.

    Example:
        >>> from torch import nn
        >>> from excite.export.trace import MapModule
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> module = MapModule(net, "1", "mwp")
        >>> compare(module, module, [torch.rand(3, 4, 4)], batch=True).map
        0.0
    """
    inputs = [picture[None] for picture in pictures]
    if batch:
        inputs.append(torch.stack([pictures[0], pictures[0].flip(1)]))
    maps, outputs, sums = zip(*(_differences(run, module, each) for each in inputs), strict=True)
    return Agreement(len(pictures), max(maps), max(outputs), min(sums))


@torch.no_grad()
def _differences(run: MapFunction, module: MapModule, picture: Tensor) -> tuple[float, float, float]:
    output = module.output(picture)
    best = output.flatten(2).mean(2).argmax(1) if output.dim() > 2 else output.argmax(1)
    signal = torch.cat([prior(output[k : k + 1], {int(unit): 1.0}) for k, unit in enumerate(best)])
    ours, theirs = module(picture, signal), run(picture, signal)
    sums = ours[0].abs().sum((1, 2))
    in_map = _difference(theirs[0], ours[0], sums.clamp(min=FAINT))
    in_output = _difference(theirs[1], ours[1], ours[1].abs().amax()[None])
    return in_map, in_output, float(sums.min())


def _difference(theirs: Tensor, ours: Tensor, scale: Tensor) -> float:
    """The largest difference, relative to a scale for each image where that is not 0; infinite for NaN."""
    if theirs.shape != ours.shape:
        return float("inf")
    differences = (theirs - ours).abs().flatten(1).amax(1)
    return float(torch.where(scale > 0, differences / scale, differences).nan_to_num(float("inf")).max())


def preprocessed(classifier: Classifier, picture: Image.Image, sizes: Sizes) -> Tensor:
    """An image, preprocessed for the classifier in a size that the file serves.

    Example:
        >>> from PIL import Image
        >>> from excite.export.trace import Sizes
        >>> preprocessed(excite.load(), Image.new("RGB", (500, 375)), Sizes(224, 224, step=32)).shape
        torch.Size([3, 224, 288])
    """
    preprocess = classifier.preprocess
    if isinstance(preprocess, Preprocess):
        if sizes.step is None:
            stretched = picture.resize((sizes.width, sizes.height))
            values = replace(preprocess, shorter_side=min(sizes.height, sizes.width), square=False)(stretched)
        else:
            values = replace(preprocess, multiple=sizes.step)(picture)
    else:
        values = preprocess(picture)
    if sizes.fit(values.shape[1], values.shape[2]):
        return values
    size = (sizes.height, sizes.width)
    return functional.interpolate(values[None], size, mode="bilinear", align_corners=False)[0]


def noise_image(sizes: Sizes) -> Tensor:
    """Gaussian noise [3, H, W], always the same: for a check without real images."""
    return torch.randn(3, sizes.height, sizes.width, generator=torch.Generator().manual_seed(0))


def check_agreement(agreement: Agreement) -> None:
    """Raise a `ModelError` for a file that differs from the library by more than the limit."""
    if not agreement.good:
        raise ModelError(
            f"the file differs from the library by {agreement.map:.1e} of the map's sum (which is as little as "
            f"{agreement.faintest:.1e} of the signal) and {agreement.output:.1e} of the largest score, more than "
            f"{LIMIT:.0e}: nothing was written"
        )
