"""The graph of a forward pass: what may be in it, where its top is, and what must be refused.

The mode sees every torch call made from Python. What it cannot see (TorchScript, custom autograd functions) still
leaves its mark in autograd's graph. So before any signal goes down, every node on its way is checked: it is one of
our rules, or an operation of autograd that copies values. Anything else would give wrong maps without a word.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from torch.autograd.function import BackwardCFunction

from excite.errors import NoRuleError
from excite.propagation.affine import Affine
from excite.propagation.notes import is_traced
from excite.propagation.rules import Refused, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from excite.propagation.call import Call

__all__ = [
    "check",
    "children_of",
    "copies",
    "hidden",
    "name_unruled",
    "node_name",
    "nodes_below",
    "outputs_of",
    "refusal",
    "rule_of",
    "top_down",
    "top_of",
]

# Operations whose outputs are copies of single inputs (or, for logsumexp, whose gradient already is a distribution
# over the inputs): their gradient is their transition matrix.
_COPYING = frozenset(
    """
    AccumulateGrad AdaptiveMaxPool2D AdaptiveMaxPool3D Alias Amax Amin AsStrided Cat ChannelShuffle Clone
    ConstantPadNd Contiguous CopyBackwards CopySlices Diagonal Expand Flatten Flip Gather Identity Im2Col Imag Index
    IndexCopy IndexFill IndexPut IndexSelect Logsumexp MaskedFill MaskedScatter MaskedSelect Max
    MaxPool2DWithIndices MaxPool3DWithIndices Maximum Median Min Minimum MkldnnMaxPool2D Movedim
    NativeChannelShuffle Permute PixelShuffle PixelUnshuffle Real ReflectionPad1D ReflectionPad2D ReflectionPad3D
    Relu Repeat RepeatInterleave ReplicationPad1D ReplicationPad2D ReplicationPad3D ReshapeAlias Roll Scatter Select
    Slice Sort Split SplitWithSizes Squeeze Stack T Take Threshold ToCopy Topk Transpose Unbind Unfold UnsafeSplit
    UnsafeView Unsqueeze UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D UpsampleNearestExact1D
    UpsampleNearestExact2D UpsampleNearestExact3D View ViewAsComplex ViewAsReal Where
    """.split()
)


def rule_of(node: Any) -> Rule | None:
    """Our rule at a node of the graph, or None where autograd's own gradient serves."""
    rule = getattr(node, "rule", None)
    return rule if isinstance(rule, Rule) else None


def check(output: Tensor) -> set[Tensor]:
    """Refuse a graph that has a node without a rule on the way down from ``output``; give the probes it reaches."""
    reached = set()
    for node in nodes_below(output.grad_fn):
        rule = rule_of(node)
        if isinstance(rule, Refused):
            raise NoRuleError(rule.message)
        if not copies(node):
            raise NoRuleError(node.metadata.get("excite") or hidden(type(node).__name__))
        if hasattr(node, "variable"):  # the end of a way: a leaf of autograd's graph
            reached.add(node.variable)
    return reached


def top_of(output: Tensor) -> tuple[list[Affine], set[Tensor]]:
    """The classifier's own weighted operations, and the probes that lie above them.

    All rules down to there are marked as cued: the signal says that these units are on, whatever they answered.
    """
    top: list[Affine] = []

    def above(node: Any) -> list[Any]:
        rule = rule_of(node)
        if rule is not None:
            rule.cued = True
        if isinstance(rule, Affine) and rule.weight is not None:
            top.append(rule)
            return []
        return children_of(node)

    probes = {node.variable for node in nodes_below(output.grad_fn, above) if hasattr(node, "variable")}
    return top, probes


def top_down(*tops: Any) -> list[Any]:
    """All nodes from ``tops`` down, each after every node above it."""
    below = {node: None for top in tops for node in nodes_below(top)}
    waiting = Counter(child for node in below for child in children_of(node))
    ready, order = [top for top in tops if not waiting[top]], []
    while ready:
        node = ready.pop()
        order.append(node)
        for child in children_of(node):
            if child is not None:
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
    return order


def name_unruled(result: Tensor, call: Call, module_name: Callable[[], str]) -> None:
    """Remember which call made the nodes that do more than copy, for the error if a signal ever meets them."""
    origins = {tensor.grad_fn for tensor in call.tensors if is_traced(tensor)}
    for node in nodes_below(result.grad_fn, lambda node: [] if node in origins else children_of(node)):
        if node not in origins and not copies(node) and "excite" not in node.metadata:
            node.metadata["excite"] = refusal(call.name, module_name())


def refusal(operation: str, module: str, reason: str = "") -> str:
    """The one line that says what has no rule, where, and what to do."""
    place = f"called in {module!r}" if module else "called by the model itself"
    because = f" ({reason})" if reason else ""
    return (
        f"no top-down rule for {operation!r}, {place}{because}: read a layer above it, write it with operations that "
        f"have a rule, or add one to excite.propagation.OPERATIONS[{operation!r}] (docs/add-a-rule.md)"
    )


def hidden(node: str) -> str:
    """The one line for what the mode has not seen."""
    return (
        f"no top-down rule for {node!r}, made by code that hides its operations (TorchScript, a custom "
        "autograd.Function): use the same module in plain PyTorch, or read a layer above it"
    )


def copies(node: Any) -> bool:
    """Whether the gradient of a node is its transition matrix: by its rule, or because it copies values."""
    if isinstance(node, BackwardCFunction):  # written in Python: ours has a rule, any other is unknown
        return rule_of(node) is not None
    return node_name(node) in _COPYING


def node_name(node: Any) -> str:
    """What torch calls the operation of a node."""
    return type(node).__name__.rstrip("0123456789").removesuffix("Backward")


def children_of(node: Any) -> list[Any]:
    """The nodes just below one; None where a tensor needs no gradient."""
    return [child for child, _ in node.next_functions]


def outputs_of(node: Any) -> Any:
    """What is known of each output of a node's operation: shape, dtype and device."""
    return node._input_metadata  # noqa: SLF001 - torch has no public way to ask


def nodes_below(start: Any, below: Callable[[Any], Iterable[Any]] = children_of) -> Iterator[Any]:
    """All nodes below and including ``start``; ``below`` says where to go on from a node."""
    waiting, seen = [start], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(below(node))
