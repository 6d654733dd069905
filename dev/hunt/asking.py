"""What excite answers about a network: maps, or an error; and whether an error is a refusal."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from excite.errors import LayerError, ModelError, NoRuleError
from excite.propagation import ExcitationPass, plain_kernels
from excite.propagation.graph import nodes_below, rule_of

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "CHANGED",
    "EQUAL",
    "FAULT",
    "LOST",
    "NOTICED",
    "REFUSED",
    "RIGHT",
    "STRANGE",
    "UNHELPFUL",
    "WRONG",
    "Answer",
    "ask",
]

EQUAL, REFUSED, NOTICED = "equal", "refused", "refused by the second guard only (`verify`, the first image of `wrap`)"
WRONG, CHANGED = "silently wrong", "another output"
STRANGE, LOST, UNHELPFUL = "wrong kind of error", "said not to feed the output", "refused though right"
FAULT = "fault of the hunt"
RIGHT = frozenset([EQUAL, REFUSED, NOTICED])
KERNELS = {"fast kernels": nullcontext, "plain kernels": plain_kernels}


@dataclass
class Answer:
    """Maps by name, or the error that came instead.

    Attributes:
        maps: [signals, *layer] by method and kernels.
        output: of the network.
        rules: the names of all rules in the graph.
        error: where there are no maps.
    """

    maps: dict[str, Tensor] = field(default_factory=dict)
    output: Tensor | None = None
    rules: list[str] = field(default_factory=list)
    error: Exception | None = None

    @property
    def refusal(self) -> str:
        """The verdict on an error."""
        if isinstance(self.error, LayerError) and "does not feed the output" in str(self.error):
            return LOST
        return REFUSED if isinstance(self.error, (NoRuleError, ModelError, LayerError)) else STRANGE

    @property
    def said(self) -> str:
        """The error in one line."""
        return "" if self.error is None else f"{type(self.error).__name__}: {' '.join(str(self.error).split())[:200]}"

    def distance(self, expected: Answer) -> tuple[float, str]:
        """The largest difference of two answers, as a part of the mass, and of which map."""
        worst = (0.0, "")
        for name, values in expected.maps.items():
            mass = float(values.abs().sum().clamp(min=torch.finfo(values.dtype).tiny))
            worst = max(worst, (float((self.maps[name] - values).abs().sum()) / mass, name))
        return worst


def ask(network: nn.Module, x: Tensor, signals: Tensor, *, contrast: bool = True) -> Answer:
    """The maps of the module ``layer`` for some signals, with and without contrast, by each kind of kernels."""
    answer = Answer()
    try:
        for kind, kernels in KERNELS.items():
            with kernels(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                excitation = ExcitationPass(network, x.clone(), ["layer"])
                answer.maps[f"mwp, {kind}"] = excitation.down(signals)["layer"]
                if contrast:
                    answer.maps[f"c-mwp, {kind}"] = excitation.down(signals, dual=-1.0)["layer"]
    except Exception as error:  # noqa: BLE001 - any error is an answer, and is judged
        return Answer(error=error)
    answer.output = excitation.output
    rules = map(rule_of, nodes_below(excitation.top))
    answer.rules = [type(rule).__name__ for rule in rules if rule is not None]
    return answer
