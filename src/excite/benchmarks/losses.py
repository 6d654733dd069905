"""Where and why probability is lost on its way down: what arrives at each operation, less what it hands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.autograd import _get_sequence_nr as _nodes_made  # type: ignore[attr-defined]  # it has no public name

from excite.propagation import ExcitationPass
from excite.propagation.graph import rule_of
from excite.propagation.rules import Affine, Tap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

__all__ = ["CAUSES", "Loss", "explain", "losses"]

Span = tuple[int, int, str]

UNSEEN = 1e-3  # what may be left over by rounding and by many losses too small to list

CAUSES = {
    "mean": "a layer or group norm takes the mean of its own input off. A unit that all its children pushed up, but "
    "less than others were, then responds below 0, and nobody pushed it down.",
    "absence": "a norm behind an activation function moves units at rest away from 0, and the layer above takes that "
    "for evidence. Nothing below excited them.",
    "padding": "the zeros around a map won a pooling: nothing in the picture was larger.",
    "nobody": "a unit responded although no child pushed it that way.",
    "constant": "it went to a constant of the network (a class token, a table of positions), which has no place in the "
    "picture.",
}


@dataclass(frozen=True)
class Loss:
    """How much of the signal one operation lost, the rule it follows, and the module in whose code it runs."""

    share: float
    rule: str
    module: str
    kind: str


def losses(module: nn.Module, inputs: Tensor, layer: str, signal: Tensor, least: float = 1e-6) -> list[Loss]:
    """The operations between the output and ``layer`` that lose more than ``least`` of the signal, the worst first.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2)).eval()
        >>> net[2].weight.data = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])  # nobody excites the first unit
        >>> net[0].weight.data.fill_(1.0)
        tensor([[1., 1.],
                [1., 1.]])
        >>> losses(net, torch.ones(1, 2), "1", torch.tensor([[1.0, 0.0]]))
        [Loss(share=1.0, rule='Affine', module='2', kind='Linear')]
    """
    spans: list[Span] = []
    hooks = list(_timed(module, spans))
    try:
        sweep = ExcitationPass(module, inputs, [layer])
    finally:
        for hook in hooks:
            hook.remove()
    found: list[Loss] = []

    def compare(node: Any, above: Sequence[Tensor | None], below: Sequence[Tensor | None]) -> None:
        rule = rule_of(node)
        if not isinstance(rule, Tap):  # a tap hands on and records
            place = _place(node, spans)
            kind = "Affine" if isinstance(rule, Affine) else type(rule or node).__name__
            found.append(Loss(_sum(above) - _sum(below), kind, place, type(module.get_submodule(place)).__name__))

    sweep.propagate(sweep.start(), signal[None], observer=compare)
    return sorted((loss for loss in found if loss.share > least), key=lambda loss: -loss.share)


def _timed(module: nn.Module, spans: list[Span]) -> Iterator[Any]:
    """Hooks that write down which of autograd's nodes are made while each module runs."""
    starts: list[int] = []

    def begin(_child: nn.Module, _arguments: Any) -> None:
        starts.append(_nodes_made())

    def end(name: str) -> Any:
        return lambda _child, _arguments, _answer: spans.append((starts.pop(), _nodes_made(), name))

    for name, child in module.named_modules():
        yield child.register_forward_pre_hook(begin)
        yield child.register_forward_hook(end(name))


def _place(node: Any, spans: Sequence[Span]) -> str:
    """The innermost module in which a node was made."""
    made = node._sequence_nr()  # noqa: SLF001 - torch's only word on the order of nodes
    around = [(end - begin, name) for begin, end, name in spans if begin <= made < end]
    return min(around)[1]


def _sum(probabilities: Sequence[Tensor | None]) -> float:
    return sum(float(probability.double().sum()) for probability in probabilities if probability is not None)


def explain(module: nn.Module, inputs: Tensor, layer: str, signal: Tensor) -> dict[str, tuple[float, str]]:
    """For each cause (of `CAUSES`) how much of the signal is lost between the output and ``layer``, and where most.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).eval()
        >>> net[2].weight.data = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])  # nobody excites the first unit
        >>> net[0].weight.data = torch.ones(2, 2)
        >>> explain(net, torch.ones(1, 2), "1", torch.tensor([[1.0, 0.0]]))
        {'nobody': (1.0, '2')}
    """
    found = losses(module, inputs, layer, signal)
    means = any(isinstance(child, nn.LayerNorm | nn.GroupNorm) for child in module.modules())
    causes: dict[str, tuple[float, str]] = {}
    for loss in found:
        cause = _cause(loss, means=means)
        share, place = causes.get(cause, (0.0, loss.module))
        causes[cause] = share + loss.share, place
    arrived = float(ExcitationPass(module, inputs, [layer]).down(signal)[layer].double().sum())
    rest = float(signal.sum()) - arrived - sum(loss.share for loss in found)
    if rest > UNSEEN:
        causes["constant"] = rest, ""
    return dict(sorted(causes.items(), key=lambda cause: -cause[1][0]))


def _cause(loss: Loss, *, means: bool) -> str:
    """The cause behind a loss; ``means`` says that there are norms in the network that take a mean off."""
    if loss.rule in {"Sum", "Affine"}:
        return "mean" if means else "nobody"
    return "padding" if loss.rule.startswith("ConstantPad") else "absence"
