"""The documentation page of the conservation benchmark, in Markdown."""

from __future__ import annotations

from collections import Counter
from operator import sub
from statistics import median
from typing import TYPE_CHECKING, Any

from conservation.run import CAUSES, STATUSES, versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


FAR = {"mwp": 1e-4, "c-mwp": 1e-2}  # of a map's own L1 norm: a row beyond it needs an explanation
COLUMNS = {"mwp": "float32", "c-mwp": "contrast in float32"}

TableRow = dict[str, Any]


def gap_of(row: Mapping[str, Any]) -> TableRow | None:
    """The rounding error of a row at the default layer, or else at the lowest; None without one."""
    rounding: Mapping[str, TableRow] = row.get("rounding") or {}
    return rounding.get("default") or rounding.get("lowest")


def over_the_bound(row: Mapping[str, Any]) -> list[str]:
    """Why the maps of a row in float32 differ from those in double precision; empty if they do not.

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
    lines = []
    if gap["mwp"] > FAR["mwp"]:
        lines.append(
            f"float32: a unit of nearly 0 turned round, or another child won a pooling, above `{gap['layer']}`"
        )
    elif gap["c-mwp"] > FAR["c-mwp"]:
        left = f"only {gap['contrast']:.0e} of the signal is left at `{gap['layer']}`, the rest cancelled"
        lines.append(f"float32: of the contrast {left}")
    if gap["moved"] > 0:
        lines.append(f"float32: the point moves to a place with {gap['moved']:.0e} less")
    return lines


def record(rows: Sequence[Mapping[str, Any]]) -> TableRow:
    """Worst and median rounding error over all rows that have one, and the model of the worst.

    Example:
        >>> gap = {"layer": "a", "moved": 0.0, "mwp": 2e-7, "c-mwp": 3e-5, "contrast": 0.1}
        >>> record([{"model": "m", "source": "timm", "rounding": {"default": gap}}])["mwp"]
        {'worst': 2e-07, 'median': 2e-07, 'worst_model': 'm (timm)', 'bound': 0.0001, 'over_the_bound': 0}
    """
    gaps = [(gap, f"{row['model']} ({row['source']})") for row in rows if (gap := gap_of(row)) is not None]
    found: TableRow = {"architectures": len(gaps)}
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
    """`record` in a few sentences."""
    found = record(rows)
    if not found["architectures"]:
        return "None was measured."
    plain, contrast = found["mwp"], found["c-mwp"]
    return (
        f"Over {found['architectures']} networks the median is {plain['median']:.0e} for MWP and "
        f"{contrast['median']:.0e} for c-MWP, the worst {plain['worst']:.0e} ({plain['worst_model']}) and "
        f"{contrast['worst']:.0e} ({contrast['worst_model']}). With random weights most units win for every class, "
        f"so little of a contrast is left to compare. {plain['over_the_bound']} and {contrast['over_the_bound']} lie "
        f"over the bounds of {plain['bound']:.0e} and {contrast['bound']:.0e}, and say why; the point moves in "
        f"{found['points_moved']}."
    )


INTRODUCTION = """# Architectures

Which networks can be explained, and how much of the top-down signal arrives? Made by

    python dev/conservation --seed {seed} --markdown docs/reference/architectures.md

with {versions}.

Each network has random weights: scales of norms, layers and branches between 0.5 and 1.5, a third of them negative;
biases and shifts are 0. A signal of 1 goes down from the class with the largest logit, from the class with the smallest
one, and from their dual units.

| status | networks | |
|---|---|---|
{counts}

- **mass**: what arrives at the lowest map that all of the signal must pass; of all signals the worst case.
- **default**: the same at the default layer. In brackets where a part of the signal goes
  another way, so that less than 1 is right.
- **contrast**: the sum of the contrastive map, which is 0 where everything arrives.
- **folded**: how far the map moves (L1) when the scales of batch norms are put into the weights of the convolutions
  before them. That leaves the network the same function, so the map must stay. Empty where there is no such pair.
- **float32**, **contrast in float32**: how far the maps of the default layer (MWP, c-MWP) are from those of the same
  weights in double precision: the L1 distance, of the exact map's own L1 norm. {rounding}
- **biases**: the mass with random biases, shifts and running means. A unit that only its bias excites has
  no child that takes its probability.

In every row that is not *wrong*, the output is that of the plain network to the bit (run with gradients or without:
torch has other kernels for attention then, which round otherwise), no probability is negative, and
the network is left as it was found.

What is lost, and why:

{causes}
"""

MEANING = {
    "conserved": "all of it arrives, within 1e-4",
    "kept": "at least 0.9 arrives",
    "lost": "less than 0.9 arrives",
    "refused": "an operation on the way has no rule, and is named",
    "wrong": "negative or too much mass, other values, or a crash",
}


def page(rows: Sequence[Mapping[str, Any]], seed: int) -> str:
    """The page in Markdown; the same rows give the same page.

    Example:
        >>> row = {"source": "timm", "family": "vit", "model": "vit_tiny", "status": "refused", "reason": "no rule"}
        >>> page([row], seed=0).splitlines()[-1]
        '| vit | vit_tiny (timm) | refused |  |  |  |  |  |  |  | no rule |'
    """
    counted = Counter(row["status"] for row in rows)
    counts = "\n".join(f"| {status} | {counted[status]} | {MEANING[status]} |" for status in STATUSES)
    causes = "\n".join(f"- **{cause}**: {text}" for cause, text in CAUSES.items())
    packages = ", ".join(f"{name} {number}" for name, number in versions().items())
    words = in_words(rows)
    head = INTRODUCTION.format(seed=seed, versions=packages, counts=counts, causes=causes, rounding=words)
    ordered = sorted(rows, key=lambda row: (row["family"].lower(), row["source"], row["model"]))
    cells = [columns(row) for row in ordered]
    names = list(cells[0]) if cells else []
    table = [names, ["---"] * len(names), *(list(cell.values()) for cell in cells)]
    return head + "\n" + "\n".join("| " + " | ".join(line) + " |" for line in table) + "\n"


def columns(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of the table."""
    lowest, default, gap = row.get("lowest"), row.get("default"), gap_of(row)
    folded, biased = row.get("turned"), row.get("biased")
    return {
        "family": row["family"],
        "model": f"{row['model']} ({row['source']})",
        "status": row["status"],
        "mass": _mass(lowest),
        "default": _mass(default) if default is None or default["whole"] else f"({_mass(default)})",
        "contrast": "" if lowest is None else f"{max(map(abs, map(sub, lowest['mass'], lowest['dual']))):.0e}",
        "folded": "" if folded is None else f"{folded:.0e}",
        **{column: "" if gap is None else f"{gap[name]:.0e}" for name, column in COLUMNS.items()},
        "biases": "" if biased is None else f"{biased:.3f}",
        "what is lost, rounded away or refused, and why": _words(row),
    }


def _mass(reading: Mapping[str, Any] | None) -> str:
    """The mass of all signals that is farthest from 1."""
    if reading is None:
        return ""
    return f"{max((*reading['mass'], *reading['dual']), key=lambda mass: abs(mass - 1)):.5f}"


def _words(row: Mapping[str, Any]) -> str:
    if "crash" in row:
        return str(row["crash"])
    if "reason" in row:
        return str(row["reason"]).partition(": read a layer above")[0]
    lost = row.get("lost") or {}
    lines = [
        f"{cause} {share:.4f}" + (f" (most in `{place}`)" if place else "") for cause, (share, place) in lost.items()
    ]
    return "; ".join([*lines, *over_the_bound(row)])
