"""What the thresholds of a cleaning cost: what would be kept if one of them were another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from excite.tags.cleaning.rules import Rules

__all__ = ["Choice", "choices_of", "dictionaries", "markdown"]

LEAST_TAGS = (1, 3, 5, 8, 10, 15)
OVERLAPS = (2, 3, 4)
LEAST_COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000)


@dataclass(frozen=True)
class Choice:
    """Other rules, and what is different about them."""

    name: str
    rules: Rules


def choices_of(rules: Rules) -> list[Choice]:
    """The rules with one threshold after the other changed; the first are the rules as they are.

    Example:
        >>> from excite.tags.cleaning.rules import Rules
        >>> [choice.name for choice in choices_of(Rules())][:3]
        ['as asked', 'at least 1 tags', 'at least 3 tags']
    """
    choices = [Choice("as asked", rules)]
    choices += [Choice(f"at least {least} tags", replace(rules, least_tags=least)) for least in LEAST_TAGS]
    said = "alphabetical lists kept" if rules.alphabetical else "alphabetical lists dropped"
    choices.append(Choice(said, replace(rules, alphabetical=not rules.alphabetical)))
    if rules.similar:
        choices.append(Choice("similar ones kept", replace(rules, similar=False)))
        shared = [overlap for overlap in OVERLAPS if overlap < rules.first]
        choices += [Choice(f"more than {overlap} shared", replace(rules, overlap=overlap)) for overlap in shared]
        other = "kept" if rules.against == "seen" else "seen"
        choices.append(Choice(f"compared with {other} ones", replace(rules, against=other)))
    return [choices[0], *(choice for choice in choices[1:] if choice.rules != rules)]


def dictionaries(counts: NDArray[np.int64], least_count: int) -> list[dict[str, Any]]:
    """How many tags would be in a dictionary, and which share of all listed tags, for several least counts.

    Example:
        >>> import numpy as np
        >>> dictionaries(np.array([5000, 20, 1]), 1000)[-3]
        {'least_count': 1000, 'tags': 1, 'share_of_listed': 0.9958}
    """
    listed = max(int(counts.sum()), 1)
    rows = []
    for least in sorted({*LEAST_COUNTS, least_count}):
        inside = counts[counts >= max(least, 1)]
        rows.append(
            {"least_count": least, "tags": len(inside), "share_of_listed": round(int(inside.sum()) / listed, 4)}
        )
    return rows


def markdown(report: dict[str, Any]) -> str:
    """Both tables as a page to read.

    Example:
        >>> row = {"choice": "as asked", "kept": 6, "few_tags": 1, "alphabetical": 2, "similar": 1}
        >>> size = {"least_count": 1000, "tags": 1, "share_of_listed": 0.5}
        >>> print(markdown({"read": 10, "pictures": [row], "dictionary": [size]}))  # doctest: +ELLIPSIS
        # What the thresholds cost...
    """
    lines = [f"# What the thresholds cost\n\nOf {report['read']:,} pictures are kept, if one rule is changed:\n"]
    lines += ["| rule | kept | share | too few tags | alphabetical | similar |", "|---|---:|---:|---:|---:|---:|"]
    for row in report["pictures"]:
        numbers = " | ".join(f"{row[rule]:,}" for rule in ("few_tags", "alphabetical", "similar"))
        lines.append(f"| {row['choice']} | {row['kept']:,} | {row['kept'] / report['read']:.1%} | {numbers} |")
    lines += ["\nThe dictionary, by how often a tag must be seen:\n", "| at least | tags | of all listed tags |"]
    lines.append("|---:|---:|---:|")
    lines += [
        f"| {row['least_count']:,} | {row['tags']:,} | {row['share_of_listed']:.1%} |" for row in report["dictionary"]
    ]
    return "\n".join(lines) + "\n"
