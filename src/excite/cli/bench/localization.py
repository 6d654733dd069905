"""``excite bench localization``: boxes around dominant objects, on any classifier and data set."""

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
from excite.experiments import HELD_OUT, LOCALIZATION_METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.experiments.localization.scores import LocalizationRun

EXAMPLES = """\b
Examples:
  excite bench localization --data imagenet --split val --limit 1000 --workers 2
  excite bench localization --data imagenet --methods mwp,c-mwp,guided --json
  excite bench localization --data imagenet --methods mwp --layer blocks.4 --layer blocks.10 --layer blocks.14
  excite bench localization --data VOCdevkit --model head --methods all --own-shape
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
    methods: Methods = LOCALIZATION_METHODS,
    layer: Layers = None,
    own_shape: Annotated[
        bool, typer.Option("--own-shape", help="Do not squash images to a square before they are looked at.")
    ] = False,
    held_out: Annotated[
        float, typer.Option(metavar="SHARE", help="Choose thresholds on this share of the images; 0.2 is a fifth.")
    ] = HELD_OUT,
    seed: Annotated[int, typer.Option(help="Which images are held out to choose thresholds on.")] = 0,
    limit: Limit = None,
    skip: Skip = 0,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    out: Out = Path("excite-out/localization"),
    with_page: WithPage = True,
    as_json: AsJson = False,
) -> None:
    """Does the box around the strong part of each map fit the queried object?

    A box fits if its IoU is at least a half. Thresholds are chosen for each method on held-out images; errors are those
    on the others. An interrupted run resumes.
    """
    from excite.datasets import open_dataset
    from excite.experiments.base import checked_share, chosen_methods, failures_of
    from excite.experiments.localization.report import answer, write, write_tables
    from excite.experiments.localization.run import Localization
    from excite.experiments.report.figures import check_plots

    executor = executor_of(workers, engine, address)
    if with_page:
        check_plots()
    names = chosen_methods(methods)
    share = checked_share(held_out)
    dataset = open_dataset(data, split)
    runs = []
    for classifier in load_all(model, weights, labels, size, fully_convolutional):
        localization = Localization(
            classifier,
            dataset,
            names,
            layers=layer,
            skip=skip,
            limit=limit,
            own_shape=own_shape,
            held_out=share,
            seed=seed,
        )
        runs.append(localization.run(list(progress(localization.records(out, executor), len(localization.tasks)))))
    written = write_tables(runs, out)
    if with_page:
        written.append(write(out, runs, command=shlex.join(["excite", *context.obj])))
    if as_json:
        say_json(answer(runs))
    else:
        _print(runs, written)
    tell_failures(failures_of(run.about for run in runs), runs[0].about["pictures"])


def _print(runs: Sequence[LocalizationRun], written: Sequence[Path]) -> None:
    """Print the table and sentences."""
    from excite.experiments.localization.report import lines, sentences

    print_columns(lines(runs))
    for run in runs:
        for sentence in sentences(run):
            say(sentence)
    say(f"written: {', '.join(map(str, written))}")
