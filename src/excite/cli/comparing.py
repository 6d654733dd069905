"""What commands share that compare methods, on one classifier or several: their options, and loading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.options import MODEL_HELP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.models import Classifier

__all__ = [
    "AsJson",
    "Data",
    "Layers",
    "Limit",
    "Methods",
    "Models",
    "Out",
    "Skip",
    "Split",
    "WithPage",
    "load_all",
]

Data = Annotated[
    Path, typer.Option(help="The folder of annotated pictures: ImageNet, VOC, COCO, or your own in their format.")
]
Split = Annotated[str | None, typer.Option(help="Which part of the data; its validation pictures if none.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", help=f"{MODEL_HELP} May be given several times. efficientnet-lite0 if none."),
]
Methods = Annotated[
    str, typer.Option(metavar="A,B,...", help="What to compare: names of `excite ls methods`, or `all`.")
]
Layers = Annotated[
    list[str] | None,
    typer.Option("--layer", help="Read all methods here, may be given several times; each where it should be if none."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Use at most so many pictures.")]
Skip = Annotated[int, typer.Option(min=0, help="Leave out so many pictures first.")]
Out = Annotated[Path, typer.Option(help="The folder for results; a run that was stopped goes on there.")]
WithPage = Annotated[bool, typer.Option("--page/--no-page", help="Whether to make a page with figures.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def load_all(
    names: Sequence[str] | None,
    weights: str | None,
    labels: str | None,
    size: int | None,
    fully_convolutional: bool | None,
) -> list[Classifier]:
    """The classifiers, all before the first is asked; those of one name are called as they were asked for.

    Example:
        >>> [classifier.name for classifier in load_all(None, None, None, None, None)]
        ['efficientnet-lite0']
    """
    from excite.errors import ModelError
    from excite.models import Choice

    choices = [Choice(name, weights, labels, size, fully_convolutional) for name in names or [Choice().model]]
    if len(choices) > 1 and (weights or labels):
        raise ModelError("--weights and --labels are for one --model: give several as files or folders of their own")
    found = [choice.load() for choice in choices]
    calls = [classifier.name for classifier in found]
    alike = len(set(calls)) < len(calls)
    return [replace(one, name=choice.model) for one, choice in zip(found, choices, strict=True)] if alike else found
