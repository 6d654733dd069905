"""Multi-label cross-entropy over many thousand tags, in pieces: the logits of a batch are never there all at once.

For a picture it is the sum, over all tags, of ``log(1 + exp(logit))``, less the logits of its own tags. A batch of 1024
with 18,157 tags has 74 MB of logits, and the usual way needs them five or six times over. Here a piece of the outputs
is computed, its loss and gradients are added up, and it is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

__all__ = ["linear_loss", "logits_loss"]

PIECE = 1 << 20  # logits at a time: 4 MB, which stay in the cache of a processor core

EXACT = 40  # from here on log(1 + exp(x)) is x, also in double precision


def linear_loss(features: Tensor, weight: Tensor, bias: Tensor | None, units: Tensor) -> Tensor:
    """The loss of a linear output layer, summed over a batch, with gradients for its features, weights and biases.

    Args:
        features: [pictures, inputs] what the layer reads.
        weight: [tags, inputs] of the layer.
        bias: [tags], or None.
        units: [pictures, n] the tags of each picture; -1 means nothing, and a tag counts once.

    Example:
        >>> loss = linear_loss(torch.zeros(1, 4), torch.zeros(2, 4), None, torch.tensor([[1, -1]]))
        >>> round(float(loss), 4)  # twice log 2
        1.3863
    """
    if not torch.is_grad_enabled():  # or gradients would be computed for nobody
        features, weight, bias = features.detach(), weight.detach(), None if bias is None else bias.detach()
    with torch.autocast(features.device.type, enabled=False):  # sums of thousands of terms need all digits
        loss: Tensor = _LinearLoss.apply(features.to(weight.dtype), weight, bias, units)  # type: ignore[no-untyped-call]  # torch has no type for it
    return loss


def logits_loss(logits: Tensor, units: Tensor) -> Tensor:
    """The same for logits [pictures, tags] that a network has computed in a way of its own.

    Example:
        >>> round(float(logits_loss(torch.zeros(1, 2), torch.tensor([[1, -1]]))), 4)
        1.3863
    """
    loss: Tensor = _LogitsLoss.apply(logits, units)  # type: ignore[no-untyped-call]  # torch has no type for it
    return loss


class _LinearLoss(torch.autograd.Function):
    """Gradients are computed along with the loss, which is a sum: behind it comes nothing but a factor."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, units: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        gradients = [
            torch.zeros_like(tensor) if want and tensor is not None else None
            for tensor, want in zip((features, weight, bias), wanted, strict=True)
        ]
        below, of_weight, of_bias = gradients
        rows, columns = _positives(units)
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        for start, end in _pieces(len(features), len(weight)):
            piece = weight[start:end]
            logits = features @ piece.T if bias is None else torch.addmm(bias[start:end], features, piece.T)
            total += _loss_of_piece(logits, rows, columns, start, end)
            if not any(wanted):
                continue
            slope = _slope_of_piece(logits, rows, columns, start, end)
            if below is not None:
                below.addmm_(slope, piece)
            if of_weight is not None:
                torch.mm(slope.T, features, out=of_weight[start:end])
            if of_bias is not None:
                of_bias[start:end] = slope.sum(0)
        ctx.gradients = gradients
        return total.to(features.dtype)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = factors
        below, weight, bias = (None if each is None else each.mul_(factor) for each in ctx.gradients)
        ctx.gradients = None  # they were changed in place: a second time they would be wrong
        return below, weight, bias, None


class _LogitsLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, units: Tensor) -> Tensor:
        ctx.save_for_backward(logits, units)
        rows, columns = _positives(units)
        total = torch.zeros((), dtype=torch.float64, device=logits.device)
        for start, end in _pieces(*logits.shape):
            total += _loss_of_piece(logits[:, start:end], rows, columns, start, end)
        return total.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor, None]:
        (factor,) = factors
        logits, units = ctx.saved_tensors
        slope = logits.sigmoid()
        slope[_positives(units)] -= 1
        return slope.mul_(factor), None


def _pieces(pictures: int, tags: int) -> Iterator[tuple[int, int]]:
    size = max(1, PIECE // max(1, pictures))
    return ((start, min(start + size, tags)) for start in range(0, tags, size))


def _positives(units: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and columns of the tags that are there, each once."""
    ordered = units.long().sort(1).values
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    rows, places = torch.nonzero((ordered >= 0) & ~again, as_tuple=True)
    return rows, ordered[rows, places]


def _loss_of_piece(logits: Tensor, rows: Tensor, columns: Tensor, start: int, end: int) -> Tensor:
    here = (columns >= start) & (columns < end)
    positive = logits[rows[here], columns[here] - start]
    return functional.softplus(logits, threshold=EXACT).sum(dtype=torch.float64) - positive.sum(dtype=torch.float64)


def _slope_of_piece(logits: Tensor, rows: Tensor, columns: Tensor, start: int, end: int) -> Tensor:
    """The gradient at the logits, in their place."""
    here = (columns >= start) & (columns < end)
    slope = logits.sigmoid_()
    slope[rows[here], columns[here] - start] -= 1
    return slope
