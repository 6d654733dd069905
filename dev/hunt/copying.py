"""Odd spellings of copies: there and back again. All but a few are right, and must not be refused."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from hunt.parts import CHANNELS, SHAPE, SIDE, UNITS, Parts, Spelling

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["COPYING"]


def back(round_trip: Callable[[Tensor], Tensor], **options: Any) -> Spelling:
    """A round trip that must be explained."""
    return Spelling(lambda _parts, h: round_trip(h), right=True, **options)


def settled(round_trip: Callable[[Tensor], Tensor], **options: Any) -> Spelling:
    """The same for one that no neuron survives, or that makes one: what is behind a ReLU is none, in either network."""
    return back(round_trip, rectified=True, **options)


def maybe(round_trip: Callable[[Tensor], Tensor], *, level: bool = False) -> Spelling:
    """A round trip that may be refused."""
    return Spelling(lambda _parts, h: round_trip(h), rectified=True, level=level)


def filled(h: Tensor) -> Tensor:
    """Piece by piece into fresh memory."""
    space = torch.zeros(h.shape, dtype=h.dtype)
    for channel in range(CHANNELS):
        space[:, channel] = h[:, channel]
    return space


def filled_by_copy(h: Tensor) -> Tensor:
    """The same with ``copy_`` into views."""
    space = torch.empty(h.shape, dtype=h.dtype)
    for target, source in zip(space.unbind(1), h.unbind(1), strict=True):
        target.copy_(source)
    return space


def scattered(h: Tensor) -> Tensor:
    """Selected by a mask, and put back in the same places."""
    mask = h > 0
    return torch.where(mask, torch.zeros_like(h).masked_scatter(mask, h[mask]), h)


def appended(h: Tensor) -> Tensor:
    """Rows in a list."""
    rows = []
    for row in h[0]:
        rows.append(row[None])  # noqa: PERF401 - as networks do
    return torch.cat(rows)[None]


def halved(parts: Parts, h: Tensor) -> Tensor:
    """The first channel overwritten in a view of a copy."""
    copy = h.clone()
    copy[:, :1].mul_(2)
    return copy * parts.scale.detach().sign().abs()


def halved_plainly(parts: Parts, h: Tensor) -> Tensor:
    """The same, joined."""
    return torch.cat([h[:, :1] * 2, h[:, 1:]], 1) * parts.scale.detach().sign().abs()


def unsorted(h: Tensor) -> Tensor:
    """Sorted, and put back in order."""
    values, order = h.flatten(1).sort(1)
    return values.gather(1, order.argsort(1)).view(SHAPE)


COPYING: dict[str, Spelling] = {
    "flip twice": back(lambda h: h.flip(1).flip(1)),
    "roll": back(lambda h: h.roll(1, 2).roll(-1, 2)),
    "permute": back(lambda h: h.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)),
    "channels last": back(lambda h: h.contiguous(memory_format=torch.channels_last)),
    "view, transpose": back(lambda h: h.contiguous().view(1, CHANNELS, -1).transpose(1, 2).transpose(1, 2).view(SHAPE)),
    "pad, crop": back(lambda h: functional.pad(h, (1, 1, 1, 1))[:, :, 1:-1, 1:-1]),
    "split, cat": back(lambda h: torch.cat(h.split(1, 1), 1)),
    "chunk, cat": back(lambda h: torch.cat(list(h.chunk(CHANNELS, 1)), 1)),
    "unbind, stack": back(lambda h: torch.stack(h.unbind(1), 1)),
    "tensor_split": back(lambda h: torch.cat(h.tensor_split(3, 2), 2)),
    "rows in a list": back(appended),
    "stack of rows": back(lambda h: torch.stack(list(h))),
    "reduce(cat)": back(lambda h: reduce(lambda one, other: torch.cat([one, other], 1), h.split(1, 1))),
    "index by list": back(lambda h: h[:, [1, 0]][:, [1, 0]]),
    "index by tensor": back(lambda h: h[:, torch.arange(CHANNELS)]),
    "index_select": back(lambda h: h.index_select(2, torch.arange(SIDE))),
    "gather": settled(lambda h: h.flatten(1).gather(1, torch.arange(UNITS)[None]).view(SHAPE)),
    "take": settled(lambda h: h.take(torch.arange(UNITS)).view(SHAPE)),
    "scatter": settled(
        lambda h: torch.zeros_like(h).flatten(1).scatter(1, torch.arange(UNITS)[None], h.flatten(1)).view(SHAPE)
    ),
    "index_copy": settled(lambda h: torch.zeros_like(h).index_copy(1, torch.arange(CHANNELS), h)),
    "masked_scatter": settled(scattered),
    "None, squeeze": back(lambda h: h[None].squeeze(0)[..., None].squeeze(-1)),
    "expand, select": back(lambda h: h.expand(3, -1, -1, -1)[:1]),
    "repeat, select": back(lambda h: h.repeat(1, 2, 1, 1)[:, :CHANNELS]),
    "repeat_interleave": settled(lambda h: h.repeat_interleave(2, 1)[:, ::2]),
    "pixel_shuffle": back(
        lambda h: functional.pixel_unshuffle(functional.pixel_shuffle(h.repeat(1, 2, 1, 1), 2), 2)[:, :CHANNELS]
    ),
    "double()": back(lambda h: h.double().to(h.dtype)),
    "clone, detach": back(lambda h: h.clone().detach()),
    "fresh[:, k] =": settled(filled),
    "view.copy_": settled(filled_by_copy),
    "empty_like.copy_": settled(lambda h: torch.empty_like(h).copy_(h)),
    "sort, unsort": settled(unsorted),
    "upsampled": settled(lambda h: functional.interpolate(h, scale_factor=2)[..., ::2, ::2]),
    "max pool of itself": settled(lambda h: functional.max_pool2d(h, 1)),
    "mean pool of itself": settled(lambda h: functional.avg_pool2d(h, 1), level=True),
    "sum of one": settled(lambda h: h[None].sum(0), level=True),
    "unfold, fold": settled(lambda h: functional.fold(functional.unfold(h, 1), (SIDE, SIDE), 1), level=True),
    "times 1": back(lambda h: h * 1.0),
    "plus 0": back(lambda h: h + 0),
    "neg, neg": back(lambda h: h.neg().neg()),
    "a view overwritten": Spelling(halved, halved_plainly, right=True),
    "rot90": maybe(lambda h: torch.rot90(torch.rot90(h, 1, (2, 3)), 3, (2, 3))),
    "as_strided": maybe(lambda h: h.contiguous().as_strided(h.shape, (UNITS, SIDE * SIDE, SIDE, 1))),
    "diagonal": maybe(lambda h: torch.diag_embed(h).diagonal(dim1=-2, dim2=-1)),
    "tril + triu": maybe(lambda h: h.tril() + h.triu(1), level=True),
    "take_along_dim": maybe(lambda h: h.flatten(1).take_along_dim(torch.arange(UNITS)[None], 1).view(SHAPE)),
    "hstack": maybe(lambda h: torch.hstack([h[:, :1], h[:, 1:]])),
    "dstack": maybe(lambda h: torch.dstack([h[0], h[0]])[None, ..., :SIDE]),
    "block_diag": maybe(
        lambda h: (
            torch.block_diag(*h[0])[: CHANNELS * SIDE]
            .view(CHANNELS, SIDE, CHANNELS, SIDE)
            .diagonal(dim1=0, dim2=2)
            .permute(2, 0, 1)[None]
        )
    ),
    "select_scatter": maybe(
        lambda h: torch.select_scatter(torch.select_scatter(torch.zeros_like(h), h[:, 0], 1, 0), h[:, 1], 1, 1)
    ),
    "slice_scatter": maybe(lambda h: torch.slice_scatter(torch.zeros_like(h), h)),
    "unflatten": maybe(lambda h: h.flatten(1).unflatten(1, SHAPE[1:])),
    "swapaxes": maybe(lambda h: h.swapaxes(1, 2).swapdims(1, 2)),
    "cartesian via meshgrid": maybe(
        lambda h: torch.stack(torch.meshgrid(h.flatten(), torch.zeros(2, dtype=h.dtype), indexing="ij"))[0, :, 0].view(
            SHAPE
        )
    ),
    "einsum permute": maybe(lambda h: torch.einsum("nchw->nwhc", h).permute(0, 3, 2, 1)),
    "eye @ h": maybe(lambda h: torch.eye(SIDE, dtype=h.dtype) @ h, level=True),
    "cumsum, diff": maybe(lambda h: torch.diff(h.cumsum(1), dim=1, prepend=torch.zeros_like(h[:, :1]))),
}
