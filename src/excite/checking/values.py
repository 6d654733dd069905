"""Does the network answer what it always answers, and are the digits of its maps enough?"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from excite.checking.check import Check, Verdict
from excite.propagation import ExcitationPass, prior
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from excite.checking.check import Measured, Standing
    from excite.checking.seen import Seen

__all__ = ["VALUES", "judge_values", "values_agree"]

DIGITS = 0.01  # of the map


def values_agree(seen: Seen) -> dict[str, Any]:
    """The network's answers before, while and after it is explained; and how far its map is from double precision."""
    module, inputs = seen.classifier.module, seen.inputs
    layer = seen.layers["mwp"][0]
    with torch.no_grad():
        before = main_output(module(inputs))
    output, single = _explained(module, inputs, layer, seen.finding.units)
    with torch.no_grad():
        after = main_output(module(inputs))
    _, double = _explained(copy.deepcopy(module).double(), inputs.double(), layer, seen.finding.units)
    return {
        "while": float((output - before).abs().max()),
        "after": float((after - before).abs().max()),
        "rounding": float((single - double).abs().sum() / double.sum()),
    }


def _explained(module: nn.Module, inputs: Tensor, layer: str, units: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The answer, and the map of winning probabilities [h, w] in double precision."""
    sweep = ExcitationPass(module, inputs, [layer])
    arrived = sweep.down(prior(sweep.output, dict.fromkeys(units, 1.0)))[layer]
    return sweep.output.detach(), arrived.double()


def judge_values(measured: Sequence[Measured], _method: str) -> Verdict:
    """The same answers to the last bit, and maps whose digits are enough."""
    gaps = {"while it is explained": "while", "afterwards": "after"}
    largest = {words: max(one[name] for one in measured) for words, name in gaps.items()}
    rounding = max(one["rounding"] for one in measured)
    changed = [words for words, gap in largest.items() if gap != 0]
    if changed:
        standing: Standing = "fails"
        said = f"The network answers otherwise {' and '.join(changed)}: this is a fault, please report it."
    else:
        standing = "holds" if rounding < DIGITS else "doubtful"
        said = (
            "The network answers the same, to the last bit, before, while and after it is explained. By rounding at "
            f"most {rounding:.1g} of a map is elsewhere than in double precision."
        )
    rows = [{"": f"answers {words} differ by", "at most": f"{gap:.1g}"} for words, gap in largest.items()]
    rows.append({"": "of the map lies elsewhere than in double precision", "at most": f"{rounding:.1g}"})
    return Verdict(standing, (said,), rows)


VALUES = Check("values", "Are the values right?", values_agree, judge_values)
