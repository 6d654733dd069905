"""Pictures squashed to a square, as the paper's localisation takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PIL import Image

from excite.models import Preprocess

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from excite.models import Classifier

__all__ = ["squared"]


def squared(classifier: Classifier) -> Classifier:
    """The same classifier, to whom every picture is shown as a square.

    Its map then still covers the whole picture, so it need only be stretched over it to lie right.

    Example:
        >>> classifier = squared(excite.load())
        >>> classifier.prepared(Image.new("RGB", (400, 300))).shape
        torch.Size([3, 224, 224])
    """
    usual = classifier.preprocess
    square = replace(usual, square=True) if isinstance(usual, Preprocess) else _Squashing(usual)
    return replace(classifier, preprocess=square)


@dataclass(frozen=True, repr=False)
class _Squashing:
    """A preparation of one's own, after the picture was made a square of its shorter side."""

    after: Callable[[Image.Image], Tensor]

    def __call__(self, picture: Image.Image) -> Tensor:
        side = min(picture.size)
        return self.after(picture.resize((side, side), Image.Resampling.BICUBIC))

    def __repr__(self) -> str:
        """The same in every process, where the preparation is a function: answers are kept by it."""
        return f"squashed {getattr(self.after, '__qualname__', repr(self.after))}"
