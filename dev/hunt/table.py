"""The page about all functions of torch: what excite makes of each, found by trying it."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from hunt.asking import REFUSED
from hunt.functions import CONSTANT, COPY, NO_TENSOR, SELECTS, hunt_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hunt.functions import Tried
    from hunt.samples import Function

__all__ = ["SAMPLES", "differences", "page", "row", "rows"]

SAMPLES = 3  # of each function
WRONG = "known mistakes"
SOME = "*"  # behind a name: some uses are refused
# What the groups mean, in the order of the page.
MEANING = {
    "Affine": "the children compete in proportion to their excitation (Eqn. 10)",
    "Mixing": "the values share by what each added, with weights that the image decides; those get nothing",
    "Sum": "the terms share by what each added",
    "Pass": "one child takes all",
    "ProductRule": "the factors have half each",
    COPY: "each result is one of the inputs, and torch's gradient is the matrix",
    REFUSED: "a NoRuleError has the name of the function and of the module that called it",
    SELECTS: "integers or truth values, which may be indices, conditions or masks; as values they are refused",
    CONSTANT: "depends on no value of its input",
    NO_TENSOR: "gives no tensor",
    WRONG: "to be mended",
}
TEXT = """# Torch's functions, and what excite makes of each

Found by `python dev/hunt table --write` for torch {version}: {count} functions of `torch`, `torch.nn.functional`,
`torch.special`, `torch.linalg`, `torch.fft` and methods of tensors. Each gets small arguments, mostly those of torch's
own tests, and stands between a layer and a linear head. A map counts only if it equals a transition matrix that is
computed by brute force from the function's values ([`dev/hunt/matrices.py`](../../dev/hunt/matrices.py)) or, for the
few with a rule that values do not tell, stands in [`dev/hunt/expected.py`](../../dev/hunt/expected.py). Methods,
in-place and `out=` variants, keywords and aliases of a function are tried with it.

`{some}`: some uses are refused, such as other options, or activations as other arguments. `F.` is
`torch.nn.functional`. Which rule a function gets is decided by
[the table of operations](../mechanism.md#the-table-of-operations).
"""


SEVERAL = """## Several rules

Which one depends on the arguments that are activations: the sum of an activation and a constant has one child, the sum
of two activations is shared.
"""


def rows(functions: Iterable[Function]) -> Iterator[tuple[str, str]]:
    """For each function its name on the page and its group; variants of a function follow each other."""
    for name, variants in groupby(functions, key=lambda function: function.name):
        tried = [one for function in variants for one in hunt_function(function, SAMPLES)]
        if tried:
            yield row(name, tried)


def row(name: str, tried: Sequence[Tried]) -> tuple[str, str]:
    """The name of a function on the page, and its group."""
    short = name.replace("nn.functional.", "F.")
    if any(one.found for one in tried):
        return short, WRONG
    plain = [one for one in tried if not (one.output or one.case.spelled)] or tried
    kinds = {kind for one in plain for kind in one.how.split(", ") if kind}
    maps = kinds - {SELECTS, CONSTANT, NO_TENSOR}
    if not maps:
        return short, min(kinds, default=REFUSED)
    some = SOME if any(one.verdict == REFUSED for one in tried) else ""
    return short + some, " or ".join(sorted(maps, key=list(MEANING).index))


def page(made: Mapping[str, str]) -> str:
    """The page as Markdown."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, group in made.items():
        groups[group].append(name)
    text = [TEXT.format(version=_version(), count=len(made), some=SOME)]
    for group, meaning in MEANING.items():
        if group in groups:
            names = _listed(groups[group])
            text.append(f"## {group[0].upper()}{group[1:]}\n\n{meaning[0].upper()}{meaning[1:]}.\n\n{names}\n")
        if group == COPY:
            several = sorted(group for group in groups if group not in MEANING)
            text += [SEVERAL, *(_listed(groups[group], f"- {group}: ") for group in several), ""]
    return "\n".join(text)


def _listed(names: Iterable[str], before: str = "") -> str:
    quoted = ", ".join(f"`{name}`" for name in sorted(names, key=str.lower))
    indent = "  " if before else ""
    return textwrap.fill(before + quoted, 150, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _version() -> str:
    return torch.__version__.partition("+")[0]


def differences(text: str, made: Mapping[str, str]) -> list[str]:
    """What the page says otherwise of some functions; nothing can be said of the page of another torch."""
    version = re.search(r"for torch ([\w.]+):", text)
    if version is None or version[1] != _version():
        return [f"the page is about torch {version and version[1]}, and this is {_version()}"]
    written = {}
    for section in text.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        for part in body.split("\n- ") if heading == "Several rules" else [f"{heading}: {body}"]:
            group, _, names = part.partition(": ")
            written.update(dict.fromkeys(re.findall(r"`([^`]+)`", names), group.lower()))
    return [
        f"{name}: {group}, not {written.get(name, 'there')}"
        for name, group in made.items()
        if written.get(name) != group.lower()
    ]
