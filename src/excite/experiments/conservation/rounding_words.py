"""What the gaps between single and double precision mean, in words and as a record."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["FAR", "gap_of", "in_float32", "in_words", "over_the_bound", "record"]

FAR = {"mwp": 1e-4, "c-mwp": 1e-2}  # of a map's own L1 norm: a row beyond it needs an explanation
COLUMNS = {"mwp": "float32", "c-mwp": "contrast in float32"}

Row = dict[str, Any]


def gap_of(row: Mapping[str, Any]) -> Row | None:
    """The gap of a row of the benchmark at the layer that is read unasked, or else at the lowest; None: no gap.

    Example:
        >>> gap_of({"rounding": {"default": {"layer": "a", "mwp": 1e-7}}})
        {'layer': 'a', 'mwp': 1e-07}
    """
    rounding: Mapping[str, Row] = row.get("rounding") or {}
    return rounding.get("default") or rounding.get("lowest")


def in_float32(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row.

    Example:
        >>> in_float32({"rounding": {"default": {"layer": "a", "mwp": 2e-7, "c-mwp": 3e-5}}})
        {'float32': '2e-07', 'contrast in float32': '3e-05'}
    """
    gap = gap_of(row)
    return {column: "" if gap is None else f"{gap[name]:.0e}" for name, column in COLUMNS.items()}


def over_the_bound(row: Mapping[str, Any]) -> list[str]:
    """What is to be said of a row: nothing, or why its maps in float32 are not those of double precision.

    Example:
        >>> gap = {"layer": "a", "moved": 0.0, "mwp": 2e-7, "c-mwp": 0.02, "contrast": 1e-5}
        >>> over_the_bound({"rounding": {"default": gap}})
        ['float32: of the contrast only 1e-05 of the signal is left at `a`, the rest cancelled']
    """
    refused = (row.get("rounding") or {}).get("reason")
    if refused:
        return [f"no float64 to compare with: {refused}"]
    gap = gap_of(row)
    if gap is None:
        return []
    said = []
    if gap["mwp"] > FAR["mwp"]:
        said.append(f"float32: a unit of nearly 0 turned round, or another child won a pooling, above `{gap['layer']}`")
    elif gap["c-mwp"] > FAR["c-mwp"]:
        left = f"only {gap['contrast']:.0e} of the signal is left at `{gap['layer']}`, the rest cancelled"
        said.append(f"float32: of the contrast {left}")
    if gap["moved"] > 0:
        said.append(f"float32: the point moves to a place with {gap['moved']:.0e} less")
    return said


def record(rows: Sequence[Mapping[str, Any]]) -> Row:
    """Worst and median gap over all rows that have one, and where the worst is.

    Example:
        >>> gap = {"layer": "a", "moved": 0.0, "mwp": 2e-7, "c-mwp": 3e-5, "contrast": 0.1}
        >>> record([{"model": "m", "source": "timm", "rounding": {"default": gap}}])["mwp"]
        {'worst': 2e-07, 'median': 2e-07, 'worst_model': 'm (timm)', 'bound': 0.0001, 'over_the_bound': 0}
    """
    gaps = [(gap, f"{row['model']} ({row['source']})") for row in rows if (gap := gap_of(row)) is not None]
    found: Row = {"architectures": len(gaps)}
    for name, bound in FAR.items():
        if gaps:
            worst, model = max(gaps, key=lambda each: each[0][name])
            found[name] = {
                "worst": worst[name],
                "median": median(gap[name] for gap, _ in gaps),
                "worst_model": model,
                "bound": bound,
                "over_the_bound": sum(gap[name] > bound for gap, _ in gaps),
            }
    found["points_moved"] = sum(gap["moved"] > 0 for gap, _ in gaps)
    found["without_float64"] = [
        f"{row['model']} ({row['source']})" for row in rows if "reason" in (row.get("rounding") or {})
    ]
    return found


def in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same in a few sentences.

    Example:
        >>> in_words([])
        'None was measured.'
    """
    found = record(rows)
    if not found["architectures"]:
        return "None was measured."
    plain, contrast = found["mwp"], found["c-mwp"]
    return (
        f"Over {found['architectures']} networks the median is {plain['median']:.0e} for MWP and "
        f"{contrast['median']:.0e} for c-MWP, the worst {plain['worst']:.0e} ({plain['worst_model']}) and "
        f"{contrast['worst']:.0e} ({contrast['worst_model']}). Random weights make nearly everybody a common winner, "
        f"so little of a contrast is left to compare. {plain['over_the_bound']} and {contrast['over_the_bound']} lie "
        f"over the bounds of {plain['bound']:.0e} and {contrast['bound']:.0e}, and say why; the point moves in "
        f"{found['points_moved']}."
    )
