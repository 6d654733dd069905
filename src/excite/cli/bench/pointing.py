"""``excite bench pointing``: the Pointing Game, on any classifier and data set."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.console import print_columns, progress, say, say_json, tell_failures
from excite.cli.options import (
    Address,
    AsJson,
    Data,
    Engine,
    FullyConvolutional,
    LabelsFile,
    Layers,
    Limit,
    Methods,
    Models,
    Out,
    Size,
    Skip,
    Split,
    Weights,
    WithPage,
    Workers,
    executor_of,
    load_all,
)
from excite.experiments import POINTING_METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.experiments.pointing.scores import PointingRun

EXAMPLES = """\b
Examples:
  excite bench pointing --data VOCdevkit/VOC2007 --split val --model head --limit 200
  excite bench pointing --data coco --model head --methods all --workers 2 --json
  excite bench pointing --data VOCdevkit --model head --model resnet-head --methods c-mwp,mwp,grad,center
  excite bench pointing --data VOCdevkit --model head --layer blocks.4 --layer blocks.10 --layer blocks.14
"""


def command(
    context: typer.Context,
    data: Data,
    split: Split = None,
    model: Models = None,
    weights: Weights = None,
    labels: LabelsFile = None,
    size: Size = None,
    fully_convolutional: FullyConvolutional = None,
    methods: Methods = POINTING_METHODS,
    layer: Layers = None,
    difficult: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The Difficult subset as a list of images and categories; by the paper's rule if none.",
        ),
    ] = None,
    protocol: Annotated[str, typer.Option(help="Whose conventions: authors or torchray.")] = "authors",
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="How many pixels beside an object a point may lie; 15 for VOC and COCO if none."),
    ] = None,
    limit: Limit = None,
    skip: Skip = 0,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    out: Out = Path("excite-out/pointing"),
    with_page: WithPage = True,
    as_json: AsJson = False,
) -> None:
    """Does the maximum of each map lie on an object of the queried category?

    Accuracy is computed for each category and averaged over categories, for all pairs of an image and a category and
    for the difficult ones. An interrupted run resumes.
    """
    from excite.datasets import open_dataset
    from excite.datasets.difficult import read_difficult_list
    from excite.experiments.base import chosen_methods, failures_of
    from excite.experiments.pointing.report import answer, write, write_tables
    from excite.experiments.pointing.run import PointingGame, find_protocol
    from excite.experiments.report.figures import check_plots

    executor = executor_of(workers, engine, address)
    if with_page:
        check_plots()
    names = chosen_methods(methods)
    rules = find_protocol(protocol, tolerance)
    dataset = open_dataset(data, split)
    subset = None if difficult is None else read_difficult_list(difficult, dataset)
    runs = []
    for classifier in load_all(model, weights, labels, size, fully_convolutional):
        game = PointingGame(
            classifier, dataset, names, layers=layer, skip=skip, limit=limit, difficult=subset, protocol=rules
        )
        runs.append(game.run(list(progress(game.records(out, executor), len(game.tasks)))))
    written = write_tables(runs, out)
    if with_page:
        written.append(write(out, runs, command=shlex.join(["excite", *context.obj])))
    if as_json:
        say_json(answer(runs))
    else:
        _print(runs, written)
    tell_failures(failures_of(run.about for run in runs), runs[0].about["pictures"])


def _print(runs: Sequence[PointingRun], written: Sequence[Path]) -> None:
    """Print the table and sentences."""
    from excite.experiments.pointing.report import by_network, columns, sentences

    print_columns([columns(row) for run in runs for row in run.rows])
    if len(runs) > 1:
        say()
        print_columns(by_network(runs))
    for run in runs:
        for sentence in sentences(run):
            say(sentence)
    say(f"written: {', '.join(map(str, written))}")
