"""What a method is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from excite.propagation import Sweep

__all__ = ["Method"]


@dataclass(frozen=True)
class Method:
    """A way to make maps.

    Attributes:
        name: what users type.
        description: one line for ``excite ls methods``.
        maps: from a forward pass and a signal (of the output's shape) to a map [pictures, h, w] for each tapped
            layer. Maps may be signed; only their positive part is evidence.
    """

    name: str
    description: str
    maps: Callable[[Sweep, Tensor], dict[str, Tensor]]
