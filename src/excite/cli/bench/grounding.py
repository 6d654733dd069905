"""``excite bench grounding``: which regions phrases refer to, on any classifier and data set with phrases."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.console import print_columns, progress, say, say_json, tell_failures
from excite.cli.options import (
    MODEL_HELP,
    Address,
    AsJson,
    Engine,
    FullyConvolutional,
    Hints,
    LabelsFile,
    Limit,
    Methods,
    Out,
    ProposalsFrom,
    Size,
    Skip,
    Split,
    Weights,
    WithPage,
    Workers,
    executor_of,
    load_all,
)
from excite.experiments import GROUNDING_METHODS, HELD_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.experiments.grounding.run import GroundingRun, SystemResults

EXAMPLES = """\b
Examples:
  excite bench grounding --data refcoco --workers 2
  excite bench grounding --data flickr30k --methods excite,c-mwp,mwp,lrp --trust 0 --no-hints --gamma paper
  excite bench grounding --data coco --model everyday --methods c-mwp,grad --limit 200 --json
  excite bench grounding --data refcoco --gamma 0.5 --proposals edge-boxes
  excite bench grounding --data flickr30k --proposals MCG --trust 0 --no-hints --results CCA=cca.jsonl
"""

SEARCH, PAPER = "search", "paper"


def command(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Option(help="The folder of described images: Flickr30k Entities, COCO captions, RefCOCO, or your own."),
    ],
    split: Split = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help=f"{MODEL_HELP} May be given several times. words if none."),
    ] = None,
    weights: Weights = None,
    labels: LabelsFile = None,
    size: Size = None,
    fully_convolutional: FullyConvolutional = None,
    methods: Methods = GROUNDING_METHODS,
    layer: Annotated[
        str | None, typer.Option(help="Read all methods here, where they can be; each where it should be if none.")
    ] = None,
    proposals: ProposalsFrom = "hierarchy",
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep proposals here; in the folder for results if none.")
    ] = None,
    gamma: Annotated[
        str,
        typer.Option(
            metavar="search|paper|NUMBER",
            help="How much a large region must hold, 0 to 1; search chooses the best of 0, 0.05 ... 1 for each method, "
            "paper that of 0, 0.25 ... 1.",
        ),
    ] = SEARCH,
    held_out: Annotated[
        float, typer.Option(metavar="SHARE", help="Search gamma on this share of the images; 0.2 is a fifth.")
    ] = HELD_OUT,
    seed: Annotated[int, typer.Option(help="Which images are held out to search gamma on.")] = 0,
    truth: Annotated[
        str, typer.Option(metavar="union|any", help="What to match: the box around all that is meant, or any of it.")
    ] = "union",
    trust: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="How much the proposals' own order counts; 0 as in the paper, ours if none."),
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(min=1, help="The shorter side of images as the classifier sees them; 300, or --size."),
    ] = None,
    hints: Hints = True,
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Also count the ranked boxes of another system: JSON with image, phrase, boxes and scores.",
        ),
    ] = None,
    limit: Limit = None,
    skip: Skip = 0,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    out: Out = Path("excite-out/grounding"),
    with_page: WithPage = True,
    as_json: AsJson = False,
) -> None:
    """Which of many proposed regions does a phrase refer to?

    The maps of its words are averaged, and regions are ranked by their share of the map. A box is right if its IoU
    with the truth is at least a half; R@N is the share of phrases with a right box among the first N. An interrupted
    run resumes.
    """
    from excite.datasets.phrase_formats import open_phrases
    from excite.experiments.base import checked_share, chosen_methods, failures_of
    from excite.experiments.grounding.measure import checked_truth
    from excite.experiments.grounding.report import answer, shares_of_time, write, write_tables
    from excite.experiments.grounding.run import Grounding
    from excite.experiments.report.figures import check_plots
    from excite.grounding.phrase_maps import SIDE
    from excite.grounding.scoring import TRUST

    executor = executor_of(workers, engine, address)
    if with_page:
        check_plots()
    names = chosen_methods(methods)
    number = _gamma(gamma)
    share, wanted = checked_share(held_out), checked_truth(truth)
    others = _others(results or (), names)
    dataset = open_phrases(data, split)
    runs = []
    for classifier in load_all(model or ["words"], weights, labels, size, fully_convolutional):
        grounding = Grounding(
            classifier,
            dataset,
            names,
            layer=layer,
            proposals=proposals,
            cache=cache or out / "proposals",
            gamma=number,
            held_out=share,
            seed=seed,
            truth=wanted,
            trust=TRUST if trust is None else trust,
            side=side or size or SIDE,
            hints=hints,
            skip=skip,
            limit=limit,
        )
        trial = progress(grounding.choosing(out, executor), len(grounding.held), "pictures to choose gamma on")
        chosen = grounding.choose(list(trial))
        asked = progress(grounding.records(out, chosen, executor), len(grounding.reported))
        runs.append(grounding.run(chosen, list(asked), others))
    written = write_tables(runs, out)
    if with_page:
        written.append(write(out, runs, command=shlex.join(["excite", *context.obj])))
    if as_json:
        say_json({**answer(runs), "seconds": shares_of_time(runs)})
    else:
        _print(runs, written)
    tell_failures(failures_of(run.about for run in runs), runs[0].about["pictures"])


def _gamma(text: str) -> float | Sequence[float]:
    """The given gamma, or those to choose from."""
    from excite.experiments.grounding.measure import GAMMAS, PAPERS_GAMMAS

    if text in {SEARCH, PAPER}:
        return GAMMAS if text == SEARCH else PAPERS_GAMMAS
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise typer.BadParameter(f"--gamma is {SEARCH}, {PAPER} or a number from 0 to 1, not {text!r}")
    return number


def _others(given: Sequence[str], methods: Sequence[str]) -> list[SystemResults]:
    """The results of other systems, under different names."""
    from excite.experiments.grounding.measure import OWN
    from excite.experiments.grounding.run import read_results

    found: dict[str, SystemResults] = {}
    for one in given:
        name, _, path = one.partition("=")
        if not name or not path or not name.isprintable():
            raise typer.BadParameter(f"--results is NAME=FILE, as in CCA=cca.jsonl, not {one!r}")
        if name in {*methods, OWN, *found}:
            raise typer.BadParameter(f"--results {one}: there is a row {name!r} already; call it otherwise")
        found[name] = read_results(name, Path(path))
    return list(found.values())


def _print(runs: Sequence[GroundingRun], written: Sequence[Path]) -> None:
    """Print the tables and sentences."""
    from excite.experiments.grounding.report import lines, sentences, shares_of_time, time_words, titled_tables

    print_columns(lines(runs))
    for title, table in titled_tables(runs).items():
        say()
        say(f"{title}:")
        print_columns(table)
    say()
    for sentence in sentences(runs):
        say(sentence)
    for model, shares in shares_of_time(runs).items():
        say(f"{model}: where the time went: {time_words(shares)}")
    say(f"written: {', '.join(map(str, written))}")
