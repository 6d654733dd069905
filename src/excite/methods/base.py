"""What a method is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from torch import Tensor

    from excite.methods.view import View

    Cue: TypeAlias = Callable[[Tensor], Tensor]

__all__ = ["Method", "Place", "Way"]

Place = Literal["layer", "input", "top", "joint"]
Way = Literal["winners", "gradients"]


@dataclass(frozen=True)
class Method:
    """A way to make maps.

    Attributes:
        name: what users type.
        description: one line for ``excite ls methods``.
        maps: from a view of pictures and a cue to a map [pictures, h, w] for each layer that the view reads. The cue
            makes, of a network's output, the signal that starts there. Maps may be signed; only their positive part
            is evidence.
        place: where the method is read when nobody names a layer: at the classifier's own ``layer``, at the ``input``
            (the picture itself), at the ``top``, the last map before places are lost, or ``joint``, at several
            layers at once.
        way: what its forward pass must keep: the competition for ``winners``, or ``gradients``.
        scales: the sizes of the picture that it looks at, in sizes that the classifier was made for.
        taps: the layers of the network behind a place; most places are one.
        together: whether a cue may make several signals at once [signals, pictures, ...], which then go down together;
            the maps are [signals * pictures, h, w], those of the first signal first.
        plain: the same without a contrast of its own, for signals that are a contrast themselves ("cat, not dog").
    """

    name: str
    description: str
    maps: Callable[[View, Cue], dict[str, Tensor]]
    place: Place = "layer"
    way: Way = "winners"
    scales: tuple[float, ...] = (1.0,)
    taps: Callable[[str], tuple[str, ...]] = lambda place: (place,)
    together: bool = False
    plain: Method | None = None
