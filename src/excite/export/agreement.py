"""A file beside the library: both look at the same images, and must agree."""

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

    from excite.export.trace import Looking, Sizes
    from excite.models import Classifier

__all__ = ["LIMIT", "Agreement", "Run", "any_picture", "compare", "demand", "prepared"]

Run = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

LIMIT = 1e-4  # how far a file may be from the library, as a share of the map's sum
FAINT = 1e-2  # of the signal: a contrast that leaves less is the difference of two maps that are nearly equal, and
# rounding those two is more than 1e-4 of it, in the library too. There the limit is 1e-6 of the signal.


@dataclass(frozen=True)
class Agreement:
    """How far a file was from the library.

    Attributes:
        pictures: on how many images.
        map: the largest difference of any place, over the sum of the map's absolute values (at least `FAINT`).
        output: the largest difference of any score, over the largest absolute score.
        faintest: the least sum of a map's absolute values, where a signal of 1 went down.
    """

    pictures: int
    map: float
    output: float
    faintest: float

    @property
    def good(self) -> bool:
        """Whether both are within the limit; what is not a number is not."""
        return self.map <= LIMIT and self.output <= LIMIT


def compare(run: Run, looking: Looking, pictures: Sequence[Tensor], *, batch: bool) -> Agreement:
    """Run a file and the library on prepared images [3, H, W], each cued with what the network sees in it.

    Args:
        run: the file.
        looking: the library.
        pictures: one or more.
        batch: also ask for two of one image at once, the second upside down.

    Example:
        >>> from torch import nn
        >>> from excite.export.trace import Looking
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> looking = Looking(net, "1", "mwp")
        >>> compare(looking, looking, [torch.rand(3, 4, 4)], batch=True).map
        0.0
    """
    inputs = [picture[None] for picture in pictures]
    if batch:
        inputs.append(torch.stack([pictures[0], pictures[0].flip(1)]))
    differences = [_differences(run, looking, each) for each in inputs]
    maps, outputs, sums = zip(*differences, strict=True)
    return Agreement(len(pictures), max(maps), max(outputs), min(sums))


@torch.no_grad()
def _differences(run: Run, looking: Looking, picture: Tensor) -> tuple[float, float, float]:
    output = looking.answer(picture)
    best = output.flatten(2).mean(2).argmax(1) if output.dim() > 2 else output.argmax(1)
    signal = torch.cat([prior(output[k : k + 1], {int(unit): 1.0}) for k, unit in enumerate(best)])
    ours, theirs = looking(picture, signal), run(picture, signal)
    sums = ours[0].abs().sum((1, 2))
    in_map, in_output = (
        _apart(theirs[0], ours[0], sums.clamp(min=FAINT)),
        _apart(theirs[1], ours[1], ours[1].abs().amax()[None]),
    )
    return in_map, in_output, float(sums.min())


def _apart(theirs: Tensor, ours: Tensor, scale: Tensor) -> float:
    """The largest difference, relative to a scale for each image where that is not 0; NaN is infinitely far."""
    if theirs.shape != ours.shape:
        return float("inf")
    differences = (theirs - ours).abs().flatten(1).amax(1)
    return float(torch.where(scale > 0, differences / scale, differences).nan_to_num(float("inf")).max())


def prepared(classifier: Classifier, picture: Image.Image, sizes: Sizes) -> Tensor:
    """An image as the classifier takes it, in a size that the file serves.

    Example:
        >>> from PIL import Image
        >>> from excite.export.trace import Sizes
        >>> prepared(excite.load(), Image.new("RGB", (500, 375)), Sizes(224, 224, step=32)).shape
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


def any_picture(sizes: Sizes) -> Tensor:
    """An image of nothing, always the same: for a check where nobody gave a real one.

    Example:
        >>> from excite.export.trace import Sizes
        >>> any_picture(Sizes(4, 6)).shape
        torch.Size([3, 4, 6])
    """
    return torch.randn(3, sizes.height, sizes.width, generator=torch.Generator().manual_seed(0))


def demand(agreement: Agreement) -> None:
    """Refuse a file that does not agree."""
    if not agreement.good:
        raise ModelError(
            f"the file differs from the library by {agreement.map:.1e} of the map's sum (which is as little as "
            f"{agreement.faintest:.1e} of the signal) and {agreement.output:.1e} of the largest score, more than "
            f"{LIMIT:.0e}: nothing was written"
        )
