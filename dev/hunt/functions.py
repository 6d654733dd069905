"""The hunt for functions of torch whose map is not that of their transition matrix.

The network is a layer, the function and a head with two classes for each of its results: one is the result, the other
its negative. So each row of the matrix is the map of one of the two.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from hunt.asking import CHANGED, EQUAL, LOST, REFUSED, RIGHT, UNHELPFUL, WRONG, Answer, ask
from hunt.expected import CONSTANTS, EXPECTED, MEMORY, composed
from hunt.matrices import look
from hunt.samples import MANY, Case, Function, quick_seeds, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hunt.matrices import Seen

__all__ = ["CONSTANT", "COPY", "NO_TENSOR", "SELECTS", "Tried", "hunt_function"]

COPY, CONSTANT, SELECTS, NO_TENSOR = "copy", "constant", "selects", "no tensor"
ROWS = 24  # of a matrix that are compared
OUTPUTS = 4  # of a function that are tried


@dataclass(frozen=True)
class Tried:
    """What came of one call.

    Attributes:
        case: the call.
        output: which of its results.
        verdict: as of a pair.
        how: of a map: by which rules, or that the function copies; else what it gives.
        said: what is wrong.
    """

    case: Case
    output: int
    verdict: str
    how: str = ""
    said: str = ""

    @property
    def found(self) -> bool:
        """Whether it is a mistake of excite."""
        return self.verdict not in RIGHT

    def __str__(self) -> str:
        number = f", result {self.output}" if self.output else ""
        return f"{self.verdict}: {self.case}{number}: {self.said}"


class Asked(nn.Module):
    """The function between the layer and the head."""

    def __init__(self, case: Case, output: int, rows: list[int]) -> None:
        super().__init__()
        self.case, self.output, self.rows = case, output, rows
        self.layer = nn.Identity()
        self.head = nn.Linear(len(rows), 2 * len(rows), bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.head.weight.copy_(torch.cat([torch.eye(len(rows)), -torch.eye(len(rows))]))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Some results and their negatives."""
        return self.head(result(self.case, self.output, self.layer(x)[0])[None, self.rows])


def result(case: Case, output: int, x: Tensor) -> Tensor:
    """One of the function's results as a row of numbers, from a row of numbers."""
    given, start = [], 0
    for each in case.given:
        given.append(x[start : start + each.numel()].reshape(each.shape))
        start += each.numel()
    y = tensors_of(case.call(given))[output]
    if y.is_quantized:
        y = y.dequantize()
    elif y.layout != torch.strided:
        y = y.to_dense()
    elif y.is_complex():
        y = torch.view_as_real(y.resolve_conj())
    return y.reshape(-1).to(torch.float64)


def hunt_function(function: Function, most: int) -> Iterator[Tried]:
    """All calls of a function, with some of its samples."""
    looked: dict[tuple[object, ...], Seen] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"), quick_seeds():
        warnings.simplefilter("ignore")
        for case in function.cases(most):
            try:
                with torch.no_grad():
                    outputs = tensors_of(case.call([each.clone() for each in case.given]))
            except Exception:  # noqa: BLE001, S112 - no such call: not each spelling takes all arguments
                continue
            if not outputs:
                yield Tried(case, 0, EQUAL, NO_TENSOR)
            for output, y in enumerate(outputs[:OUTPUTS]):
                if 0 < y.numel() <= 2 * MANY and case.operation not in MEMORY and not composed(case):
                    yield from _tried(case, output, looked, whole=not (y.is_floating_point() or y.is_complex()))


def _tried(case: Case, output: int, looked: dict[tuple[object, ...], Seen], *, whole: bool) -> Iterator[Tried]:
    """One result of a call; ``looked`` keeps what was seen, the same for each spelling that gives the same result."""
    x = torch.cat([each.reshape(-1) for each in case.given])
    y = result(case, output, x.clone())
    if not bool(torch.isfinite(y).all()):
        return
    rows = list(range(0, len(y), -(-len(y) // ROWS)))
    signals = torch.eye(2 * len(rows), dtype=torch.float64)[:, None]
    answer = ask(Asked(case, output, rows), x[None], signals, contrast=False)

    def values(numbers: np.ndarray) -> np.ndarray:
        try:
            with torch.no_grad():
                return result(case, output, torch.from_numpy(numbers)).numpy()
        except Exception:  # noqa: BLE001 - out of its domain
            return np.full(len(y), np.nan)

    def seen() -> Seen:
        call = (case.number, case.live, output, y.numpy().tobytes())
        if call not in looked:
            looked[call] = look(values, x.numpy().copy())
        return looked[call]

    if answer.error is None:
        verdict, said = _compared(case, seen(), rows, answer)
        yield Tried(case, output, verdict, _how(answer.rules), said)
    elif case.operation in CONSTANTS and answer.refusal == REFUSED:
        yield Tried(case, output, UNHELPFUL, CONSTANT, answer.said)
    elif answer.refusal == LOST and seen().constant:
        yield Tried(case, output, EQUAL, CONSTANT)
    else:
        yield Tried(case, output, answer.refusal, SELECTS if whole else "", answer.said)


def _compared(case: Case, seen: Seen, rows: list[int], answer: Answer) -> tuple[str, str]:
    """Whether the maps are the rows of the matrix."""
    if answer.output is None or not np.array_equal(answer.output[0, : len(rows)].numpy(), seen.y[rows]):
        return CHANGED, "the output is not that of the function"
    expected = EXPECTED[case.operation](case, seen) if case.operation in EXPECTED else None
    expected = seen.matrix() if expected is None else expected
    if expected is None:
        return WRONG, "it has a map, but no matrix is known"
    for maps, found in answer.maps.items():
        won = found[: len(rows), 0].numpy() + found[len(rows) :, 0].numpy()
        wrong = (np.abs(won - expected[rows]).sum(1) > 1e-6) & ~(seen.silent[rows] & ~won.any(1))
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            return WRONG, f"unit {rows[i]} gives {_shown(won[i])} and not {_shown(expected[rows[i]])} ({maps})"
    return EQUAL, ""


def _shown(row: np.ndarray) -> str:
    return "{" + ", ".join(f"{j}: {row[j]:.3g}" for j in np.flatnonzero(row)[:6]) + "}"


def _how(rules: list[str]) -> str:
    """The rules between the head and the layer."""
    rules = list(rules)
    for own in ("SignRouter", "Affine", "Tap"):
        rules.remove(own)
    return ", ".join(sorted(set(rules) - {"SignRouter"})) or COPY
