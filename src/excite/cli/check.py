"""``excite check``: can the maps of a classifier be relied on?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from excite.cli import options
from excite.cli.console import progress, say, say_json, tell_failures

EXAMPLES = """\b
Examples:
  excite check efficientnet-lite0                              on the photographs of scikit-image
  excite check torchvision:resnet18 photos/ --method grad-cam --json
  excite check everyday photos/*.jpg --only randomisation,classes
"""


def command(
    context: typer.Context,
    model: options.ModelArgument,
    pictures: Annotated[
        list[str] | None, typer.Argument(help="Pictures, folders or patterns; the photographs of scikit-image if none.")
    ] = None,
    weights: options.Weights = None,
    labels: options.LabelsFile = None,
    size: options.Size = None,
    fully_convolutional: options.FullyConvolutional = None,
    method: Annotated[str, typer.Option(help="What is checked: a name of `excite ls methods`.")] = "c-mwp",
    layer: Annotated[str | None, typer.Option(help="Where it is read; where it should be if none.")] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Some of mass, values, response, randomisation, classes, removal, stability."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Use at most so many images, evenly among those given.")] = 20,
    seed: Annotated[int, typer.Option(help="The same seed draws the same weights, noise and concepts.")] = 0,
    workers: options.Workers = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    out: Annotated[Path | None, typer.Option(help="The folder for results; excite-out/check-MODEL if none.")] = None,
    with_page: options.WithPage = True,
    as_json: options.AsJson = False,
) -> None:
    """Check, on a few images, whether the maps of a classifier can be relied on, with a report in plain words.

    How much of the signal is kept; are the values right; is all of the output's response seen; do the maps depend on
    what the network has learned and on the concept; does the answer fade with the evidence; do maps stay when the
    image hardly changes. Gradients, Grad-CAM, relevance and a random map are measured for comparison. The exit code is
    1 if a check fails. An interrupted run resumes.
    """
    from excite.experiments.checks import run
    from excite.experiments.report.figures import check_plots
    from excite.io.files import save_json, save_text
    from excite.models import Choice

    executor = options.executor_of(workers, engine, address)
    if with_page:
        check_plots()
    checks = run.chosen_checks(only)
    files = run.pictures_of(pictures or [], limit)
    out = out or Path("excite-out") / f"check-{options.folder_name(model)}"
    classifier = Choice(model, weights, labels, size, fully_convolutional).load()
    sanity = run.SanityChecks(classifier, files, method=method, layer=layer, checks=checks, seed=seed)
    report = sanity.report(list(progress(sanity.records(out, executor), len(files))))
    called, rest = shlex.join(["excite", *context.obj]), {"left_out": sanity.unreadable, "failures": sanity.failures}
    written = [
        save_json({**report.to_dict(), "command": called, **rest}, out / "check.json"),
        save_text(run.markdown(report, called), out / "check.md"),
    ]
    if with_page:
        figure = run.write_figure(report, out / "check.png")
        written += [] if figure is None else [figure]
        written.append(run.write_html(report, sanity.facts(), called, out / "index.html"))
    if as_json:
        say_json({**report.to_dict(), **rest})
    else:
        left_out = (f"left out: {place}: {why}" for place, why in sanity.unreadable.items())
        for line in (*run.text(report), *left_out, f"written: {', '.join(map(str, written))}"):
            say(line)
    tell_failures(sanity.failures, len(files))
    if report.standing == "fails":
        raise typer.Exit(1)
