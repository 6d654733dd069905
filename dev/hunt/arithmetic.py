"""Odd spellings of arithmetic: rare arguments, activations where constants usually stand, sums in disguise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from hunt.parts import UNITS, Parts, Spelling
from hunt.severing import convolved, rows, twice

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["ARITHMETIC"]


def other(parts: Parts, h: Tensor) -> Tensor:
    """A second activation."""
    return parts.convs[4](h)


def exponent(h: Tensor) -> Tensor:
    """Small enough for powers."""
    return h.clamp(-4, 4)


def power(base: float) -> Callable[[Parts, Tensor], Tensor]:
    """A power in verified steps."""
    return lambda _parts, h: (exponent(h) * math.log(base)).exp()


def negated_minimum(parts: Parts, h: Tensor) -> Tensor:
    """The smaller of two, by the larger of the negatives."""
    return -torch.maximum(-h, -other(parts, h))


def weighed(parts: Parts, h: Tensor) -> Tensor:
    """A product with a matrix of constants."""
    return (parts.matrix.detach() @ rows(h).t()).view_as(h)


def linear_weight(parts: Parts, h: Tensor) -> Tensor:
    """The activation stands where the weights usually do."""
    return functional.linear(parts.matrix, rows(h)).view_as(h)


def conv_weight(parts: Parts, h: Tensor) -> Tensor:
    """The activation is the kernel of a convolution over constants."""
    return functional.conv2d(parts.matrix.view(UNITS, *h.shape[1:]), h).view_as(h)


def live_bias(parts: Parts, h: Tensor) -> Tensor:
    """Constants in, weights of the network, and the activation as the bias."""
    ones = torch.ones(1, UNITS, dtype=h.dtype)
    return functional.linear(ones, parts.matrix, h.flatten()).view_as(h)


def live_bias_plain(parts: Parts, h: Tensor) -> Tensor:
    """The same as a sum."""
    return h + parts.matrix.detach().sum(1).view_as(h)


def both_live(parts: Parts, h: Tensor) -> Tensor:
    """A convolution of an activation with an activation as its bias."""
    conv = parts.convs[5]
    return functional.conv2d(h, conv.weight, h.sum((0, 2, 3)), padding=1)


def both_live_plain(parts: Parts, h: Tensor) -> Tensor:
    """The same as a sum."""
    conv = parts.convs[5]
    return functional.conv2d(h, conv.weight, padding=1) + h.sum((2, 3), keepdim=True)


def foreach(h: Tensor) -> Tensor:
    """A list of one."""
    copy = h.clone()
    torch._foreach_mul_([copy], 2.0)
    return copy


def accumulated(h: Tensor) -> Tensor:
    """Every unit added to itself."""
    place = torch.arange(UNITS)
    return torch.ops.aten.index_put.default(h.flatten(), [place], h.flatten(), True).view_as(h)


ARITHMETIC: dict[str, Spelling] = {
    "clamp(min=h)": Spelling(lambda p, h: h.clamp(min=other(p, h)), lambda p, h: torch.maximum(h, other(p, h))),
    "clamp(max=h)": Spelling(lambda p, h: torch.clamp(h, max=other(p, h)), negated_minimum, level=True),
    "clamp_min(h)": Spelling(lambda p, h: h.clamp_min(other(p, h)), lambda p, h: torch.maximum(h, other(p, h))),
    "const.clamp(min=h)": Spelling(
        lambda _, h: torch.full_like(h, -1).clamp(min=h), lambda _, h: torch.maximum(torch.full_like(h, -1), h)
    ),
    "minimum": Spelling(lambda p, h: torch.minimum(h, other(p, h)), negated_minimum, level=True),
    "fmax": Spelling(lambda p, h: torch.fmax(h, other(p, h)), lambda p, h: torch.maximum(h, other(p, h))),
    "rsub(alpha=-1)": Spelling(lambda _, h: torch.rsub(h, 2.0, alpha=-1), lambda _, h: h + 2),
    "rsub(h, h)": Spelling(lambda p, h: torch.rsub(h, other(p, h)), lambda p, h: other(p, h) - h),
    "rsub(h, h, alpha=-2)": Spelling(
        lambda p, h: torch.rsub(h, other(p, h), alpha=-2), lambda p, h: other(p, h) + 2 * h
    ),
    "sub(const, h, alpha=-1)": Spelling(lambda _, h: torch.sub(torch.ones_like(h), h, alpha=-1), lambda _, h: h + 1),
    "sub(h, h, alpha=-1)": Spelling(lambda p, h: torch.sub(h, other(p, h), alpha=-1), lambda p, h: h + other(p, h)),
    "add(h, h, alpha=-1)": Spelling(lambda p, h: torch.add(h, other(p, h), alpha=-1), lambda p, h: h - other(p, h)),
    "add(2, h, alpha=-1)": Spelling(lambda _, h: torch.add(h.new_tensor(2.0), h, alpha=-1), lambda _, h: 2 - h),
    "avg_pool(divisor_override=-1)": Spelling(
        lambda _, h: functional.avg_pool2d(h, 3, 1, 1, divisor_override=-1),
        lambda _, h: -functional.avg_pool2d(h, 3, 1, 1, divisor_override=1),
    ),
    "aten.index_put(accumulate)": Spelling(lambda _, h: accumulated(h), twice),
    "linear(const, h)": Spelling(linear_weight, weighed, inexact=True),
    "conv2d(const, h)": Spelling(conv_weight, weighed, inexact=True),
    "const @ h": Spelling(lambda p, h: (p.matrix @ rows(h).t()).view_as(h), weighed),
    "einsum(const, h)": Spelling(
        lambda p, h: torch.einsum("ij,nj->in", p.matrix, rows(h)).view_as(h), weighed, inexact=True
    ),
    "addmm(h, const, const)": Spelling(
        lambda p, h: torch.addmm(h.reshape(UNITS, 1), p.matrix, torch.ones(UNITS, 1, dtype=h.dtype)).view_as(h),
        live_bias_plain,
        inexact=True,
    ),
    "addmm(h, h, const)": Spelling(
        lambda p, h: torch.addmm(rows(h), rows(h), p.matrix).view_as(h),
        lambda p, h: (rows(h) + rows(h) @ p.matrix).view_as(h),
        inexact=True,
    ),
    "linear(const, W, h)": Spelling(live_bias, live_bias_plain, inexact=True),
    "conv2d(h, W, h)": Spelling(both_live, both_live_plain, inexact=True),
    "batch_norm(bias=h)": Spelling(
        lambda p, h: functional.batch_norm(h, p.running, p.running + 1, None, h.sum((0, 2, 3)), eps=0.0),
        lambda _, h: h + h.sum((2, 3), keepdim=True),
        inexact=True,
    ),
    "pow(2.0, h)": Spelling(lambda _, h: torch.pow(2.0, exponent(h)), power(2), inexact=True),
    "2 ** h": Spelling(lambda _, h: 2 ** exponent(h), power(2), inexact=True),
    "pow(const, h)": Spelling(lambda _, h: torch.pow(torch.full_like(h, 2.0), exponent(h)), power(2), inexact=True),
    "pow(0.5, h)": Spelling(lambda _, h: torch.pow(torch.full_like(h, 0.5), exponent(h)), power(0.5), inexact=True),
    "exp2": Spelling(lambda _, h: torch.exp2(exponent(h)), power(2), inexact=True),
    "_foreach_mul_": Spelling(lambda _, h: foreach(h), twice),
    "_foreach_mul": Spelling(lambda _, h: torch._foreach_mul([h], 2.0)[0], twice),  # noqa: SLF001 - as above
    "lerp(h, h)": Spelling(
        lambda p, h: torch.lerp(h, other(p, h), 0.25), lambda p, h: h * 0.75 + other(p, h) * 0.25, inexact=True
    ),
    "addcmul(const, h, const)": Spelling(
        lambda _, h: torch.addcmul(torch.ones_like(h), h, torch.full_like(h, 2.0)), lambda _, h: h * 2 + 1
    ),
    "addcmul(h, const, const)": Spelling(
        lambda _, h: torch.addcmul(h, torch.ones_like(h), torch.full_like(h, 2.0)), lambda _, h: h + 2
    ),
    "addcmul(value=-1)": Spelling(
        lambda p, h: torch.addcmul(h, other(p, h), torch.ones_like(h), value=-1), lambda p, h: h - other(p, h)
    ),
    "addcdiv(h, h, const)": Spelling(
        lambda p, h: torch.addcdiv(h, other(p, h), torch.full_like(h, 2.0)),
        lambda p, h: h + other(p, h) / 2,
        inexact=True,
    ),
    "sum(list)": Spelling(lambda p, h: sum([h, other(p, h)]), lambda p, h: h + other(p, h)),  # type: ignore[return-value]
    "stack.sum": Spelling(lambda p, h: torch.stack([h, other(p, h)]).sum(0), lambda p, h: h + other(p, h)),
    "tensordot": Spelling(
        lambda p, h: torch.tensordot(rows(h), p.matrix, 1).view_as(h),
        lambda p, h: (rows(h) @ p.matrix).view_as(h),
        inexact=True,
    ),
    "vector_norm as divisor": Spelling(
        lambda _, h: h / torch.linalg.vector_norm(h + 1).add(1),
        lambda _, h: h / ((h + 1) ** 2).sum().sqrt().add(1),
        right=True,
        inexact=True,
    ),
    "scatter_add": Spelling(
        lambda _, h: torch.zeros_like(h).flatten().scatter_add(0, torch.arange(UNITS), h.flatten()).view_as(h)
    ),
    "index_add_": Spelling(
        lambda _, h: h.flatten().clone().index_add_(0, torch.arange(UNITS), h.flatten()).view_as(h), twice
    ),
    "scatter_reduce": Spelling(
        lambda _, h: h.flatten().scatter_reduce(0, torch.arange(UNITS), h.flatten(), "sum").view_as(h), twice
    ),
    "put_(accumulate)": Spelling(lambda _, h: h.clone().put_(torch.arange(UNITS), h.flatten(), accumulate=True), twice),
    "index_put_(accumulate)": Spelling(
        lambda _, h: h.flatten().clone().index_put_((torch.arange(UNITS),), h.flatten(), accumulate=True).view_as(h),
        twice,
    ),
    "torch.conv2d": Spelling(
        lambda p, h: torch.conv2d(h, p.convs[5].weight, p.convs[5].bias, padding=1), convolved, right=True
    ),
    "keyword input": Spelling(
        lambda p, h: functional.conv2d(input=h, weight=p.convs[5].weight, bias=p.convs[5].bias, padding="same"),
        convolved,
        right=True,
    ),
    "floor_divide": Spelling(lambda _, h: torch.floor_divide(h, 1), whole=True),
    "remainder of large": Spelling(lambda _, h: torch.remainder(h, 1e6), rectified=True),
    "nan_to_num": Spelling(lambda _, h: h.nan_to_num()),
    "trunc": Spelling(lambda _, h: h.trunc(), whole=True),
    "copysign": Spelling(lambda _, h: torch.copysign(h, torch.ones_like(h)), rectified=True),
    "hypot": Spelling(lambda _, h: torch.hypot(h * 3, h * 4), lambda _, h: h * 5, rectified=True, inexact=True),
    "xlogy": Spelling(lambda _, h: torch.xlogy(h, math.e), inexact=True),
    "ldexp": Spelling(lambda _, h: torch.ldexp(h, torch.ones_like(h)), twice),
}
