"""Signals going down the graph of a forward pass: node by node, any number of them together."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.affine import Affine
from excite.propagation.deciding import is_known
from excite.propagation.graph import node_name, outputs_of, rule_of, top_down
from excite.propagation.layout import is_side_by_side
from excite.propagation.shares import Pile, Share, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.autograd.graph import GradientEdge

    from excite.propagation.rules import Rule, Shares

    Watch = Callable[[Any, Sequence[Tensor | None], Sequence[Tensor | None]], None]
    Below = Sequence[tuple[int, Any, int]]  # which input, the node below it, and which output of that

__all__ = ["Descent", "handed_down"]


class Descent:
    """The way from some starts to some probes: the nodes on it, each after every node above it.

    Args:
        starts: where signals enter the graph.
        probes: where they are read; what leads to none of them is left out.
    """

    def __init__(self, starts: Sequence[GradientEdge], probes: Sequence[Tensor]) -> None:
        self.starts = [(edge.node, edge.output_nr) for edge in starts]
        self.probes = list(probes)
        order = top_down(*dict.fromkeys(node for node, _ in self.starts))
        self._leading = _leading_to(order, set(self.probes))
        self.order = [node for node in order if node in self._leading]

    @property
    def widest(self) -> int:
        """How many numbers there are in the largest tensor on the way, for one signal."""
        return max(int(math.prod(meta.shape)) for node in self.order for meta in outputs_of(node))

    def below(self, node: Any) -> list[tuple[int, Any, int]]:
        """The inputs of a node that lead to a probe: which one, and where its share goes."""
        return [(k, child, nr) for k, (child, nr) in enumerate(node.next_functions) if child in self._leading]

    @torch.no_grad()
    def carry(self, signals: Sequence[Tensor], watch: Watch | None = None, *, again: bool = True) -> list[Tensor]:
        """What arrives at each probe, [signals, *probe], of signals [signals, *output] at each start.

        ``watch`` is told of every node what arrived at its outputs and what it handed to its inputs. ``again``: other
        signals may follow, so that what they share with these is kept.
        """
        count = len(signals[0])
        waiting = _Waiting()
        for (node, output), signal in zip(self.starts, signals, strict=True):
            waiting.add(node, output, signal)
        found: dict[Tensor, Tensor] = {}
        done: dict[Any, list[Affine]] = {}  # rules that are of no use any more once the node below them is
        for node, rule, below in self._steps:
            if watch is None and waiting.moved(node, below):
                _let_go(node, rule, below, done, again=again)
                continue
            arrived = waiting.take(node)
            if arrived is None:
                continue
            if hasattr(node, "variable"):
                found[node.variable] = whole(arrived[0]).contiguous()
                continue
            if watch is not None:
                shares = _handed_on(node, {output: whole(each) for output, each in arrived.items()}, rule)
                watch(node, [whole(each) for each in arrived.values()], [whole(each) for each in shares])
                waiting.spread(shares, below)
            elif isinstance(rule, Affine):
                rule.again = again
                waiting.compete(rule, arrived, below)
            else:
                waiting.spread(_handed_on(node, arrived, rule), below, owned=node_name(node) == _LARGEST)
            _let_go(node, rule, below, done, again=again)
        return [found[probe] if probe in found else probe.new_zeros(count, *probe.shape) for probe in self.probes]

    @cached_property
    def _steps(self) -> list[tuple[Any, Rule | None, Below]]:
        """Each node with its rule and where its shares go: asking torch for them costs more than many an operation."""
        return [(node, rule_of(node), self.below(node)) for node in self.order]


def _let_go(node: Any, rule: Rule | None, below: Below, done: dict[Any, list[Affine]], *, again: bool) -> None:
    """Forget what the rules above a node kept for other signals, if none will come; those of one child share much."""
    if again:
        return
    for above in done.pop(node, ()):
        above.forget()
    if isinstance(rule, Affine):
        for _, child, _ in below:
            done.setdefault(child, []).append(rule)


def _handed_on(node: Any, arrived: Mapping[int, Tensor | Share], rule: Rule | None) -> Sequence[Tensor | Share | None]:
    """As `handed_down`, of what may not be multiplied out yet."""
    if rule is not None:
        return rule.hand_down(*(arrived.get(output) for output in range(len(outputs_of(node)))))
    first = arrived.get(0)
    shares = _copied(node, first) if isinstance(first, Share) else None
    if shares is not None:
        return shares
    return handed_down(node, {output: whole(each) for output, each in arrived.items()}, None)


def _copied(node: Any, share: Share) -> Sequence[Share] | None:
    """What a node that copies hands on; None where it is not known how to do that before it is multiplied out."""
    name = node_name(node)
    if name == _LARGEST:
        shares = _to_the_largest(node, share.whole)
        return None if shares is None else [Share(each, None) for each in shares]
    copy = _COPYING.get(name)
    values = None if copy is None else copy(node, share.values, 1)
    factors = None if copy is None or share.by is None else copy(node, share.by, 0)
    if values is None:
        return None
    if factors is None:
        return [Share(each, None) for each in values]
    return [Share(*both) for both in zip(values, factors, strict=True)]


def handed_down(node: Any, arrived: Mapping[int, Tensor], rule: Rule | None) -> Shares:
    """What a node hands to each of its inputs: by its rule, or because it copies values by its gradient."""
    outputs = outputs_of(node)
    if rule is not None:
        return rule.down(*(arrived.get(output) for output in range(len(outputs))))
    name = node_name(node)
    copy = _COPYING.get(name)
    if 0 in arrived and (name == _LARGEST or copy is not None):
        shares = _to_the_largest(node, arrived[0]) if copy is None else copy(node, arrived[0], 1)
        if shares is not None:
            return tuple(shares)
    count = len(next(iter(arrived.values())))
    each = [_handed_one_down(node, {output: values[k] for output, values in arrived.items()}) for k in range(count)]
    if count == 1:
        return tuple(None if share is None else share[None] for share in each[0])
    return tuple(None if shares[0] is None else torch.stack(shares) for shares in zip(*each, strict=True))


def _handed_one_down(node: Any, arrived: Mapping[int, Tensor]) -> Shares:
    zeros = (
        arrived[output] if output in arrived else torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)
        for output, meta in enumerate(outputs_of(node))
    )
    shares = node(*zeros)
    return shares if isinstance(shares, tuple) else (shares,)


def _unchanged(_node: Any, values: Tensor, _lead: int) -> Sequence[Tensor]:
    return (values,)


def _reshaped(node: Any, values: Tensor, lead: int) -> Sequence[Tensor]:
    ((below, output),) = node.next_functions
    return (values.reshape(*values.shape[:lead], *outputs_of(below)[output].shape),)


def _taken_apart(node: Any, values: Tensor, lead: int) -> Sequence[Tensor] | None:
    """A concatenation: each part takes what is its own, without a copy."""
    if any(below is None for below, _ in node.next_functions):  # a constant, of nobody knows what size
        return None
    shapes = [outputs_of(below)[output].shape for below, output in node.next_functions]
    dim = node._saved_dim % len(shapes[0])  # noqa: SLF001 - torch has no other name for it
    return torch.split(values, [shape[dim] for shape in shapes], dim + lead)


def _to_the_largest(node: Any, signals: Tensor) -> Sequence[Tensor] | None:
    """Max pooling: each unit's probability goes to the child it copied.

    On flat memory torch adds at given places five times as fast as in planes, and faster than its own way back.
    """
    if not is_known():  # then the planes are of nobody knows what size
        return None
    ((below, output),) = node.next_functions
    shape = outputs_of(below)[output].shape
    chosen = node._saved_result1  # noqa: SLF001 - as above
    if len(shape) == 4 and is_side_by_side(signals):
        pictures, channels, height, width = shape
        chosen = chosen.movedim(1, -1) * channels
        chosen += torch.arange(channels, device=chosen.device)
        planes, signals = torch.arange(pictures, device=chosen.device) * math.prod(shape[1:]), signals.movedim(2, -1)
        flat = (chosen if pictures == 1 else chosen + planes[:, None, None, None]).flatten()
        shares = _put(flat, signals, math.prod(shape)).view(len(signals), pictures, height, width, channels)
        return (shares.movedim(-1, 2),)
    planes = torch.arange(0, math.prod(shape), shape[-2] * shape[-1], device=chosen.device)
    flat = (chosen.contiguous().flatten(0, -3) + planes[:, None, None]).flatten()
    return (_put(flat, signals, math.prod(shape)).view(len(signals), *shape),)


def _put(places: Tensor, signals: Tensor, size: int) -> Tensor:
    """Each signal's values added up at those places of a memory of that size."""
    shares = signals.new_zeros(len(signals), size)
    for share, signal in zip(shares, signals, strict=True):
        share.scatter_add_(0, places, signal.flatten())
    return shares


# Nodes that copy values and can do so for all signals at once (None: not here), of values with so many leading
# dimensions; others take one signal after the other.
_SAME = ("Alias", "Clone", "Contiguous")
_COPYING: dict[str, Callable[[Any, Tensor, int], Sequence[Tensor] | None]] = {
    **dict.fromkeys((*_SAME, "ToCopy"), _unchanged),
    **dict.fromkeys(("ReshapeAlias", "Squeeze", "UnsafeView", "Unsqueeze", "View"), _reshaped),
    "Cat": _taken_apart,
}
_LARGEST = "MaxPool2DWithIndices"


class _Waiting:
    """What has arrived at the outputs of nodes whose turn has not come yet."""

    def __init__(self) -> None:
        self._arrived: dict[Any, dict[int, Pile]] = {}

    def spread(self, shares: Sequence[Tensor | Share | None], below: Below, *, owned: bool = False) -> None:
        """Add what a node hands to each of its inputs; ``owned``: nobody else looks at it."""
        for k, child, output in below:
            share = shares[k]
            if share is not None:
                self.add(child, output, share, owned=owned)

    def compete(self, rule: Affine, arrived: Mapping[int, Tensor | Share], below: Below) -> None:
        """Have a rule with one input add its shares to what that has got already, in place where it can."""
        ((_, child, output),) = below
        pile = self._arrived.get(child, {}).get(output)
        room = None if pile is None else pile.room()
        (share,) = rule.hand_down(*(arrived.get(port) for port in range(rule.port_count)), onto=room)
        if room is not None and not (isinstance(share, Share) and share.values is room.values):
            self.add(child, output, room, owned=True)
        if share is not None:
            self.add(child, output, share, owned=True)

    def add(self, node: Any, output: int, share: Tensor | Share, *, owned: bool = False) -> None:
        """Add what comes from several parents, in the type of the output they come to (as autograd does)."""
        dtype = outputs_of(node)[output].dtype
        if (share.values if isinstance(share, Share) else share).dtype != dtype:
            share = whole(share).to(dtype)
        at_node = self._arrived.setdefault(node, {})
        if output not in at_node:
            at_node[output] = Pile()
        at_node[output].add(share, owned=owned)

    def moved(self, node: Any, below: Below) -> bool:
        """Hand all that has arrived at a node that only copies to what it copied, if nothing is there yet."""
        if node_name(node) not in _SAME or node not in self._arrived or below[0][1] in self._arrived:
            return False
        ((_, child, output),) = below
        self._arrived[child] = {output: self._arrived.pop(node)[0]}
        return True

    def take(self, node: Any) -> dict[int, Tensor | Share] | None:
        """All that has arrived at a node."""
        arrived = self._arrived.pop(node, None)
        return None if arrived is None else {output: pile.taken() for output, pile in arrived.items()}


def _leading_to(order: Sequence[Any], probes: set[Tensor]) -> set[Any]:
    """The nodes from which a probe can be reached."""
    leading: set[Any] = set()
    for node in reversed(order):
        if getattr(node, "variable", None) in probes or any(child in leading for child, _ in node.next_functions):
            leading.add(node)
    return leading
