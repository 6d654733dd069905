"""Examples of an experiment to look at: which of its pictures, as the records tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from excite.jobs.ledger_init import Entry

__all__ = ["Example", "Rating", "best_of_each_kind"]


@dataclass(frozen=True)
class Example:
    """The objects of one category in one picture.

    Attributes:
        image: the picture's name.
        size: its width and height.
        category: what was to be found.
        share: how much of the picture that covers.
        maps: what the record tells of each method, the main one first.
    """

    image: str
    size: tuple[int, int]
    category: str
    share: float
    maps: tuple[Entry, ...]


Case = TypeVar("Case", bound=Example)
Rating = Callable[[Case, Sequence[bool]], float | None]
"""How good a case of its kind an example is (the lowest first), or None for what is no such case.

It also gets the successes: of the main method, and then of the others that can see.
"""


def best_of_each_kind(
    examples: Sequence[Case], successes: Sequence[Sequence[bool]], kinds: Mapping[str, Rating[Case]], each: int
) -> dict[str, list[Case]]:
    """The best examples of each kind: of a picture at most one, and the categories take turns.

    Args:
        examples: those to choose from.
        successes: for each of them, who succeeded: the main method first.
        kinds: for each heading what makes a good case.
        each: how many of each kind.

    Example:
        >>> examples = [Example(name, (90, 60), "cat", share, ()) for name, share in (("1", 0.5), ("2", 0.1))]
        >>> kinds = {"Small": lambda example, hits: example.share}
        >>> [example.image for example in best_of_each_kind(examples, [[], []], kinds, each=1)["Small"]]
        ['2']
    """
    taken: set[str] = set()
    chosen = {}
    for kind, rate in kinds.items():
        ratings = [(rate(*both), both[0]) for both in zip(examples, successes, strict=True)]
        rated = [(rating, example) for rating, example in ratings if rating is not None]
        chosen[kind] = _in_turns(rated, taken, each)
    return chosen


def _in_turns(rated: Iterable[tuple[float, Case]], taken: set[str], most: int) -> list[Case]:
    """First the best of each category, then the second best: a page of buses would not tell much."""
    turns: Counter[str] = Counter()
    waiting = []
    for _, example in sorted(rated, key=lambda pair: pair[0]):
        waiting.append((turns[example.category], example))
        turns[example.category] += 1
    chosen: list[Case] = []
    for _, example in sorted(waiting, key=lambda pair: pair[0]):
        if len(chosen) < most and example.image not in taken:
            chosen.append(example)
            taken.add(example.image)
    return chosen
