"""How far apart the places of a layer are in the picture, and how much of the picture each of them sees.

One dry run tells, under a mode that carries with every activation, for each side of its map, the stride between two
places and the pixels that the first one sees: an interval whose ends may lie outside of the picture. So the field is
that of the operations, whatever the size of the picture. Behind upsampling, places see unequally much, and the field
may be up to two steps of the coarser map larger than any of them sees.

What only scales a map does not count as seeing: the gate of a squeeze-and-excite block, which is one number for the
whole map, and the statistics of a norm. Whatever else mixes all places (attention, global pooling, a linear layer on a
flattened map) sees the whole picture; nothing is known of places behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

from excite.models.reaching import REACHING
from excite.models.views import Seeing, Side, set_view, view_of
from excite.propagation.mode import WRITING, operation_name
from excite.propagation.provenance import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["Receptive", "view_of"]


class Receptive(TorchFunctionMode):
    """While it is on, every activation computed from ``pictures`` carries what it sees; read it with `view_of`."""

    def __init__(self, pictures: Tensor) -> None:
        super().__init__()
        self.pictures = pictures.detach()  # an alias: nothing is left on the user's own tensor
        set_view(self.pictures, (Side(pictures.dim() - 2), Side(pictures.dim() - 1)))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        live = any(view_of(tensor) is not None for tensor in tensors_in((args, kwargs)))
        result = func(*args, **kwargs)
        if live:
            answers = tensors_in(args[0] if func.__name__ in WRITING else result)
            reach = REACHING.get(operation_name(func), Seeing.joined)
            for position, answer in enumerate(answers):
                set_view(answer, reach(Seeing(func, args, kwargs, answer, position)))
        return result
