"""Matrices that cannot be told from values: functions with a documented rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from hunt.matrices import Seen
    from hunt.samples import Case

    Expected = Callable[[Case, Seen], np.ndarray | None]

__all__ = ["CONSTANTS", "EXPECTED", "MEMORY", "composed"]

MEMORY = frozenset("empty_like new_empty new_empty_strided".split())  # they give whatever lies in memory
CONSTANTS = frozenset(
    "zeros_like ones_like full_like rand_like randn_like new_zeros new_ones new_full".split()
)  # never refused


def composed(case: Case) -> bool:
    """Several operations with neurons between them, which no single matrix describes: tested in test_attention.py."""
    constant_values = case.operation == "scaled_dot_product_attention" and 2 not in case.live
    return constant_values or case.operation == "multi_head_attention_forward"


def own(case: Case, seen: Seen) -> np.ndarray | None:
    """Each unit's own input takes all: what the others do to it only scales."""
    return np.eye(len(seen.x)) if case.live == (0,) else None


def slopes(_case: Case, seen: Seen) -> np.ndarray | None:
    """The gradient is the distribution: of logsumexp; and a choice between values and constants has one or no child."""
    return seen.slopes


def bounds(case: Case, seen: Seen) -> np.ndarray | None:
    """Between activations as bounds the one that is copied takes all: as of the larger and the smaller of two."""
    return None if case.live == (0,) else slopes(case, seen)


def factors(case: Case, _seen: Seen) -> np.ndarray | None:
    """Both are needed: half each. The one that is broadcast is a gate: then the other takes all."""
    if len(case.given) != 2:
        return None
    left, right = (each.numel() for each in case.given)
    return _shared(case, (0.5, 0.5) if left == right else (float(left > right), float(left < right)))


def numerator(case: Case, _seen: Seen) -> np.ndarray | None:
    """A divisor only scales."""
    return _shared(case, (1.0, 0.0)) if len(case.given) == 2 else None


def numerator_second(case: Case, _seen: Seen) -> np.ndarray | None:
    """``__rdiv__`` has the divisor first."""
    return _shared(case, (0.0, 1.0)) if len(case.given) == 2 else None


def product_added(case: Case, seen: Seen) -> np.ndarray | None:
    """``addcmul``: the sum of the first and a product, whose factors have half each, or all beside a gate."""
    if len(case.given) != 3:
        return None
    first, left, right = (each.numel() for each in case.given)
    start = case.given[0].numpy()
    added = np.broadcast_to(start, _shape(case)).reshape(-1)
    product = seen.y - added
    up = np.where(seen.y >= 0, 1, -1)
    terms = np.maximum(np.stack([added, product]) * up, 0)
    share = terms / np.where(terms.sum(0) > 0, terms.sum(0), 1)
    halves = (0.5, 0.5) if left == right else (float(left > right), float(left < right))
    rows = _shared(case, (1.0, *halves))
    rows[:, :first] *= share[0][:, None]
    rows[:, first:] *= share[1][:, None]
    return rows


def weighed(case: Case, seen: Seen) -> np.ndarray | None:
    """Weights made of the image (dynamic convolutions) weigh the units of the input; a bias is one more term."""
    if case.live in {(0,), (1,)}:
        return np.stack([seen.competition(i) for i in range(len(seen.y))])
    if case.live[:2] != (0, 1):
        return None
    inputs, weights = (each.numel() for each in case.given[:2])
    rows = np.zeros_like(seen.slopes)
    for i, row in enumerate(seen.slopes):
        pushes = row[:inputs] * seen.x[:inputs]
        terms = np.array([pushes.sum(), seen.y[i] - pushes.sum()])
        shares = np.maximum(terms * np.sign(seen.y[i]), 0) / np.maximum(terms * np.sign(seen.y[i]), 0).sum()
        pushes = np.maximum(pushes * np.sign(terms[0]), 0)
        rows[i, :inputs] = shares[0] * pushes / max(pushes.sum(), 1e-30)
        rows[i, inputs + weights :] = shares[1] * row[inputs + weights :]
    return rows


def mixed(case: Case, seen: Seen) -> np.ndarray | None:
    """Attention: the values take all, by what each added; queries and keys only decide how much that is."""
    values = np.concatenate([np.full(each.numel(), at == 2) for at, each in zip(case.live, case.given, strict=True)])
    return np.stack([replace(seen, x=seen.x * values).competition(i) for i in range(len(seen.y))])


def _shared(case: Case, shares: tuple[float, ...]) -> np.ndarray:
    """A share for each argument, broadcast to the results."""
    sizes = [each.numel() for each in case.given]
    shape = _shape(case)
    rows = np.zeros((int(np.prod(shape)), sum(sizes)))
    for k, (each, share) in enumerate(zip(case.given, shares, strict=True)):
        places = np.broadcast_to(np.arange(sizes[k]).reshape(each.shape), shape).reshape(-1)
        rows[np.arange(len(rows)), sum(sizes[:k]) + places] = share
    return rows


def _shape(case: Case) -> tuple[int, ...]:
    return np.broadcast_shapes(*(tuple(each.shape) for each in case.given))


def _named(names: str, expected: Expected) -> dict[str, Expected]:
    return dict.fromkeys(names.split(), expected)


EXPECTED: dict[str, Expected] = {
    **_named("softmax softmin log_softmax rrelu", own),
    **_named("local_response_norm batch_norm instance_norm group_norm layer_norm rms_norm normalize", own),
    **_named("logsumexp max min maximum minimum", slopes),
    **_named("clamp clip clamp_min clamp_max", bounds),
    **_named("mul multiply __rmul__", factors),
    **_named("div divide true_divide", numerator),
    **_named("__rdiv__", numerator_second),
    **_named("addcmul", product_added),
    **_named("scaled_dot_product_attention", mixed),
    **_named("linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", weighed),
}
