"""The card of a tag classifier: what it is and how it came about, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["card"]

OPTIONS = ("layers", "first", "epochs", "batch", "rate", "momentum", "held_out", "checks", "views", "seed")

USE = (
    "The network is {base}. Every command of excite takes this folder as `--model`: "
    "`excite attend PHOTO TAG --model FOLDER`. Several tags may be true of a picture at once."
)
MEASURED = (
    "On {measured:,} pictures kept aside, over the {tags_measured:,} tags that occur in them. "
    "Predicting by frequency gives every picture the same score for a tag."
)


def card(base: str, tags: int, facts: Mapping[str, Any], command: str) -> str:
    """The text of ``README.md``, in Markdown.

    Args:
        base: the network.
        tags: how many it knows.
        facts: the training facts, as in ``classifier.json``.
        command: how it was trained, as typed; nothing where nobody typed it.

    Example:
        >>> text = card("efficientnet-lite0", 2, {"corpus": "kept.parquet", "pictures": 10}, "")
        >>> text.splitlines()[0]
        '# A classifier of 2 tags'
    """
    parts = [
        f"# A classifier of {tags:,} tags",
        USE.format(base=base),
        "## What it was trained on",
        _list(_data(facts)),
        "## How",
        _list([f"{name.replace('_', ' ')}: {facts[name]}" for name in OPTIONS if name in facts] + _course(facts)),
        *([f"```sh\n{command}\n```"] if command else []),
        *_measures(facts),
        "## Files",
        _list(
            [
                "`classifier.json` and `weights.safetensors`: the classifier",
                "`dictionary.csv`: its tags in the order of its outputs, and how often each was seen",
                "`curves.csv`: the losses while it was trained",
                *(["`measures.csv`: how well each tag is predicted"] if facts.get("map") is not None else []),
            ]
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _data(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"corpus: {facts['corpus']}", f"pictures learnt from: {facts['pictures']:,}"]
    if "dictionary" in facts:
        lines.append(f"dictionary: {facts['dictionary']}")
    lines += [f"rows left out, {reason}: {count:,}" for reason, count in facts.get("left_out", {}).items()]
    if facts.get("unreadable"):
        lines.append(f"pictures that could not be read: {facts['unreadable']:,}")
    return lines


def _course(facts: Mapping[str, Any]) -> list[str]:
    if "steps" not in facts:
        return []
    loss = facts["validation_loss"]
    aside = "" if loss is None else f", on pictures kept aside {loss:.4f}"
    return [f"{facts['steps']:,} steps, {facts['epochs_seen']:g} epochs; loss {facts['loss']:.4f} a picture{aside}"]


def _measures(facts: Mapping[str, Any]) -> list[str]:
    if facts.get("map") is None:
        return []
    rows = [
        f"| {truth} | {facts[f'map{end}']:.4f} | {facts[f'map_by_frequency{end}']:.4f} | {facts[f'ratio{end}']:.1f} x |"
        for truth, end in (("all tags of the dictionary", ""), (f"the first {facts['first']} tags", "_first"))
    ]
    table = ["| truth | mean average precision | by frequency | ratio |", "|---|---|---|---|", *rows]
    return [
        "## How good it is",
        MEASURED.format(**facts),
        "\n".join(table),
        "Best: " + _tags(facts["best"]),
        "Worst: " + _tags(facts["worst"]),
    ]


def _tags(some: Mapping[str, float]) -> str:
    return ", ".join(f"{tag} {precision:.2f}" for tag, precision in some.items())


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
