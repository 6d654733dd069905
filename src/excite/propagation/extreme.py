"""Numbers near the ends of what floats hold, brought to where floats are dense.

A competition does not depend on the common scale of its children, nor on that of its weights. So where either is
extreme it is scaled, by a power of two, before products of the two leave the range: a total that is 0 or infinite by
rounding would lose the signal.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

import torch

from excite.propagation.keeping import version_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["scale_for", "scaled_by", "weight_scale"]

FAINT, HUGE = 1e-15, 1e15  # a product of two such, a million times, is still a number of float32

_ordinary: dict[int, tuple[weakref.ref[Tensor], int, int]] = {}  # weights that were found to need no scale


def scale_for(largest: float) -> float:
    """What to multiply values with whose largest magnitude is this: 1 for ordinary ones, and for nothing but 0.

    Example:
        >>> scale_for(3.0), scale_for(2.0**100) == 2.0**-101, scale_for(0.0)
        (1.0, True, 1.0)
    """
    if not (0 < largest < FAINT or HUGE < largest < math.inf):
        return 1.0
    return math.ldexp(1.0, -math.frexp(largest)[1])


def scaled_by(values: Tensor, scale: float) -> Tensor:
    """The values times a scale that float32 may not hold.

    Example:
        >>> scaled_by(torch.tensor([2.0**-140]), 2.0**140)
        tensor([1.])
    """
    return values if scale == 1 else (values.to(torch.float64) * scale).to(values.dtype)


def weight_scale(weight: Tensor) -> float:
    """What to multiply weights with. That they are ordinary is remembered; extreme ones are looked at each time.

    Example:
        >>> weight_scale(torch.tensor([1e-40])) > 1e38
        True
    """
    seen = _ordinary.get(id(weight))
    mark = version_of(weight), weight.data_ptr()
    if seen is not None and seen[0]() is weight and seen[1:] == mark:
        return 1.0
    if not weight.numel():
        return 1.0
    least, most = (float(end) for end in weight.detach().aminmax())
    scale = scale_for(max(-least, most))
    if scale == 1:
        key = id(weight)
        _ordinary[key] = (weakref.ref(weight, lambda _gone: _ordinary.pop(key, None)), *mark)
    return scale
