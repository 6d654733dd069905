"""``excite bench pointing``: the Pointing Game, on any classifier and data set."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.columns import print_columns
from excite.cli.failures import tell_failures
from excite.cli.options import MODEL_HELP, FullyConvolutional, LabelsFile, Size, Weights
from excite.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.benchmarks.pointing_tally import Run
    from excite.models import Choice, Classifier

__all__ = ["EXAMPLES", "command"]

EXAMPLES = """\b
Examples:
  excite bench pointing --data VOCdevkit/VOC2007 --split val --model head --limit 200
  excite bench pointing --data coco --model head --methods all --workers 2 --json
  excite bench pointing --data VOCdevkit --model head --model resnet-head --methods c-mwp,mwp,grad,center
  excite bench pointing --data VOCdevkit --model head --layer blocks.4 --layer blocks.10 --layer blocks.14
"""


def command(
    context: typer.Context,
    data: Annotated[
        Path, typer.Option(help="The folder of annotated pictures: VOC, COCO, or your own in their format.")
    ],
    split: Annotated[str | None, typer.Option(help="Which part of the data; its validation pictures if none.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"{MODEL_HELP} May be given several times. efficientnet-lite0 if none."),
    ] = None,
    weights: Weights = None,
    labels: LabelsFile = None,
    size: Size = None,
    fully_convolutional: FullyConvolutional = None,
    methods: Annotated[
        str, typer.Option(metavar="A,B,...", help="What to compare: names of `excite ls methods`, or `all`.")
    ] = "excite,c-mwp,mwp,center",
    layer: Annotated[
        list[str] | None,
        typer.Option(help="Read all methods here, may be given several times; each where it should be if none."),
    ] = None,
    difficult: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The Difficult subset as a list of pictures and categories; by the paper's rule if none.",
        ),
    ] = None,
    protocol: Annotated[str, typer.Option(help="Whose conventions: authors or torchray.")] = "authors",
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="How many pixels beside an object a point may lie; 15 for VOC and COCO if none."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use at most so many pictures.")] = None,
    skip: Annotated[int, typer.Option(min=0, help="Leave out so many pictures first.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="How many processes work at the same time.")] = 1,
    out: Annotated[Path, typer.Option(help="The folder for results; a run that was stopped goes on there.")] = Path(
        "excite-out/pointing"
    ),
    with_page: Annotated[bool, typer.Option("--page/--no-page", help="Whether to make a page with figures.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Does the maximum of each map lie on an object of the category that was asked for?

    Accuracy is counted for each category and averaged over categories, for all pairs of a picture and a category and
    for the difficult ones. Stopped and started again, it goes on where it was.
    """
    from excite.benchmarks.plots import check_plots
    from excite.benchmarks.pointing import PointingGame, chosen_methods
    from excite.benchmarks.pointing_protocol import find_protocol
    from excite.benchmarks.pointing_report import answer, failures, write_tables
    from excite.datasets import open_dataset
    from excite.datasets.difficult import read_difficult_list
    from excite.models import Choice

    if with_page:
        check_plots()
    names = chosen_methods(methods)
    rules = find_protocol(protocol, tolerance)
    dataset = open_dataset(data, split)
    subset = None if difficult is None else read_difficult_list(difficult, dataset)
    choices = [Choice(name, weights, labels, size, fully_convolutional) for name in model or [Choice().model]]
    runs = []
    for classifier in _loaded(choices):
        game = PointingGame(
            classifier, dataset, names, layers=layer, skip=skip, limit=limit, difficult=subset, protocol=rules
        )
        runs.append(game.run(list(progress(game.records(out, workers), len(game.tasks)))))
    written = write_tables(runs, out)
    if with_page:
        written.append(_page(runs, out, shlex.join(["excite", *context.obj])))
    if as_json:
        typer.echo(json.dumps(answer(runs)))
    else:
        _print(runs, written)
    tell_failures(failures(runs), runs[0].about["pictures"])


def _loaded(choices: Sequence[Choice]) -> list[Classifier]:
    """The classifiers, all before the first game; those of one name are called as they were asked for."""
    from excite.errors import ModelError

    if len(choices) > 1 and (choices[0].weights or choices[0].labels):
        raise ModelError("--weights and --labels are for one --model: give several as files or folders of their own")
    loaded = [choice.load() for choice in choices]
    names = [classifier.name for classifier in loaded]
    alike = len(set(names)) < len(names)
    return [replace(one, name=choice.model) for one, choice in zip(loaded, choices, strict=True)] if alike else loaded


def _page(runs: Sequence[Run], out: Path, called: str) -> Path:
    from excite.benchmarks.pointing_page import write

    tolerance, inclusive = runs[0].about["tolerance"], runs[0].about["inclusive"]
    return write(out, runs, tolerance=tolerance, inclusive=inclusive, command=called)


def _print(runs: Sequence[Run], written: Sequence[Path]) -> None:
    """The table, what it means, and what was left out."""
    from excite.benchmarks.pointing_report import by_network, columns, sentences

    print_columns([columns(row) for run in runs for row in run.rows])
    if len(runs) > 1:
        typer.echo()
        print_columns(by_network(runs))
    for run in runs:
        for sentence in sentences(run):
            typer.echo(sentence)
    typer.echo(f"written: {', '.join(map(str, written))}")
