"""Many signals through one matrix, from some units to the positions of a layer: `graph.sums` by the cheaper order.

The top-down pass is linear in the signal, and a map sums over channels. So one *reading* for each position, 1 there and
0 elsewhere, is passed up through the transposed rules, to a *cut*: an output of a node through which all paths go, such
as pooled features. What the readings are there is a matrix that serves all signals; those are carried down to the cut.
There are far fewer positions than signals where many concepts are asked for. And as long as operations only look at
neighbours, readings that are far enough apart do not meet: so they are passed up together, a few *patterns* of readings
in place of one for each position, until the first operation that looks farther.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.fast.carry import carry
from excite.propagation.graph import _fitting, node_name, outputs_of
from excite.propagation.rules import Pass, SignRouter, Sum, Tap, total_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from excite.propagation.fast.kernels import FastAffine
    from excite.propagation.graph import Subgraph
    from excite.propagation.rules import Rule

DEARER = 2.0  # a step up takes about so many times as long as a step down, for as many signals
MOST = 2**25  # elements of all readings at the largest layer: 128 MB of float32
POINTWISE = frozenset(["Relu", "Hardtanh", "Threshold", "Clone", "Alias", "Contiguous", "Clamp", "ClampMin"])  # nodes
COPYING = frozenset(
    "View UnsafeView ReshapeAlias Squeeze Unsqueeze Permute Transpose T Cat Slice Select MaxPool2DWithIndices".split()
)
FIXED_COST = 16  # of an element, in multiplications: reading and writing it

Readings = dict[int, Tensor]  # [readings, *output] for outputs of a node


def sums(graph: Subgraph, signals: Tensor) -> Tensor | None:
    """What arrives at each position of the one probe of a graph, summed over channels: [signals, 1, h, w].

    None where it takes less to carry the signals down, or where an operation has no transposed rule here.
    """
    if not _is_suitable(graph):
        return None
    plan = Plan(graph)
    number = plan.best_cut(len(signals))
    if number is None:
        return None
    above, below = parts(graph, number)
    (arrived,) = carry(above, [signals])
    found = arrived.flatten(1) @ Ascent(below, plan).matrix().flatten(1).t()
    return found.view(len(signals), 1, *graph.probes[0].shape[-2:])


# --- the plan: how far readings spread, where to cut, and what both directions cost -----------------------------------


def _is_suitable(graph: Subgraph) -> bool:
    """Whether there is one image, one start and one probe with positions, and all operations are known here."""
    if len(graph.probes) != 1 or len(graph.starts) != 1:
        return False
    ((probe,), ((start, _),)) = graph.probes, graph.starts
    one = probe.dim() == 4 and probe.shape[0] == outputs_of(start)[0].shape[0] == 1
    kinds = {each.dtype for node, _, _ in graph.steps for each in outputs_of(node)}
    return one and kinds <= {probe.dtype} <= {torch.float32, torch.float64} and all(map(_is_known, graph.steps))


class Plan:
    """How far a reading has spread at each node that only looks at neighbours, and the costs of both directions.

    Attributes:
        reach: how many positions a reading spreads to each side, at most, where patterns are passed up.
        local: the nodes at which they are.
    """

    def __init__(self, graph: Subgraph) -> None:
        self.graph = graph
        sides = tuple(graph.probes[0].shape[-2:])
        reaches = _reaches(graph, sides)
        positions = patterns = sides[0] * sides[1]
        self.reach = 0
        for self.reach in sorted(set(reaches.values()), reverse=True):  # as far as patterns save anything
            patterns = min(2 * self.reach + 1, sides[0]) * min(2 * self.reach + 1, sides[1])
            if 2 * patterns <= positions:
                break
        self.local = {node for node, reach in reaches.items() if reach <= self.reach}
        self.down, self.up, self.sizes = [], [], []  # of each step, for one signal and for all readings
        self.widths = []  # of a matrix from each step's output to the positions
        for node, rule, _ in graph.steps:
            readings = patterns if node in self.local else positions
            size, weight = max(math.prod(each.shape) for each in outputs_of(node)), getattr(rule, "weight", None)
            each = FIXED_COST + (0 if weight is None else weight.numel() / len(weight))
            self.down.append(size * each)
            self.up.append(size * each * readings * DEARER)
            self.sizes.append(size * readings)
            self.widths.append(size * positions)

    def best_cut(self, signals: int) -> int | None:
        """The number of steps above the cheapest cut; None where it is cheaper to carry all signals down.

        It lies below the classifier's own weights, so that a contrast is taken before anything is added up.
        """
        best, least = None, signals * sum(self.down)
        for number in cuts(self.graph):
            cost = signals * (sum(self.down[:number]) + self.widths[number]) + sum(self.up[number:])
            if cost < least and max(self.sizes[number:]) <= MOST:
                best, least = number, cost
        return best


def cuts(graph: Subgraph) -> Iterator[int]:
    """After how many steps all that is on its way is at one output of one node, below all cued rules."""
    pending: set[tuple[Any, int]] = set(graph.starts)
    last = max((k for k, (_, rule, _) in enumerate(graph.steps) if rule is not None and rule.cued), default=-1)
    for number, (node, _, below) in enumerate(graph.steps):
        if number > last and len(pending) == 1:
            yield number
        pending = {edge for edge in pending if edge[0] is not node} | {(child, output) for _, child, output in below}


class Leaf:
    """Stands for the node below a cut: what arrives there is found, as at a probe."""

    def __init__(self, node: Any, output: int) -> None:
        self._input_metadata = [outputs_of(node)[output]]
        (about,) = self._input_metadata
        self.variable = torch.empty(tuple(about.shape), dtype=about.dtype, device=about.device)


class Part(NamedTuple):
    """The steps of a `Subgraph` on one side of a cut."""

    starts: Sequence[tuple[Any, int]]
    steps: Sequence[tuple[Any, Any, Sequence[tuple[int, Any, int]]]]
    probes: Sequence[Tensor]


def parts(graph: Subgraph, number: int) -> tuple[Any, Part]:
    """A graph cut after so many steps: what is above, with a probe at the cut, and what is below."""
    node = graph.steps[number][0]
    pairs = [(child, output) for _, _, below in graph.steps[:number] for _, child, output in below if child is node]
    output = pairs[0][1] if pairs else graph.starts[0][1]
    leaf, steps = Leaf(node, output), []
    for above, rule, below in graph.steps[:number]:
        steps.append((above, rule, [(k, leaf, 0) if child is node else (k, child, o) for k, child, o in below]))
    starts = [(leaf, 0)] if number == 0 else graph.starts
    upper = Part(starts, [*steps, (leaf, None, [])], [leaf.variable])
    return upper, Part([(node, output)], graph.steps[number:], graph.probes)


def _reaches(graph: Subgraph, sides: tuple[int, ...]) -> dict[Any, int]:
    """How far a reading of the probe spreads at each node, where only neighbours are looked at up to there."""
    reaches: dict[Any, int] = {}
    for node, rule, below in reversed(graph.steps):
        spread = 0 if hasattr(node, "variable") else _spread(node, rule, sides)
        if spread is not None and all(child in reaches for _, child, _ in below):
            reaches[node] = max((reaches[child] for _, child, _ in below), default=0) + spread
    return reaches


def _is_known(step: tuple[Any, Rule | None, Any]) -> bool:
    from excite.propagation.fast.kernels import FastAffine

    node, rule, _ = step
    if rule is None:
        return hasattr(node, "variable") or node_name(node) in POINTWISE | COPYING
    if isinstance(rule, Sum):
        return rule.normalised and len({term.tensor.shape for term in rule.terms}) == 1
    if isinstance(rule, Pass):
        return len(rule.shape) == len(outputs_of(node)[0].shape)
    return isinstance(rule, FastAffine | SignRouter | Tap) and rule.normalised


def _spread(node: Any, rule: Any, sides: tuple[int, ...]) -> int | None:
    """How many positions an operation looks to each side; None: not only at neighbours, or at other positions."""
    shapes = [tuple(each.shape) for each in outputs_of(node)]
    if any(len(shape) != 4 or shape[-2:] != sides for shape in shapes):
        return None
    convolution = getattr(getattr(rule, "hints", None), "convolution", None)
    if convolution is not None:
        function, stride, padding, dilation, _ = convolution
        kernel, child = rule.weight.shape[2:], rule.child.tensor
        even = all(pad * 2 == step * (side - 1) for pad, step, side in zip(padding, dilation, kernel, strict=True))
        plain = function in {torch.conv2d, functional.conv2d} and max(stride) == 1
        return max(padding) if plain and even and child.shape[-2:] == sides else None
    same = all(tuple(outputs_of(child)[k].shape[-2:]) == sides for child, k in node.next_functions if child is not None)
    if rule is None:
        return 0 if same and node_name(node) in POINTWISE else None
    if isinstance(rule, Sum):
        same = all(term.tensor.shape[-2:] == sides for term in rule.terms)
    return 0 if same and isinstance(rule, SignRouter | Sum | Pass | Tap) else None


# --- the way up -------------------------------------------------------------------------------------------------------


class Ascent:
    """All readings of a probe, passed up to the start of a graph."""

    def __init__(self, graph: Part, plan: Plan) -> None:
        self.graph, self.plan = graph, plan
        self.height, self.width = graph.probes[0].shape[-2:]
        self.rows, self.columns = (min(2 * plan.reach + 1, side) for side in (self.height, self.width))
        self.wanted: dict[Any, set[int]] = {}
        for node, output in graph.starts:
            self.wanted.setdefault(node, set()).add(output)
        self.steps = []  # those on a way from the start
        for node, rule, below in graph.steps:
            if node in self.wanted:
                used = _inputs_used(rule, below)
                self.steps.append((node, rule, used))
                for _, child, output in used:
                    self.wanted.setdefault(child, set()).add(output)

    @torch.no_grad()
    def matrix(self) -> Tensor:
        """[positions, *output]: what a probability of 1 for an output unit gives each position."""
        found: dict[Any, Readings] = {}
        uses = Counter(child for _, _, below in self.steps for _, child, _ in below)
        for node, rule, below in reversed(self.steps):
            if hasattr(node, "variable"):
                found[node] = {0: self._patterns()}
                continue
            arrived: Readings = {}
            for k, child, output in below:
                readings = found[child][output]
                if child in self.plan.local and node not in self.plan.local:
                    readings = self._apart(readings)
                arrived[k] = readings
                uses[child] -= 1
                if not uses[child]:
                    del found[child]
            given = partial(transposed, rule=rule, arrived=arrived) if arrived else self._nothing
            found[node] = {output: given(node, output=output) for output in self.wanted[node]}
        node, output = self.graph.starts[0]
        readings = found[node][output]
        return self._apart(readings) if node in self.plan.local else readings

    def _nothing(self, node: Any, *, output: int) -> Tensor:
        """The readings of a node none of whose inputs can get anything."""
        number = self.rows * self.columns if node in self.plan.local else self.height * self.width
        return self.graph.probes[0].new_zeros(number, *outputs_of(node)[output].shape)

    def _patterns(self) -> Tensor:
        """The readings at the probe, [patterns, *probe]: each pattern has those that are ``reach`` apart."""
        (probe,) = self.graph.probes
        patterns = probe.new_zeros(self.rows * self.columns, *probe.shape)
        for k, (y, x) in enumerate(product(range(self.rows), range(self.columns))):
            patterns[k, ..., y :: self.rows, x :: self.columns] = 1
        return patterns

    def _apart(self, patterns: Tensor) -> Tensor:
        """Each reading on its own, [positions, *output]: of its pattern what lies within reach of its position."""
        readings = patterns.new_zeros(self.height * self.width, *patterns.shape[1:])
        for k, (y, x) in enumerate(product(range(self.height), range(self.width))):
            window = [slice(max(0, at - self.plan.reach), at + self.plan.reach + 1) for at in (y, x)]
            pattern = y % self.rows * self.columns + x % self.columns
            readings[k][..., window[0], window[1]] = patterns[pattern][..., window[0], window[1]]
        return readings


def _inputs_used(rule: Rule | None, below: Sequence[tuple[int, Any, int]]) -> Sequence[tuple[int, Any, int]]:
    """The inputs of a node that can get anything: a neuron whose response is never negative has one, not two."""
    if not isinstance(rule, SignRouter):
        return below
    direction = rule.direction()
    return [edge for edge in below if bool((direction > 0 if edge[0] == 0 else direction < 0).any())]


def transposed(node: Any, *, rule: Any, arrived: Mapping[int, Tensor], output: int) -> Tensor:
    """The transposed rule of a node: readings [readings, *output] of an output from those of the inputs."""
    if rule is None:
        return _of_copies(node, arrived, output)
    if isinstance(rule, SignRouter):
        direction = rule.direction()
        return total_of([each * (direction > 0 if k == 0 else direction < 0) for k, each in arrived.items()])
    if isinstance(rule, Sum):
        return _of_sum(rule, arrived, output)
    if isinstance(rule, Pass):
        (readings,) = arrived.values()
        shape = outputs_of(node)[output].shape
        readings = readings.expand(len(readings), *shape)
        return readings if rule.mask is None or rule.cued else readings * rule.mask
    if isinstance(rule, Tap):
        return total_of([each for k, each in arrived.items() if k or not rule.absorbing])
    return _of_affine(rule, arrived[0], output)


def _of_affine(rule: FastAffine, readings: Tensor, output: int) -> Tensor:
    """W (a * reading) / Z: the responses that children with these readings would cause, in shares of the whole."""
    from excite.propagation.fast.kernels import SIDES

    rule.check_weights()
    rule.scale = 1.0
    direction, flipped = SIDES[output]
    terms = []
    for factor, sign in ((rule.unit, direction), (rule.dual, -direction)):
        if factor:
            share = _shares(rule, readings, sign, flipped=flipped)
            terms.append(share if factor == 1 else share * factor)
    return total_of(terms)


def _shares(rule: FastAffine, readings: Tensor, sign: int, *, flipped: bool) -> Tensor:
    inputs = [(values, side) for values, side in rule.signed_inputs()[0] if rule.weight is not None or side == sign]
    weights = [
        None if rule.weight is None else rule.part(rule.weight, sign * side, flipped=flipped) for _, side in inputs
    ]
    if not inputs:
        response = rule.function(rule.child.tensor.detach(), None)
        return response.new_zeros(len(readings), *response.shape)
    tensors = [None if weight is None else weight.tensor() for weight in weights]
    total = total_of([rule.function(values, weight) for (values, _), weight in zip(inputs, tensors, strict=True)])
    if rule.must_scale(total, sign):
        return _shares(rule, readings, sign, flipped=flipped)
    parts = [
        torch.vmap(rule.function, in_dims=(0, None))(readings * values, weight)
        for (values, _), weight in zip(inputs, tensors, strict=True)
    ]
    return total_of(parts) * rule.reciprocal(total, sign)


def _of_sum(rule: Sum, arrived: Mapping[int, Tensor], output: int) -> Tensor:
    """As `Sum.shares`, from its terms to the sum."""
    sign, terms = (1, -1)[output], [term.tensor.detach() for term in rule.terms]
    sizes = [(term if sign > 0 else -term).clamp(min=0) for term in terms]
    if rule.cued and sign > 0:
        silent = total_of(sizes) == 0
        sizes = [torch.where(silent, term.abs(), size) for term, size in zip(terms, sizes, strict=True)]
    total = functional.threshold(total_of(sizes), 0.0, torch.inf)
    return total_of([each * (sizes[rule.traced[k]] / total) for k, each in arrived.items()])


def _of_copies(node: Any, arrived: Mapping[int, Tensor], output: int) -> Tensor:
    """The gradient of a node that copies, transposed: by autograd, which knows the gradient of a gradient."""
    outputs = outputs_of(node)
    if node_name(node) == "MaxPool2DWithIndices":
        chosen = node._saved_result1  # noqa: SLF001 - torch has no public way to ask
        places = chosen.flatten(-2).expand(len(arrived[0]), *chosen.shape[:-2], -1)
        gathered: Tensor = arrived[0].flatten(-2).gather(-1, places)
        return gathered.view(*places.shape[:-1], *chosen.shape[-2:])
    with torch.enable_grad():
        given = [torch.zeros(each.shape, dtype=each.dtype, device=each.device, requires_grad=True) for each in outputs]
        answer = node(*given)
        shares = answer if isinstance(answer, tuple) else (answer,)
        fitting = {k: share for k in arrived if (share := _fitting(shares[k], node.next_functions[k])) is not None}
    (readings,) = torch.autograd.grad(
        list(fitting.values()), [given[output]], [arrived[k] for k in fitting], is_grads_batched=True
    )
    return readings
