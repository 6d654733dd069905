"""The top-down pass with deferred products: `graph.carry` in fewer operations and less memory.

A layer's share for a child is what a response of 1 would get, times the child's response a_j. The next layer
multiplies that with its 1 / Z. Both factors are the same for all signals, so they are multiplied with each other first
and with the signals once. And a share with the factor a_j is 0 wherever the child did not respond: no mask is needed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor

from excite.propagation import graph as plain
from excite.propagation.fast import is_concrete, possibly
from excite.propagation.graph import node_name, outputs_of
from excite.propagation.rules import Affine, SignRouter, Sum, Tap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.propagation.graph import Subgraph
    from excite.propagation.rules import Rule

    Arrived = Mapping[int, "Tensor | Deferred"]

# Nodes that copy values, and for which that can be done for all signals at once.
_SAME = frozenset(["Alias", "Clone", "Contiguous"])
_RESHAPING = frozenset(["ReshapeAlias", "Squeeze", "UnsafeView", "Unsqueeze", "View"])
_VIEWS = frozenset(["Permute", "Select", "Transpose"])
_MAX_POOL = "MaxPool2DWithIndices"


class Deferred(NamedTuple):
    """A deferred product ``values * by``, which is 0 where the response of the units is not above 0."""

    values: Tensor  # [signals, *units]
    by: Tensor | None  # the response of the units at any positive scale, [*units]; None: already multiplied


@overload
def materialize(arrived: None) -> None: ...
@overload
def materialize(arrived: Tensor | Deferred) -> Tensor: ...
def materialize(arrived: Tensor | Deferred | None) -> Tensor | None:
    """The product, computed if it was deferred."""
    if not isinstance(arrived, Deferred):
        return arrived
    return arrived.values if arrived.by is None else _ordered_as(arrived.by, arrived.values) * arrived.by


def added(before: Tensor | Deferred | None, more: Tensor | Deferred) -> Tensor | Deferred:
    """The sum of the shares of two parents, deferred as long as their factor is the same."""
    if before is None:
        return more
    if isinstance(before, Deferred) and isinstance(more, Deferred):
        if before.by is more.by:
            return Deferred(before.values + more.values, more.by)
        return Deferred(_materialized_sum(before, more), None)
    return _materialized_sum(before, more)


def _materialized_sum(before: Tensor | Deferred, more: Tensor | Deferred) -> Tensor:
    """In one step, where one of both is still a product."""
    if not isinstance(more, Deferred) or more.by is None:
        before, more = more, before
    total = materialize(before)
    if not isinstance(more, Deferred) or more.by is None:
        return total + materialize(more)
    return torch.addcmul(_ordered_as(more.values, total), more.values, more.by)


def carry(graph: Subgraph, signals: Sequence[Tensor], *, reuse: bool = True) -> list[Tensor]:
    """As `excite.propagation.graph.carry`. ``reuse``: other signals may follow, so that normalisers are kept."""
    done: dict[Any, list[Any]] = {}  # rules whose normalisers are of no more use once the node below is done

    def backward(node: Any, rule: Any, arrived: Arrived, below: Sequence[Any]) -> Sequence[Any]:
        if rule is None or not isinstance(rule, Affine):
            shares = _backward(node, rule, arrived)
        else:
            ours: Any = rule  # of `kernels`
            ours.reuse = reuse
            shares = (ours.backward(*map(arrived.get, range(rule.outputs))),)
            done.setdefault(below[0][1], []).append(rule)
        for above in () if reuse else done.pop(node, ()):
            above.forget()
        return shares

    def join(before: Tensor | Deferred | None, share: Tensor | Deferred, dtype: torch.dtype) -> Tensor | Deferred:
        if (share.values if isinstance(share, Deferred) else share).dtype != dtype:
            share = materialize(share).to(dtype)
        return added(before, share)

    found = plain.carried(graph, signals, backward, join)
    return [
        _contiguous(materialize(found[probe])) if probe in found else probe.new_zeros(len(signals[0]), *probe.shape)
        for probe in graph.probes
    ]


def _backward(node: Any, rule: Rule | None, arrived: Arrived) -> Sequence[Any]:
    """As `graph.down`, with deferred products."""
    first = arrived.get(0)
    if isinstance(rule, SignRouter):
        return _route(rule, arrived[0])
    if isinstance(rule, Tap):
        return (None if rule.absorbing else first, first)
    if isinstance(rule, Sum):
        return _sum(rule, materialize(first), materialize(arrived.get(1)))
    if rule is None and first is not None:
        name, deferred = node_name(node), isinstance(first, Deferred)
        values, by = first if isinstance(first, Deferred) else (first, None)
        if name == _MAX_POOL:
            values, by = materialize(first), None
        copied = _copied(node, name, values, 1)
        if copied is not None:
            factors = _copied(node, name, by, 0) if by is not None else [None] * len(copied)
            return list(map(Deferred, copied, factors or ())) if deferred else copied
    return plain.down(node, {output: materialize(each) for output, each in arrived.items()}, rule)


def _route(rule: SignRouter, arrived: Tensor | Deferred) -> tuple[Tensor | Deferred, Tensor | None]:
    """As `SignRouter.down`; None for the negative input where nothing would arrive."""
    if rule.polarity is None and (rule.cued or (rule.own and isinstance(arrived, Deferred))):
        return arrived, None
    probability = materialize(arrived)
    if rule.polarity is not None:
        direction = rule.direction()
        negative = probability * (direction < 0)
        return probability * (direction > 0), negative if possibly(negative.any) else None
    response = rule.response.tensor
    if is_channels_last(probability):  # two orders in memory at once take several times as long
        response = channels_last(response)
    if rule.bounded:
        if is_concrete() and probability.dtype == response.dtype:  # torch has it in one step, as ReLU's gradient
            return torch.ops.aten.threshold_backward(probability, response, 0), None
        return probability * (response > 0), None
    below = response < 0
    if not possibly(below.any):
        return probability, None
    negative = probability * below
    return (probability - negative, negative) if possibly(negative.any) else (probability, None)


def _sum(rule: Sum, positive: Tensor | None, negative: Tensor | None) -> Sequence[Any]:
    """As `Sum.down`; the share of a positive response is 0 for a term that is not."""
    some = negative if positive is None else positive
    terms = [term.tensor for term in rule.terms]
    if some is not None and is_channels_last(some):
        terms = [channels_last(term) for term in terms]
    shares = rule.shares(terms, (positive, negative))
    silent = rule.unchanged and negative is None and not rule.cued
    return [Deferred(share, None) for share in shares if share is not None] if silent else shares


def _copied(node: Any, name: str, values: Tensor, lead: int) -> Sequence[Tensor] | None:
    """The gradient of a node that copies, for values with ``lead`` leading dimensions; None: not known here."""
    if name in _SAME or name == "ToCopy":
        return (values,)
    if name in _RESHAPING or name in _VIEWS:
        return (_viewed(node, name, values, lead),)
    if name == _MAX_POOL and is_concrete():
        return (_to_largest(node, values),)
    if name == "Cat":
        shapes = [() if below is None else outputs_of(below)[output].shape for below, output in node.next_functions]
        if any(len(shape) != values.dim() - lead for shape in shapes):
            return None  # a constant, whose size is not known, or nothing at all, which torch may join with anything
        (dim,) = _places(values.dim(), lead, node._saved_dim)  # noqa: SLF001 - as above
        return torch.split(values, [shape[dim - lead] for shape in shapes], dim)
    return None


def _viewed(node: Any, name: str, values: Tensor, lead: int) -> Tensor:
    """The gradient of a node that changes the shape, or the order of dimensions, or selects."""
    if name == "Transpose":
        if values.dim() == lead:  # torch transposes even a number
            return values
        return values.transpose(*_places(values.dim(), lead, node._saved_dim0, node._saved_dim1))  # noqa: SLF001 - as above
    if name == "Permute":
        order = _places(values.dim(), lead, *node._saved_dims)  # noqa: SLF001 - as above
        return values.permute(*range(lead), *(order.index(k) + lead for k in range(lead, values.dim())))
    ((below, output),) = node.next_functions
    shape = (*values.shape[:lead], *outputs_of(below)[output].shape)
    if name in _RESHAPING:
        return values.reshape(shape)
    whole = values.new_zeros(shape)
    (dim,) = _places(whole.dim(), lead, node._saved_dim)  # noqa: SLF001 - as above
    whole.select(dim, _signed(node._saved_index)).copy_(values)  # noqa: SLF001 - as above
    return whole


def _places(dims: int, lead: int, *saved: int) -> list[int]:
    """Dimensions that a node has saved, among ``dims`` with ``lead`` leading ones."""
    return [_signed(dim) % (dims - lead) + lead for dim in saved]


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number  # torch stores -1 as 2**64 - 1


def _to_largest(node: Any, signals: Tensor) -> Tensor:
    """The gradient of max pooling on flat memory, where torch's scatter_add is five times as fast as in planes."""
    ((below, output),) = node.next_functions
    shape = outputs_of(below)[output].shape
    chosen = node._saved_result1  # noqa: SLF001 - as above
    if len(shape) == 4 and is_channels_last(signals):
        images, channels, height, width = shape
        flat = chosen.movedim(1, -1) * channels
        flat += torch.arange(channels, device=chosen.device)
        if images > 1:
            flat = flat + (torch.arange(images, device=chosen.device) * math.prod(shape[1:]))[:, None, None, None]
        shares = signals.new_zeros(len(signals), images, height, width, channels)
        given, signals = shares.movedim(-1, 2), signals.movedim(2, -1)
    else:
        planes = torch.arange(0, math.prod(shape), shape[-2] * shape[-1], device=chosen.device)
        flat = chosen.contiguous().flatten(0, -3) + planes[:, None, None]
        given = shares = signals.new_zeros(len(signals), *shape)
    for share, signal in zip(shares.flatten(1), signals, strict=True):
        share.scatter_add_(0, flat.flatten(), signal.flatten())
    return given


# --- channels last: the order of elements in which a CPU's packed kernels read and write, and in which a 1 x 1
# --- convolution is one matrix product


def channels_last(values: Tensor) -> Tensor:
    """A batch of maps [N, C, H, W] in torch.channels_last; others, and on other devices, as they are."""
    if values.dim() != 4 or values.dtype != torch.float32 or values.device.type != "cpu" or not is_concrete():
        return values
    return values.contiguous(memory_format=torch.channels_last)


def is_channels_last(signals: Tensor) -> bool:
    """Whether signals [..., C, H, W] are in that order, and not in torch's usual order as well."""
    return signals.dim() >= 4 and signals.stride(-3) == 1 and not signals.is_contiguous()


def _ordered_as(like: Tensor, values: Tensor) -> Tensor:
    """``values`` in the order of ``like``, if that is channels last: two orders at once take several times as long."""
    if not is_channels_last(like) or not values.is_contiguous() or values.dim() < 4:
        return values
    *lead, channels, height, width = values.shape
    return transposed(values.flatten(-2)).view(*lead, height, width, channels).movedim(-1, -3)


def _contiguous(values: Tensor) -> Tensor:
    """As ``values.contiguous()``."""
    if not is_channels_last(values):
        return values.contiguous()
    return transposed(values.movedim(-3, -1).flatten(-3, -2)).view(values.shape)


def transposed(values: Tensor) -> Tensor:
    """[..., a, b] as [..., b, a]. torch is four times as fast with one matrix after the other as with all at once."""
    turned = values.new_empty(*values.shape[:-2], values.shape[-1], values.shape[-2])
    for new, old in zip(turned.flatten(0, -3), values.flatten(0, -3), strict=True):
        new.copy_(old.t())
    return turned
