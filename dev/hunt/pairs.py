"""The hunt for silent mistakes: pairs of networks with the same output, of which the plain one is explained rightly."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import ExciteError
from excite.propagation.verify import verify
from hunt.asking import CHANGED, EQUAL, FAULT, LOST, NOTICED, REFUSED, RIGHT, STRANGE, UNHELPFUL, WRONG, Answer, ask
from hunt.networks import Network, Plan, bare, picture
from hunt.parts import REACH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

__all__ = ["Judged", "judge", "shrunk"]

WITHIN = {torch.float32: 1e-5, torch.float64: 1e-10}  # of the mass
SIGNALS = torch.eye(3, dtype=torch.float64)[:2, None]
DRAWS = 32  # of weights, until the plain network has a map
LEAST_MASS, LARGEST = 0.1, 1e6


@dataclass(frozen=True)
class Judged:
    """What came of one pair: the seed that makes it again, the verdict, the network in words, what is wrong."""

    seed: int
    verdict: str
    plan: str
    odd: str
    said: str = ""

    @property
    def found(self) -> bool:
        """Whether it is a mistake of excite."""
        return self.verdict not in RIGHT

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.verdict}: {self.plan}: {self.said} (python dev/hunt pairs --seeds {self.seed} --shrink)"


def judge(seed: int, plan: Plan | None = None) -> Judged:
    """Ask about both networks of a seed, and compare; ``plan``: of another one than the seed's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        used, verdict, said = _judged(plan or Plan.of(seed))
    hidden = "" if used.called_plainly else f" in {used.wrapper}"
    return Judged(seed, verdict, str(used), " + ".join(used.odd) + hidden, said)


def _judged(plan: Plan) -> tuple[Plan, str, str]:
    """The plan that was used in the end, the verdict, and what is wrong."""
    said = "no weights give the plain network a map"
    for draw in range(DRAWS):
        plan = replace(plan if draw < DRAWS // 2 else plan.simplified(), draw=draw)
        x, plain, odd = picture(plan), Network(plan, odd=False), Network(plan, odd=True)
        output, within_reach = _plain_output(plain, x)
        if not within_reach:
            continue
        try:
            got = bare(odd, x)
            if not plan.called_plainly:  # what hides a step must let gradients through as well
                odd(x.clone().requires_grad_())
        except Exception as error:  # noqa: BLE001 - no network in torch either: its surroundings forbid the step
            said, plan = f"torch: {error}", plan.simplified()
            continue
        if (got - output).abs().max() > max(1.0, float(output.abs().max())) * WITHIN[plan.dtype]:
            return plan, FAULT, f"the outputs differ: {got.tolist()} and {output.tolist()}"
        expected = ask(plain, x, SIGNALS.to(plan.dtype))
        if expected.error is not None:
            return plan, STRANGE, f"its plain twin: {expected.said}"
        if min(float(values.sum()) for values in expected.maps["mwp, plain kernels"]) > LEAST_MASS:
            verdict, said = _compared(plan, ask(odd, x, SIGNALS.to(plan.dtype)), expected, got)
            return plan, NOTICED if verdict == WRONG and _noticed(odd, x) else verdict, said
    return plan, FAULT, said


def _plain_output(network: Network, x: Tensor) -> tuple[Tensor, bool]:
    """The output, and whether all numbers are small enough for tables and integers."""
    reached: list[float] = []
    hook = network.inner.register_forward_hook(
        lambda _module, given, made: reached.extend(float(each.abs().max()) for each in (given[0], made))
    )
    output = bare(network, x)
    hook.remove()
    return output, float(output.abs().max()) < LARGEST and max(reached) < REACH


def _compared(plan: Plan, found: Answer, expected: Answer, output: Tensor) -> tuple[str, str]:
    if found.error is not None:
        unhelpful = plan.right and found.refusal in {REFUSED, LOST}
        return UNHELPFUL if unhelpful else found.refusal, found.said
    if found.output is None or not torch.equal(found.output, output):
        return CHANGED, f"{found.output} and not {output.tolist()}"
    difference, name = found.distance(expected)
    if difference <= WITHIN[plan.dtype]:
        return EQUAL, ""
    return WRONG, f"{name} differs by {difference:.2%} of its mass"


def _noticed(network: Network, x: Tensor) -> bool:
    """Whether the second guard notices what is wrong."""
    try:
        verify(network, x, ["layer"]).check()
    except ExciteError:
        return True
    return False


def shrunk(seed: int) -> Judged:
    """The same mistake in the smallest network that still has it."""
    plan, judged = Plan.of(seed), judge(seed)
    smaller: Iterator[Plan] | None = plan.smaller()
    while smaller is not None:
        for other in smaller:
            tried = judge(seed, other)
            if tried.verdict == judged.verdict:
                plan, judged, smaller = other, tried, other.smaller()
                break
        else:
            smaller = None
    return judged
