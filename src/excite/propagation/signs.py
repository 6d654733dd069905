"""The signs of what responses are multiplied with: which way a norm turns each of its neurons.

They depend on the network alone, and finding them takes a dozen small operations for each norm. So they are kept by
the place of the numbers in memory, and used again only if the numbers are still the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from excite.propagation.deciding import is_known

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Signs", "signs_of"]

MOST, WIDEST = 1024, 2**14  # norms that are remembered, and channels of one: 200 MB if all were the widest, usually 5

_seen: dict[tuple[Any, ...], tuple[Tensor, Signs]] = {}


@dataclass(frozen=True)
class Signs:
    """Of the numbers that responses are multiplied with.

    Attributes:
        polarity: 1, -1 or 0, in the numbers' own shape.
        all_positive: nothing is turned round or lost.
        mute: the polarity's magnitude, where it is 0 somewhere; None where it is not.
        orientation: -1 where the polarity is, else 1; flat.
    """

    polarity: Tensor
    all_positive: bool
    mute: Tensor | None
    orientation: Tensor

    @classmethod
    def of(cls, polarity: Tensor) -> Signs:
        """What there is to know of a polarity."""
        return cls(
            polarity,
            bool((polarity == 1).all()),
            polarity.abs() if bool((polarity == 0).any()) else None,
            torch.where(polarity < 0, -1.0, 1.0).to(polarity).flatten(),
        )


def signs_of(scale: Tensor, *, kept: bool = False) -> Signs:
    """The signs of some numbers; ``kept`` are those of a network's own, which will be asked for again.

    Example:
        >>> signs_of(torch.tensor([2.0, -3.0, 0.0])).polarity
        tensor([ 1., -1.,  0.])
    """
    if not kept or not is_known() or scale.numel() > WIDEST:
        return Signs.of(scale.sign())
    key = (scale.data_ptr(), scale.shape, scale.dtype, scale.device)
    found = _seen.get(key)
    if found is not None and torch.equal(found[0], scale):
        return found[1]
    if len(_seen) >= MOST:
        _seen.clear()
    signs = Signs.of(scale.sign())
    _seen[key] = scale.clone(), signs
    return signs
