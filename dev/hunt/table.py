"""The page about all functions of torch: what excite makes of each, found by trying it."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from hunt.asking import LOST, REFUSED
from hunt.functions import CONSTANT, COPY, NO_TENSOR, SELECTS, hunt_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hunt.functions import Tried
    from hunt.samples import Function

__all__ = ["SAMPLES", "differences", "page", "rows"]

SAMPLES = 3  # of each function
WRONG = "known mistakes"
SOME = "*"  # behind a name: some uses are refused
# Groups in the order of the page, each with what it means; a rule that is not here gets a group of its own.
MEANING = {
    "Affine": "the children compete in proportion to their excitation (Eqn. 10)",
    "Affine, Sum": "a weighted sum, and a sum",
    "Sum": "the terms share by what each added",
    "Pass": "one child takes all",
    "ProductRule": "the factors have half each",
    COPY: "each result is one of the inputs: torch's gradient is the matrix",
    REFUSED: "`NoRuleError`, with the name of the function and the module",
    SELECTS: "integers or truth values: may be an index, a condition or a mask; as values they are refused",
    CONSTANT: "depends on no value of its input",
    NO_TENSOR: "gives no tensor",
    WRONG: "to be mended",
}
TEXT = """# Torch's functions, and what excite makes of each

Found by `python dev/hunt table --write` for torch {version}: {count} functions of `torch`, `torch.nn.functional`,
`torch.special`, `torch.linalg`, `torch.fft` and methods of tensors. Each gets small arguments, mostly those of torch's
own tests, and stands between a layer and a linear head. A map counts only if it equals a transition matrix that is
computed by brute force from the function's values ([`dev/hunt/matrices.py`](../dev/hunt/matrices.py)) or, for the few
with a rule that values do not tell, stands in [`dev/hunt/expected.py`](../dev/hunt/expected.py). Methods, in-place and
`out=` variants, keywords and aliases of a function are tried with it.

A function stands where it belongs if its first argument is the activation. `{some}`: some uses of it are refused, such
as other options, or activations as other arguments. `F.` is `torch.nn.functional`. Which rule a function gets is
decided by [the table of operations](mechanism.md#the-table-of-operations).
"""


def rows(functions: Iterable[Function]) -> Iterator[tuple[str, str]]:
    """For each function its name on the page and its group."""
    for name, variants in groupby(functions, key=lambda function: function.name):
        tried = [one for function in variants for one in hunt_function(function, SAMPLES)]
        if tried:
            group, some = _group(tried)
            yield _short(name) + (SOME if some else ""), group


def _short(name: str) -> str:
    return name.replace("nn.functional.", "F.")


def _group(tried: list[Tried]) -> tuple[str, bool]:
    """Where a function stands, and whether some of its uses are refused although others are not."""
    if any(one.found for one in tried):
        return WRONG, False
    first = [one for one in tried if one.case.live == (0,) and not (one.output or one.case.spelled)] or tried
    kinds = {one.how or REFUSED for one in first if one.verdict != LOST}
    kind = next((each for each in MEANING if each in kinds), None) or min(kinds)
    refused = any(one.verdict == REFUSED for one in tried)
    return kind, refused and kind not in {REFUSED, SELECTS}


def page(made: Mapping[str, str]) -> str:
    """The page as Markdown."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, group in made.items():
        groups[group].append(name)
    order = [*MEANING, *sorted(set(groups) - set(MEANING))]
    text = [TEXT.format(version=_version(), count=len(made), some=SOME)]
    for group in order:
        if group in groups:
            names = ", ".join(f"`{name}`" for name in sorted(groups[group], key=str.lower))
            lines = textwrap.fill(names, 150, break_long_words=False, break_on_hyphens=False)
            text.append(f"## {group.capitalize() if group.islower() else group}\n\n{_meaning(group)}.\n\n{lines}\n")
    return "\n".join(text)


def _meaning(group: str) -> str:
    meaning = MEANING.get(group, "made of several rules")
    return meaning[0].upper() + meaning[1:]


def _version() -> str:
    return torch.__version__.partition("+")[0]


def differences(text: str, made: Mapping[str, str]) -> list[str]:
    """What the page says otherwise of some functions; nothing can be said of the page of another torch."""
    version = re.search(r"for torch ([\w.]+):", text)
    if version is None or version[1] != _version():
        return [f"the page is about torch {version and version[1]}, and this is {_version()}"]
    written = {}
    for section in text.split("\n## ")[1:]:
        group, _, body = section.partition("\n")
        names = re.findall(r"`([^`]+)`", body.split("\n\n", 2)[2])
        written.update(dict.fromkeys(names, group.lower()))
    return [
        f"{name}: {group}, not {written.get(name, 'there')}"
        for name, group in made.items()
        if written.get(name) != group.lower()
    ]
