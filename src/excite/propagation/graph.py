"""Autograd's graph of a forward pass: which nodes may be in it, what they save, and the plain top-down pass through it.

What the mode cannot see (TorchScript, custom autograd functions) still leaves nodes in the graph. So each node on the
path of a signal is checked: it has one of our rules, or it copies values. Anything else would give wrong maps.
"""

from __future__ import annotations

import inspect
import math
import weakref
from dataclasses import dataclass, field
from functools import cache
from itertools import filterfalse
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from excite.errors import NoRuleError
from excite.propagation.fast import is_concrete
from excite.propagation.operations import NODES, Operation
from excite.propagation.provenance import is_above_tap, nodes_below
from excite.propagation.rules import Affine, Refused, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.autograd.graph import GradientEdge

    from excite.propagation.mode import Call
    from excite.propagation.rules import Shares

    # A node of the graph, the probabilities that arrived at its outputs, and its shares for its inputs.
    Observer = Callable[[Any, Sequence[Tensor], Shares], None]

_UNLISTED = Operation()

# --- nodes ---------------------------------------------------------------------------------------------------------


def rule_of(node: Any) -> Rule | None:
    """Our rule at a node, or None where autograd's own gradient serves."""
    rule = getattr(node, "rule", None)
    return rule if isinstance(rule, Rule) else None


def node_name(node: Any) -> str:
    """What torch calls the operation of a node."""
    return type(node).__name__.rstrip("0123456789").removesuffix("Backward")


def outputs_of(node: Any) -> Any:
    """Shape, dtype and device of each output of a node's operation."""
    return node._input_metadata  # noqa: SLF001 - torch has no public way to ask


def copies(node: Any) -> bool:
    """Whether the gradient of a node is its transition matrix: by its rule, or because it copies values."""
    if isinstance(node, BackwardCFunction):  # written in Python: ours has a rule, any other is unknown
        return rule_of(node) is not None
    name = node_name(node)
    if name == "IndexPut" and node._saved_accumulate:  # noqa: SLF001 - torch has no public way to ask
        return False
    if name == "CopySlices" and "excite copies" not in node.metadata:  # what it writes to the slice is hidden in it
        return False
    return NODES.get(name, _UNLISTED).copies


def trust(written: Tensor) -> None:
    """Record that the in-place call behind ``written`` has copied values."""
    base = written._base if written._is_view() else written  # noqa: SLF001 - they have no public names
    node: Any = None if base is None else base.grad_fn
    if node is not None and node_name(node) == "CopySlices":
        node.metadata["excite copies"] = True


def hide(node: Any, *, unless_plain: bool) -> None:
    """Record that no call was seen that made a node; ``unless_plain``: nothing is known that a copy would lose."""

    def until_rules(node: Any) -> list[Any]:
        return [] if rule_of(node) is not None else [child for child, _ in node.next_functions]

    rules = filter(None, map(rule_of, nodes_below(node, below=until_rules)))
    if not unless_plain or not all(rule.plain for rule in rules):
        node.metadata["excite hidden"] = hidden(type(node).__name__)


# --- names of operations --------------------------------------------------------------------------------------------

# What Python calls to make a number of a tensor; not to be mistaken for x.float().
_CONVERTING = frozenset("__float__ __int__ __bool__ __index__ __complex__ __array__ __invert__ __len__".split())
# In-place calls that autograd itself handles: they copy values or change only the shape.
WRITING = frozenset("copy_ zero_ fill_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ __setitem__ data=".split())


@cache
def operation_name(function: Callable[..., Any]) -> str:
    """One name for all spellings of an operation: ``x += y``, ``x.add_(y)`` and ``torch.add(x, y)`` are ``add``."""
    name: str = function.__name__
    if name == "__get__":  # a property, such as x.data
        return str(function.__self__.__name__)  # type: ignore[attr-defined]  # a slot of a property
    if name == "__set__":
        return f"{function.__self__.__name__}="  # type: ignore[attr-defined]  # as above
    if name in WRITING or name in _CONVERTING or name == "requires_grad_":
        return name
    if name.startswith("__i") and name.endswith("__"):
        name = name[3:-2]
    name = name.strip("_")
    synonyms = {"truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub"}
    return synonyms.get(name, name)


@cache
def inplace_position(function: Callable[..., Any]) -> int | None:
    """Where the ``inplace`` flag of a function stands; 0: it always works in place; None: never."""
    if function.__name__.endswith("_") and not function.__name__.endswith("__"):
        return 0
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # built in, without a readable signature: those say it in their name
        return None
    return names.index("inplace") if "inplace" in names else None


# --- checks --------------------------------------------------------------------------------------------------------


def check(output: Tensor, *, linear: bool = False) -> set[Tensor]:
    """Refuse a graph with a node below ``output`` that has no rule; give the probes that it reaches.

    ``linear``: sums and pooling need none, as their gradient serves.
    """
    reached = set()
    for node in nodes_below(output.grad_fn):
        rule, message = rule_of(node), node.metadata.get("excite hidden")
        if isinstance(rule, Refused):
            message = rule.message
        elif rule is None and not copies(node) and not (linear and NODES.get(node_name(node), _UNLISTED).linear):
            message = node.metadata.get("excite") or hidden(type(node).__name__)
        if message:
            raise NoRuleError(message)
        if hasattr(node, "variable"):  # a leaf of autograd's graph
            reached.add(node.variable)
    return reached


def top_of(output: Tensor) -> tuple[list[Affine], set[Tensor]]:
    """The classifier's own weighted operations, and the probes above them; all rules down to there become cued."""
    top: list[Affine] = []
    probes: set[Tensor] = set()

    def below(node: Any) -> list[Any]:
        rule = rule_of(node)
        if rule is not None:
            rule.cued = True
        if isinstance(rule, Affine) and rule.weight is not None:
            top.append(rule)
            return []
        if hasattr(node, "variable"):
            probes.add(node.variable)
        return [child for child, _ in node.next_functions]

    list(nodes_below(output.grad_fn, below=below))
    return top, probes


def name_unruled(result: Tensor, call: Call) -> None:
    """Record which call made the nodes that do more than copy, for the error if a signal ever meets them."""
    for node in nodes_below(result.grad_fn, {tensor.grad_fn for tensor in call.tensors if is_above_tap(tensor)}):
        if call.operation.copies:
            node.metadata["excite copies"] = True
        if not copies(node) and "excite" not in node.metadata:
            node.metadata["excite"] = refusal(call.name, call.mode.module_name())


def refusal(operation: str, module: str, reason: str = "") -> str:
    """The one line that says what has no rule, where, and what to do."""
    place = f"called in {module!r}" if module else "called by the model itself"
    because = f" ({reason})" if reason else ""
    return (
        f"no top-down rule for {operation!r}, {place}{because}: read a layer above it, write it with operations that "
        f"have a rule, or add one to excite.propagation.OPERATIONS[{operation!r}] (docs/reference/extending.md)"
    )


def running_module(names: Mapping[int, str]) -> str:
    """The name of the module whose code is running (``names`` by id), read off the stack so that no hook is needed."""
    frame = inspect.currentframe()
    frame = frame and frame.f_back  # a frame that refers to itself would keep alive all that its callers hold
    while frame is not None and id(frame.f_locals.get("self")) not in names:
        frame = frame.f_back
    return "" if frame is None else names[id(frame.f_locals["self"])]


def hidden(node: str) -> str:
    """The one line for an operation that the mode has not seen."""
    return (
        f"no top-down rule for {node!r}, made by code that hides its operations (TorchScript, a custom "
        "autograd.Function): use the same module in plain PyTorch, or read a layer above it"
    )


# --- the top-down pass ---------------------------------------------------------------------------------------------


class Subgraph:
    """The nodes between some starts and some probes, each after every node above it."""

    def __init__(self, starts: Sequence[GradientEdge], probes: Sequence[Tensor]) -> None:
        self.probes, self.starts = list(probes), list(map(attrgetter("node", "output_nr"), starts))
        wanted, leading = set(self.probes), set()
        # Each node, its rule, and for each input that leads to a probe: its number, the node below, which output of it.
        self.steps: list[tuple[Any, Rule | None, list[tuple[int, Any, int]]]] = []
        for node in reversed(_top_down(self.starts)):
            below = [(k, child, output) for k, (child, output) in enumerate(node.next_functions) if child in leading]
            if below or getattr(node, "variable", None) in wanted:
                leading.add(node)
                self.steps.append((node, rule_of(node), below))
        self.steps.reverse()
        nodes = [node for node, _, _ in self.steps] if is_concrete() else []
        self.largest = max((math.prod(meta.shape) for node in nodes for meta in outputs_of(node)), default=0)


def _top_down(starts: Sequence[tuple[Any, int]]) -> list[Any]:
    """All nodes below some starts, each after every node above it."""
    parents: dict[Any, int] = {}  # of each node, those not yet in order
    for start, _ in starts:
        for node in nodes_below(start, set(parents)):
            parents.setdefault(node, 0)
    for node in list(parents):
        for child, _ in node.next_functions:
            if child is not None:
                parents[child] = parents.get(child, 0) + 1
    ready, order = list(filterfalse(parents.get, parents)), []
    while ready:
        node = ready.pop()
        order.append(node)
        for child, _ in node.next_functions:
            if child is not None:
                parents[child] -= 1
                if not parents[child]:
                    ready.append(child)
    return order


@torch.no_grad()
def carried(
    graph: Subgraph, signals: Sequence[Any], backward: Callable[..., Sequence[Any]], join: Callable[..., Any]
) -> dict[Tensor, Any]:
    """What arrives at each probe (Eqn. 1), from signals at each start.

    ``backward`` gives the shares of a node's inputs; ``join`` sums those of several parents, in the child's type.
    """
    waiting: dict[Any, dict[int, Any]] = {}
    found: dict[Tensor, Any] = {}
    for (node, output), signal in zip(graph.starts, signals, strict=True):
        waiting.setdefault(node, {})[output] = signal
    for node, rule, below in graph.steps:
        arrived = waiting.pop(node, None)
        if arrived is None:
            continue
        if hasattr(node, "variable"):
            found[node.variable] = arrived[0]
            continue
        shares = backward(node, rule, arrived, below)
        for k, child, output in below:
            if shares[k] is not None:
                at_child = waiting.setdefault(child, {})
                at_child[output] = join(at_child.get(output), shares[k], outputs_of(child)[output].dtype)
    return found


def carry(
    graph: Subgraph, signals: Sequence[Tensor], *, reuse: bool = True, observer: Observer | None = None
) -> list[Tensor]:
    """The top-down pass: probabilities [signals, *probe] at each probe, from [signals, *output] at each start.

    ``observer`` is called for every node. ``reuse``: other signals may follow (`fast` then keeps what they share).
    """
    del reuse

    def backward(node: Any, rule: Rule | None, arrived: Mapping[int, Tensor], _below: Any) -> Shares:
        shares = down(node, arrived, rule)
        if observer is not None:
            observer(node, list(arrived.values()), shares)
        return shares

    def join(before: Tensor | None, share: Tensor, dtype: torch.dtype) -> Tensor:
        return share.to(dtype) if before is None else before + share.to(dtype)

    found = carried(graph, signals, backward, join)
    return [
        found[probe].contiguous() if probe in found else probe.new_zeros(len(signals[0]), *probe.shape)
        for probe in graph.probes
    ]


def sums(_graph: Subgraph, _signals: Tensor) -> Tensor | None:
    """What arrives at each position, summed over channels, by a shorter way than `carry` if there is one: here none."""
    return None


def down(node: Any, arrived: Mapping[int, Tensor], rule: Rule | None) -> Shares:
    """The shares of a node's inputs: by its rule, or because it copies values by its gradient, one signal at a time."""
    outputs = outputs_of(node)
    if rule is not None:
        return rule.down(*map(arrived.get, range(len(outputs))))
    each = []
    for k in range(len(next(iter(arrived.values())))):
        signals = (
            arrived[output][k] if output in arrived else torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)
            for output, meta in enumerate(outputs)
        )
        try:
            shares = node(*signals)
        except RuntimeError as error:  # hidden code has overwritten what the node saved
            raise NoRuleError(hidden(type(node).__name__)) from error
        each.append(tuple(map(_fitting, shares if isinstance(shares, tuple) else (shares,), node.next_functions)))
    if len(each) == 1:
        return tuple(None if share is None else share[None] for share in each[0])
    return tuple(None if shares[0] is None else torch.stack(shares) for shares in zip(*each, strict=True))


def _fitting(share: Tensor | None, child: tuple[Any, int]) -> Tensor | None:
    """The share of a child that was broadcast, summed to its shape (autograd's engine does that between nodes)."""
    if share is None or child[0] is None:
        return share
    shape = outputs_of(child[0])[child[1]].shape
    return share if share.shape == shape else share.sum_to_size(shape)


# --- what the graph saves ------------------------------------------------------------------------------------------

_USES = getattr(torch._C, "_storage_Use_Count", None)  # noqa: SLF001 - torch has no public name for it
_OWN_USES = 2  # of memory that one tensor refers to: the tensor's own, and that of the storage asked for


@dataclass(eq=False, slots=True, weakref_slot=True)
class Saved:
    """A tensor whose content will not change: see `CopyOnWrite`."""

    tensor: Tensor
    signed_inputs: list[tuple[Tensor, int]] | None = None  # above and below 0, which `fast` shares between rules


@dataclass(eq=False)
class CopyOnWrite:
    """Saves tensors by reference, and copies them just before the network overwrites them (``out += identity``)."""

    _saved: dict[int, list[weakref.ref[Saved]]] = field(default_factory=dict)  # by the address of their memory

    def keep(self, tensor: Tensor) -> Saved:
        """The present content of ``tensor``; the same object for the same view of the same memory."""
        here = self._saved.setdefault(memory_of(tensor), [])
        for reference in here if is_concrete() and has_memory(tensor) else ():
            saved = reference()
            if saved is not None and saved.tensor.is_set_to(tensor) and saved.tensor.dtype == tensor.dtype:
                return saved
        saved = Saved(tensor.detach())
        here.append(weakref.ref(saved))
        return saved

    def before_writing(self, target: Tensor) -> None:
        """Copy whatever is saved in the memory of ``target``, which is about to be overwritten."""
        for reference in self._saved.pop(memory_of(target), ()):
            saved = reference()
            if saved is not None:
                saved.tensor = saved.tensor.clone()

    def only_saved(self, target: Tensor) -> bool:
        """Whether only ``target`` and what is saved here refer to that memory: ``target`` can be given another."""
        if _USES is None or not is_concrete() or target._is_view():  # noqa: SLF001 - it has no public name
            return False
        own = _OWN_USES
        for reference in self._saved.get(memory_of(target), ()):
            own += reference() is not None
        uses: int = _USES(target.untyped_storage()._cdata)  # noqa: SLF001 - as above
        return uses == own

    def saving(self) -> torch.autograd.graph.saved_tensors_hooks:
        """Have autograd's own nodes save their tensors here as well, instead of refusing overwritten ones."""
        return torch.autograd.graph.saved_tensors_hooks(self.keep, lambda saved: saved.tensor)


def is_exchangeable(mine: Tensor, other: Tensor) -> bool:
    """Whether two tensors can be swapped without a visible difference to anything else."""
    return (
        type(mine) is type(other) is Tensor
        and mine.shape == other.shape
        and mine.stride() == other.stride()
        and mine.dtype == other.dtype
        and mine.device == other.device
        and mine._use_count() == other._use_count() == 1  # type: ignore[attr-defined]  # noqa: SLF001 - no public name
        and not (mine.is_leaf or other.is_leaf or weakref.getweakrefs(mine) or weakref.getweakrefs(other))
    )


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own: not if it is sparse, mkldnn, or wrapped by ``torch.func``."""
    return tensor.layout is torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001 - no public name


def memory_of(tensor: Tensor) -> int:
    """The address of a tensor's memory; while a graph is traced it has none, only an owner."""
    if not has_memory(tensor):
        return 0
    storage = tensor.untyped_storage()
    return storage.data_ptr() if is_concrete() else storage._cdata  # noqa: SLF001 - it has no public name
