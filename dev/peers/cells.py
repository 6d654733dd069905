"""What stands in the cells: short words and numbers, the same on every machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.errors import NoRuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers.asking import Peer
    from torch import Tensor, nn

__all__ = ["NONE", "Row", "attempt", "error_cell", "mass_cell", "number", "same", "yes"]

NONE = "-"
NOTHING = 1e-5  # below this a difference is rounding, or a package's own stabiliser
TOLERANCE = 0.02  # numbers of the table may differ by so much, relatively, on another machine
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        question: what is asked of each package.
        check: finds the answer by running the package, or by reading what it declares.
        quick: whether the tests ask it too.
    """

    question: str
    check: Callable[[Peer], str]
    quick: bool = True


def yes(found: object) -> str:
    """Yes or no."""
    return "yes" if found else "no"


def number(value: float) -> str:
    """Three digits."""
    text = f"{value:.3g}"
    return re.sub(r"e([+-])0*(\d+)", lambda found: "e" + found[1].strip("+") + found[2], text)


def error_cell(found: Tensor, expected: Tensor) -> str:
    """The largest difference, in units of the largest value there should be."""
    difference = float((found - expected).abs().max() / expected.abs().max())
    return "exact" if difference < NOTHING else number(difference)


def mass_cell(found: Tensor) -> str:
    """How much of a signal of 1 arrived, and whether any of it is below 0, which no probability can be."""
    mass = float(found.sum())
    cell = "1" if abs(mass - 1) < NOTHING else number(mass)
    return f"{cell}, some negative" if float(found.min()) < -NOTHING else cell


def attempt(ask: Callable[[], str], network: nn.Module | None = None) -> str:
    """The answer; or how the package fails, and whether it tells which part of the network it has no rule for."""
    try:
        return ask()
    except NoRuleError as error:
        return f"refused: {_named(str(error), network) or error}"
    except Exception as error:  # noqa: BLE001 - whatever a package raises is what is asked here
        part = _named(str(error), network)
        return f"refused: {part}" if part else type(error).__name__


def _named(message: str, network: nn.Module | None) -> str | None:
    """The kind of module that a message names."""
    kinds = {type(module).__name__ for module in network.modules()} if network is not None else set()
    return next((kind for kind in sorted(kinds) if re.search(rf"\b{kind}\b", message)), None)


def same(one: str, other: str) -> bool:
    """Whether two cells say the same; their numbers may differ in the last digit."""
    numbers = [[float(found) for found in NUMBER.findall(cell)] for cell in (one, other)]
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in zip(*numbers, strict=True))
