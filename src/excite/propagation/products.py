"""Operations that are linear in their children, with their transposes: a competition needs both directions.

Any operation can be transposed by autograd (`Traced`). The ones that cost most, convolutions, are transposed by
calling the same kernels directly, for any number of signals at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.deciding import is_known
from excite.propagation.packing import can_pack, convolve, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.signed_weights import Part

__all__ = ["Connection", "Convolution", "Product", "Traced"]

FEW_PLACES = 100  # with more, a convolution takes much longer than bringing its weights in order: not worth the memory


class Product(Protocol):
    """A linear operation."""

    def __call__(self, child: Tensor, part: Part | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The response without bias, and its transpose: from [signals, *response] to [signals, *child]."""


class Traced:
    """Any operation ``(child, weight) -> response``, transposed by autograd one signal at a time."""

    def __init__(self, operation: Callable[[Tensor, Tensor | None], Tensor]) -> None:
        self.operation = operation

    def __call__(self, child: Tensor, part: Part | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `Product`."""
        with torch.enable_grad():
            leaf = child.detach().requires_grad_()
            response = self.operation(leaf, None if part is None else part.tensor)

        def back(signals: Tensor) -> Tensor:
            shares = [torch.autograd.grad(response, leaf, each, retain_graph=True)[0] for each in signals]
            return shares[0][None] if len(shares) == 1 else torch.stack(shares)

        return response.detach(), back


class Connection:
    """A full connection."""

    def __call__(self, child: Tensor, part: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `Product`."""
        weight = part.tensor
        return functional.linear(child, weight), lambda signals: torch.matmul(signals, weight)


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

    def __call__(self, child: Tensor, part: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `Product`."""
        one_place = not any(self.padding) and all(side == 1 for side in part.weight.shape[2:])
        if one_place and any(step != 1 for step in self.stride):
            return self._on_some(child, part)
        if part.kept and can_pack(child, part.weight):
            return self._packed(child, part)
        response = self._up(child, part)
        if one_place and self.groups == 1 and is_known():  # other runtimes have better convolutions than torch
            return response, lambda signals: _mixed(signals, part.tensor)
        return response, lambda signals: self._back(signals, child.shape, part.tensor)

    @property
    def places(self) -> tuple[slice, ...]:
        """The places that a kernel of one place comes to."""
        return tuple(slice(None, None, step) for step in self.stride)

    def _up(self, child: Tensor, part: Part) -> Tensor:
        return self.function(child, part.tensor, None, self.stride, self.padding, self.dilation, self.groups)

    def _on_some(self, child: Tensor, part: Part) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """A kernel of one place that takes steps: only the places that it comes to have any part in it."""
        places = self.places
        every = Convolution(self.function, [1] * len(places), self.padding, self.dilation, self.groups)
        response, back = every(child[:, :, *places].contiguous(), part)

        def back_to_all(signals: Tensor) -> Tensor:
            if not is_known() and all(isinstance(side, int) for side in child.shape):
                return _spread(back(signals), self.stride, child.shape[2:])
            shares = signals.new_zeros(len(signals), *child.shape)
            shares[:, :, :, *places] = back(signals)
            return shares

        return response, back_to_all

    def _packed(self, child: Tensor, part: Part) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """With weights in the order in which kernels read them.

        The transpose of a convolution of stride 1 is a convolution too, with the kernel turned round; or, which is the
        same, with everything else turned round: signals and shares, which are smaller.
        """
        options = self.padding, self.stride, self.dilation, self.groups
        if child.shape[2] * child.shape[3] <= FEW_PLACES:
            up = part.form("up", lambda: pack(lambda: part.tensor, *options, child.shape))
            response = convolve(child, up, *options)
        else:
            response = self._up(child, part)
        around = [
            step * (side - 1) - pad
            for step, side, pad in zip(self.dilation, part.weight.shape[2:], self.padding, strict=True)
        ]
        if self.groups != 1 or any(step != 1 for step in self.stride) or any(pad < 0 for pad in around):
            return response, lambda signals: self._back(signals, child.shape, part.tensor)
        turned = around, self.stride, self.dilation, self.groups

        def back(signals: Tensor) -> Tensor:
            flat = signals.flatten(0, 1).flip(2, 3)
            down = part.form("down", lambda: pack(lambda: _given(part.tensor), *turned, flat.shape))
            return convolve(flat, down, *turned).flip(2, 3).view(*signals.shape[:2], *child.shape[1:])

        return response, back

    def _back(self, signals: Tensor, shape: torch.Size, weight: Tensor) -> Tensor:
        """All signals of all pictures are one batch."""
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
        return shares.view(*signals.shape[:2], *shape[1:])


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


def _mixed(signals: Tensor, weight: Tensor) -> Tensor:
    """Back through a kernel of one place, which mixes the channels at each place: a product of matrices."""
    shares = torch.matmul(weight.flatten(1).t(), signals.flatten(3))
    return shares.view(*signals.shape[:2], weight.shape[1], *signals.shape[3:])


def _given(kernel: Tensor) -> Tensor:
    """From what each output takes to what each input gives."""
    return kernel.transpose(0, 1).contiguous()
