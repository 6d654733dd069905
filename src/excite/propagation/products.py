"""Operations that are linear in their children, with their transposes: a competition needs both directions.

Any operation can be transposed by autograd (`Traced`). The ones that cost most, convolutions, are transposed by
calling the same kernels directly, for any number of signals at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.deciding import is_known
from excite.propagation.layout import empty_places, is_side_by_side
from excite.propagation.packing import can_pack, convolve, pack
from excite.propagation.shifting import LARGE, convolve_shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.signed_weights import Part

__all__ = ["Back", "Connection", "Convolution", "Product", "Traced"]

FEW_PLACES = 100  # with more, a convolution takes much longer than bringing its weights in order: not worth the memory


class Back(Protocol):
    """The transpose of a linear operation."""

    def __call__(self, signals: Tensor, onto: Tensor | None = None) -> Tensor:
        """From [signals, *response] to [signals, *child]; added to ``onto``, in place, where that is given."""


class Product(Protocol):
    """A linear operation."""

    def __call__(self, child: Tensor, part: Part | None) -> tuple[Tensor, Back]:
        """The response without bias, and its transpose."""


class Traced:
    """Any operation ``(child, weight) -> response``, transposed by autograd one signal at a time."""

    def __init__(self, operation: Callable[[Tensor, Tensor | None], Tensor]) -> None:
        self.operation = operation

    def __call__(self, child: Tensor, part: Part | None) -> tuple[Tensor, Back]:
        """See `Product`."""
        with torch.enable_grad():
            leaf = child.detach().requires_grad_()
            response = self.operation(leaf, None if part is None else part.tensor)

        def back(signals: Tensor, onto: Tensor | None = None) -> Tensor:
            shares = [torch.autograd.grad(response, leaf, each, retain_graph=True)[0] for each in signals]
            return _added(shares[0][None] if len(shares) == 1 else torch.stack(shares), onto)

        return response.detach(), back


class Connection:
    """A full connection."""

    def __call__(self, child: Tensor, part: Any) -> tuple[Tensor, Back]:
        """See `Product`."""
        weight = part.tensor
        return functional.linear(child, weight), lambda signals, onto=None: _added(torch.matmul(signals, weight), onto)


class Convolution:
    """A convolution of a batch, in any number of dimensions.

    Args:
        function: torch's own.
        stride: and the others as torch takes them, a number for each dimension.
        padding: at both ends of each dimension.
        dilation: of the kernel.
        groups: of channels.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> None:
        self.function = function
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def __call__(self, child: Tensor, part: Any) -> tuple[Tensor, Back]:
        """See `Product`."""
        one_place = not any(self.padding) and all(side == 1 for side in part.weight.shape[2:])
        if one_place and any(step != 1 for step in self.stride):
            return self._on_some(child, part)
        if part.kept and can_pack(child, part.weight):
            large = part.weight.numel() >= LARGE and is_side_by_side(child)
            return self._shifted(child, part) if large and self._turns(part) else self._packed(child, part)
        if one_place and self.groups == 1 and is_known():  # other runtimes have better convolutions than torch
            return self._mixing(child, part)
        return self._up(child, part), self._plain_back(child, part)

    def _plain_back(self, child: Tensor, part: Part) -> Back:
        return lambda signals, onto=None: _added(self._back(signals, child.shape, part.tensor), onto)

    def _mixing(self, child: Tensor, part: Part) -> tuple[Tensor, Back]:
        """A kernel of one place mixes the channels there: a product of matrices."""
        once = [part.tensor]  # for the signals that come at once; it is made anew for later ones

        def rows() -> Tensor:
            return (once.pop() if once else part.tensor).flatten(1)

        if is_side_by_side(child):
            response = functional.linear(child.movedim(1, -1), once[0].flatten(1)).movedim(-1, 1)
            return response, lambda signals, onto=None: _mixed_places(signals, rows(), onto)
        return self.function(child, once[0]), lambda signals, onto=None: _added(_mixed(signals, rows()), onto)

    @property
    def places(self) -> tuple[slice, ...]:
        """The places that a kernel of one place comes to."""
        return tuple(slice(None, None, step) for step in self.stride)

    def _up(self, child: Tensor, part: Part) -> Tensor:
        return self.function(child, part.tensor, None, self.stride, self.padding, self.dilation, self.groups)

    def _on_some(self, child: Tensor, part: Part) -> tuple[Tensor, Back]:
        """A kernel of one place that takes steps: only the places that it comes to have any part in it."""
        places = self.places
        every = Convolution(self.function, [1] * len(places), self.padding, self.dilation, self.groups)
        alike = torch.channels_last if is_side_by_side(child) else torch.contiguous_format
        response, back = every(child[:, :, *places].contiguous(memory_format=alike), part)

        def back_to_all(signals: Tensor, onto: Tensor | None = None) -> Tensor:
            if onto is not None:
                onto[:, :, :, *places] += back(signals)
                return onto
            if not is_known() and all(isinstance(side, int) for side in child.shape):
                return _spread(back(signals), self.stride, child.shape[2:])
            lead, channels, sides = (len(signals), child.shape[0]), child.shape[1], child.shape[2:]
            if is_side_by_side(child):
                shares = empty_places(signals, *lead, channels=channels, sides=sides)
            else:
                shares = signals.new_zeros(*lead, channels, *sides)
            shares[:, :, :, *places] = back(signals)
            return shares

        return response, back_to_all

    def _packed(self, child: Tensor, part: Part) -> tuple[Tensor, Back]:
        """With weights in the order in which kernels read them.

        The transpose of a convolution of stride 1 is a convolution too, with the kernel turned round.
        """
        options = self.padding, self.stride, self.dilation, self.groups
        if child.shape[2] * child.shape[3] <= FEW_PLACES:
            up = part.form("up", lambda: pack(lambda: part.tensor, *options, child.shape))
            response = convolve(child, up, *options)
        else:
            response = self._up(child, part)
        if not self._turns(part):
            return response, self._plain_back(child, part)
        turned = self._around(part), self.stride, self.dilation, self.groups

        def back(signals: Tensor, onto: Tensor | None = None) -> Tensor:
            flat = signals.flatten(0, 1)
            down = part.form("down", lambda: pack(lambda: _given(part), *turned, flat.shape))
            return _added(_apart(convolve(flat, down, *turned), signals), onto)

        return response, back

    def _shifted(self, child: Tensor, part: Part) -> tuple[Tensor, Back]:
        """With weights that are kept once for both directions."""
        sides, dilation, around = part.weight.shape[2:], self.dilation, self._around(part)
        places = part.form("places", lambda: _place_by_place(part))
        turned = places.unbind()[::-1]

        def back(signals: Tensor, onto: Tensor | None = None) -> Tensor:
            found = convolve_shifted(signals.flatten(0, 1), turned, sides, around, dilation)
            return _added(_apart(found, signals), onto)

        return convolve_shifted(child, places.mT.unbind(), sides, self.padding, dilation), back

    def _turns(self, part: Part) -> bool:
        """Whether the transpose is a convolution of the same kind."""
        return self.groups == 1 and all(step == 1 for step in self.stride) and min(self._around(part)) >= 0

    def _around(self, part: Part) -> list[int]:
        """The padding of the transpose."""
        each = zip(self.dilation, part.weight.shape[2:], self.padding, strict=True)
        return [step * (side - 1) - pad for step, side, pad in each]

    def _back(self, signals: Tensor, shape: torch.Size, weight: Tensor) -> Tensor:
        """All signals of all images are one batch."""
        flat = signals.flatten(0, 1)
        like = flat.new_empty(1).expand(flat.shape[0], *shape[1:])  # only its shape is looked at
        shares: Tensor = torch.ops.aten.convolution_backward(
            flat,
            like,
            weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            False,
            [0] * len(self.stride),
            self.groups,
            (True, False, False),
        )[0]
        return _apart(shares, signals)


def _spread(shares: Tensor, stride: Sequence[int], sides: Sequence[int]) -> Tensor:
    """To every so many places, nothing to those between: without writing to some places, which graphs do slowly."""
    lead, apart = shares.shape[:3], [side for each in shares.shape[3:] for side in (each, 1)]
    gaps = [gap for step in reversed(stride) for gap in (0, step - 1, 0, 0)]
    wide = [side * step for side, step in zip(shares.shape[3:], stride, strict=True)]
    whole = functional.pad(shares.reshape(*lead, *apart), gaps[:-2]).reshape(*lead, *wide)
    if wide == list(sides):
        return whole
    for dim, side in enumerate(sides, start=3):
        whole = whole.narrow(dim, 0, side)
    return whole.clone()  # the shares may be written to


def _apart(flat: Tensor, signals: Tensor) -> Tensor:
    """What is one batch of all signals of all images, as [signals, images, ...]."""
    return flat.view(*signals.shape[:2], *flat.shape[1:])


def _added(shares: Tensor, onto: Tensor | None) -> Tensor:
    return shares if onto is None else onto.add_(shares)


def _mixed_places(signals: Tensor, weight: Tensor, onto: Tensor | None) -> Tensor:
    """As `_mixed`, with the channels side by side: one product of matrices for all places of all signals."""
    lead, sides = signals.shape[:2], signals.shape[3:]
    places = signals.movedim(2, -1).reshape(-1, signals.shape[2])
    if onto is not None and onto.movedim(2, -1).is_contiguous():
        onto.movedim(2, -1).view(-1, weight.shape[1]).addmm_(places, weight)
        return onto
    return _added(torch.mm(places, weight).view(*lead, *sides, weight.shape[1]).movedim(-1, 2), onto)


def _mixed(signals: Tensor, weight: Tensor) -> Tensor:
    """Back through a kernel of one place, which mixes the channels at each place: a product of matrices."""
    shares = torch.matmul(weight.t(), signals.flatten(3))
    return shares.view(*signals.shape[:2], weight.shape[1], *signals.shape[3:])


def _given(part: Part) -> Tensor:
    """From what each output takes to what each input gives: the transpose, turned round."""
    outputs, inputs, *sides = part.weight.shape
    given = part.weight.new_empty(inputs, outputs, *sides)
    for there, place in zip(reversed(given.flatten(2).unbind(2)), part.places(), strict=True):
        there.copy_(place.t())
    return given


def _place_by_place(part: Part) -> Tensor:
    """The weights of each place of the kernel in one piece, [places, outputs, inputs]."""
    outputs, inputs, *sides = part.weight.shape
    whole = part.weight.new_empty(math.prod(sides), outputs, inputs)
    for there, place in zip(whole, part.places(), strict=True):
        there.copy_(place)
    return whole
