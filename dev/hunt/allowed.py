"""Odd spellings that are right, and must not be refused: selections, decisions, divisors, statistics, constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hunt.parts import CHANNELS, SHAPE, UNITS, Parts, Spelling
from hunt.severing import in_thread, written

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ALLOWED"]

GLOBAL = torch.arange(UNITS).view(SHAPE) - 8


@dataclass
class Settings:
    """Constants as networks keep them in a configuration."""

    shift: Tensor
    factor: float = 2.0


def counted() -> Tensor:
    """The same numbers whoever makes them."""
    return torch.arange(UNITS, dtype=torch.float64).view(SHAPE) - 8


@cache
def cached() -> Tensor:
    """Made once for all images."""
    return counted()


def rectified(_parts: Parts, h: Tensor) -> Tensor:
    """The plain twin of masks."""
    return torch.relu(h)


def shifted(_parts: Parts, h: Tensor) -> Tensor:
    """The plain twin of constants that are added."""
    return h + counted().to(h.dtype)


def adds(make: Callable[[Parts, Tensor], Tensor]) -> Spelling:
    """A constant of odd make, added."""
    return Spelling(lambda parts, h: h + make(parts, h).to(h.dtype), shifted, right=True)


def weighs(make: Callable[[Tensor], Tensor]) -> Spelling:
    """Weights that a network makes anew from its parameters, in ways that would sever an activation."""

    def odd(parts: Parts, h: Tensor) -> Tensor:
        return functional.conv2d(h, make(parts.convs[5].weight), parts.convs[5].bias, padding=1)

    def plain(parts: Parts, h: Tensor) -> Tensor:
        return functional.conv2d(h, make(parts.convs[5].weight.detach()).detach(), parts.convs[5].bias, padding=1)

    return Spelling(odd, plain, right=True, inexact=True)


def beside(look: Callable[[Parts, Tensor], object]) -> Spelling:
    """Something that is computed beside the way and not used for values."""

    def odd(parts: Parts, h: Tensor) -> Tensor:
        look(parts, h)
        return h

    return Spelling(odd, right=True)


def decides(condition: Callable[[Tensor], object]) -> Spelling:
    """An ``if``."""
    return Spelling(
        lambda _, h: h * 2 if condition(h) else h * 3,
        lambda _, h: torch.cat([part * 2 for part in h.split(1, 1)], 1) if condition(h) else h * 3,
        right=True,
    )


def ordered(h: Tensor) -> list[int]:
    """The channels by their means."""
    return h.mean((0, 2, 3)).argsort().tolist()


def tracked(parts: Parts, h: Tensor) -> None:
    """Running statistics that no later step reads."""
    parts.running.mul_(0.9).add_(h.detach().mean((0, 2, 3)), alpha=0.1)


def put(target: Tensor, where: object, value: object) -> Tensor:
    """Index and set, in place."""
    target[where] = value  # type: ignore[index]
    return target


ALLOWED: dict[str, Spelling] = {
    # masks and selections
    "h * (h > 0)": Spelling(lambda _, h: h * (h > 0), rectified, right=True, level=True),
    "h * (h > 0).to(float)": Spelling(lambda _, h: h * (h > 0).to(h.dtype), rectified, right=True, level=True),
    "(h > 0).float() * h": Spelling(lambda _, h: (h > 0).to(h.dtype) * h, rectified, right=True, level=True),
    "where(h > 0, h, 0)": Spelling(lambda _, h: torch.where(h > 0, h, 0.0), rectified, right=True, level=True),
    "where(zeros_like)": Spelling(
        lambda _, h: torch.where(h > 0, h, torch.zeros_like(h)), rectified, right=True, level=True
    ),
    "masked_fill": Spelling(lambda _, h: h.masked_fill(h <= 0, 0.0), rectified, right=True, level=True),
    "masked_fill_": Spelling(lambda _, h: h.clone().masked_fill_(h <= 0, 0.0), rectified, right=True, level=True),
    "h[h <= 0] = 0": Spelling(lambda _, h: put(h.clone(), h <= 0, 0.0), rectified, right=True, level=True),
    "mask in NumPy": Spelling(
        lambda _, h: h.masked_fill(torch.from_numpy(h.detach().numpy() <= 0), 0.0), rectified, right=True, level=True
    ),
    "mask of sigmoid": Spelling(lambda _, h: h * (torch.sigmoid(h) > 0.5), rectified, right=True, level=True),
    "argmax, gather": Spelling(
        lambda _, h: h.flatten(2).gather(2, h.flatten(2).argmax(2, keepdim=True))[..., None].expand(SHAPE).clone(),
        lambda _, h: h.amax((2, 3), keepdim=True).expand(SHAPE).clone(),
        right=True,
        level=True,
    ),
    "argmax, index": Spelling(
        lambda _, h: h.flatten()[h.argmax()].expand(SHAPE).clone(),
        lambda _, h: h.amax().expand(SHAPE).clone(),
        right=True,
        level=True,
    ),
    "int(argmax)": Spelling(
        lambda _, h: h.flatten()[int(h.argmax())].expand(SHAPE).clone(),
        lambda _, h: h.amax().expand(SHAPE).clone(),
        right=True,
        level=True,
    ),
    "argsort, index_select": Spelling(
        lambda _, h: h.index_select(1, h.mean((0, 2, 3)).argsort()),
        lambda _, h: torch.cat([h[:, k : k + 1] for k in ordered(h)], 1),
        right=True,
    ),
    "argsort, list": Spelling(
        lambda _, h: h[:, ordered(h)], lambda _, h: torch.cat([h[:, k : k + 1] for k in ordered(h)], 1), right=True
    ),
    "straight-through one-hot": Spelling(
        lambda _, h: h * functional.one_hot(h.mean((2, 3)).argmax(1), CHANNELS).to(h.dtype)[..., None, None],
        lambda _, h: torch.cat(
            [h[:, k : k + 1] * h.new_tensor(float(k == ordered(h)[-1])) for k in range(CHANNELS)], 1
        ),
        right=True,
        level=True,
    ),
    # decisions
    "if sum > 0": decides(lambda h: h.sum() > 0),
    "if item > 0": decides(lambda h: h.sum().item() > 0),
    "if (h > 0).any()": decides(lambda h: (h > 0).any()),
    "if float(max) < 3": decides(lambda h: float(h.max()) < 3),
    "if NumPy": decides(lambda h: h.detach().numpy().sum() > 0),
    "if isfinite": decides(lambda h: torch.isfinite(h).all()),
    "if allclose": decides(lambda h: torch.allclose(h, torch.zeros_like(h))),
    "if equal": decides(lambda h: torch.equal(h, h.clone())),
    "if shape": decides(lambda h: h.shape[1] == CHANNELS and h.numel() and len(h) == 1 and h.dim() == 4),
    "range(int(max))": Spelling(
        lambda _, h: sum((h for _ in range(1, 2 + int(h.amax().clamp(0, 0)))), start=torch.zeros_like(h)), right=True
    ),
    # divisors
    "h / item": Spelling(
        lambda _, h: h / (h.abs().amax().item() + 1),
        lambda _, h: h / (h.abs().amax() + 1),
        right=True,
        inexact=True,
        level=True,
        rectified=True,
    ),
    "h / NumPy": Spelling(
        lambda _, h: h / (float(np.abs(h.detach().numpy()).max()) + 1),
        lambda _, h: h / (h.abs().amax() + 1),
        right=True,
        inexact=True,
        level=True,
        rectified=True,
    ),
    "h / detached": Spelling(
        lambda _, h: h / (h.detach().abs().amax() + 1),
        lambda _, h: h / (h.abs().amax() + 1),
        right=True,
        inexact=True,
        level=True,
        rectified=True,
    ),
    "h / no_grad": Spelling(
        lambda _, h: h / divisor(h),
        lambda _, h: h / (h.abs().amax() + 1),
        right=True,
        inexact=True,
        level=True,
        rectified=True,
    ),
    # statistics beside the way
    "running statistics": beside(tracked),
    "self.last = h": beside(lambda p, h: setattr(p, "last", h)),
    "kept.append(item)": beside(lambda p, h: p.kept.append(h.mean().item())),
    "kept.append(numpy)": beside(lambda p, h: p.kept.append(h.detach().numpy().copy())),
    "written to a buffer": beside(lambda p, h: p.workspace.copy_(h.detach())),
    "repr": beside(lambda _, h: f"{h} {h.sum():.3f} {h.shape}"),
    "assert": beside(lambda _, h: bool(h.isfinite().all())),
    "an unused sin": beside(lambda _, h: torch.sin(h).sum()),
    "an unused histogram": beside(lambda _, h: torch.histc(h.float(), 3)),
    "an unused thread": beside(lambda _, h: in_thread(lambda: h.detach().sum().item())),
    # constants
    "constant: NumPy": adds(lambda _, _h: torch.from_numpy(np.arange(UNITS) - 8.0).view(SHAPE)),
    "constant: torch.tensor": adds(lambda _, _h: torch.tensor([float(k) - 8 for k in range(UNITS)]).view(SHAPE)),
    "constant: torch.Tensor": adds(lambda _, _h: torch.Tensor([float(k) - 8 for k in range(UNITS)]).view(SHAPE)),
    "constant: arange": adds(lambda _, h: torch.arange(UNITS, device=h.device).view(SHAPE) - 8),
    "constant: linspace": adds(lambda _, h: torch.linspace(-8, UNITS - 9, UNITS, dtype=h.dtype).round().view(h.shape)),
    "constant: global": adds(lambda _, _h: GLOBAL),
    "constant: cached": adds(lambda _, _h: cached()),
    "constant: closure": adds(partial(lambda shift, _, _h: shift, counted())),
    "constant: list": adds(lambda _, _h: torch.stack([torch.tensor(float(k)) for k in range(UNITS)]).view(SHAPE) - 8),
    "constant: dataclass": adds(lambda _, _h: Settings(counted()).shift),
    "constant: cumsum of ones": adds(lambda _, h: torch.ones_like(h).flatten().cumsum(0).view(SHAPE) - 9),
    "constant: view_as": adds(lambda _, h: counted().flatten().view_as(h)),
    "constant: reshape_as": adds(lambda _, h: counted().flatten().reshape_as(h)),
    "constant: expand_as": adds(lambda _, h: counted()[0].expand_as(h)),
    "constant: type_as": adds(lambda _, h: counted().type_as(h)),
    "constant: to(h)": adds(lambda _, h: GLOBAL.to(h)),
    "constant: broadcast_tensors": adds(lambda _, h: torch.broadcast_tensors(counted(), h)[0]),
    "constant: cat": adds(lambda _, _h: torch.cat([counted()[:, :1], counted()[:, 1:]], 1)),
    "constant: zeros_like(input=)": adds(lambda _, h: torch.zeros_like(input=h) + counted().to(h.dtype)),
    "constant: zeros_like": adds(lambda _, h: torch.zeros_like(h) + counted().to(h.dtype)),
    "constant: new_zeros": adds(lambda _, h: h.new_zeros(h.shape) + counted().to(h.dtype)),
    "constant: new_tensor": adds(lambda _, h: h.new_tensor([float(k) - 8 for k in range(UNITS)]).view(SHAPE)),
    "constant: empty_like.copy_": adds(lambda _, h: torch.empty_like(h).copy_(counted())),
    "constant: full_like": adds(lambda _, h: torch.full_like(h, 1.0) * counted().to(h.dtype)),
    "constant: in a buffer": adds(lambda p, _h: written(p.workspace, lambda w: w.copy_(counted())).clone()),
    "constant: thread": adds(lambda _, _h: in_thread(counted)),
    "constant: vmap": adds(lambda _, _h: torch.vmap(lambda row: row * 1)(counted())),
    "constant: dlpack": adds(lambda _, _h: torch.from_dlpack(counted())),
    "constant: int round trip": adds(lambda _, h: counted().to(torch.int32).to(h.dtype)),
    "constant: meshgrid": adds(
        lambda _, _h: (
            torch.stack(torch.meshgrid(torch.arange(CHANNELS * 3), torch.arange(3), indexing="ij"))
            .mul(torch.tensor([3, 1])[:, None, None])
            .sum(0)
            .view(SHAPE)
            - 8
        )
    ),
    "weights: NumPy": weighs(lambda w: torch.from_numpy(w.detach().numpy())),
    "weights: sign": weighs(lambda w: w.sign()),
    "weights: binary": weighs(lambda w: torch.where(w > 0, 1.0, -1.0).to(w.dtype)),
    "weights: int8": weighs(lambda w: (w * 8).round().to(torch.int8).to(w.dtype) / 8),
    "weights: standardised": weighs(
        lambda w: (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1)
    ),
    "weights: tolist": weighs(lambda w: torch.tensor(w.tolist(), dtype=w.dtype)),
    "weights: item": weighs(lambda w: w * w.abs().amax().item()),
    "weights: view(int)": weighs(lambda w: w.detach().view(torch.uint8).view(w.dtype)),
    "weights: thread": weighs(lambda w: in_thread(lambda: w.detach() * 2)),
    "weights: by sin": weighs(torch.sin),
    "weights: fft": weighs(lambda w: torch.fft.ifft(torch.fft.fft(w)).real),
    "weights: copy": weighs(lambda w: torch.nn.Parameter(w.detach().clone())),
}


@torch.no_grad()
def divisor(h: Tensor) -> Tensor:
    """The largest size, as a network computes it without gradients."""
    return h.abs().amax() + 1
