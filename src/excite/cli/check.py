"""``excite check``: can the maps of a classifier be relied on?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.console import progress, say, say_json, tell_failures
from excite.cli.options import (
    Address,
    AsJson,
    Engine,
    FullyConvolutional,
    LabelsFile,
    ModelArgument,
    Size,
    Weights,
    WithPage,
    Workers,
    executor_of,
    folder_name,
)

if TYPE_CHECKING:
    from excite.experiments.checks.run import SanityChecks, SanityReport

EXAMPLES = """\b
Examples:
  excite check efficientnet-lite0                              on the photographs of scikit-image
  excite check resnet50 --weights resnet50.safetensors photos/ --limit 50 --workers 2
  excite check torchvision:resnet18 photos/ --method grad-cam --json
  excite check everyday photos/*.jpg --only randomisation,classes
"""


def command(
    context: typer.Context,
    model: ModelArgument,
    pictures: Annotated[
        list[str] | None,
        typer.Argument(help="Pictures, folders or patterns; the photographs of scikit-image if none."),
    ] = None,
    weights: Weights = None,
    labels: LabelsFile = None,
    size: Size = None,
    fully_convolutional: FullyConvolutional = None,
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
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    out: Annotated[Path | None, typer.Option(help="The folder for results; excite-out/check-MODEL if none.")] = None,
    with_page: WithPage = True,
    as_json: AsJson = False,
) -> None:
    """Check, on a few images, whether the maps of a classifier can be relied on, with a report in plain words.

    How much of the signal is kept; are the values right; is all of the output's response seen; do the maps depend on
    what the network has learned and on the concept; does the answer fade with the evidence; do maps stay when the
    image hardly changes. Gradients, Grad-CAM, relevance and a random map are measured for comparison. The exit code is
    1 if a check fails. An interrupted run resumes.
    """
    from excite.experiments.checks.run import SanityChecks, chosen_checks, pictures_of
    from excite.experiments.report.figures import check_plots
    from excite.models import Choice

    executor = executor_of(workers, engine, address)
    if with_page:
        check_plots()
    checks = chosen_checks(only)
    files = pictures_of(pictures or [], limit)
    out = out or Path("excite-out") / f"check-{folder_name(model)}"
    classifier = Choice(model, weights, labels, size, fully_convolutional).load()
    sanity = SanityChecks(classifier, files, method=method, layer=layer, checks=checks, seed=seed)
    report = sanity.report(list(progress(sanity.records(out, executor), len(files))))
    written = _written(report, sanity, out, shlex.join(["excite", *context.obj]), with_page=with_page)
    if as_json:
        say_json({**report.to_dict(), "left_out": sanity.unreadable, "failures": sanity.failures})
    else:
        _print(report, sanity, written)
    tell_failures(sanity.failures, len(files))
    if report.standing == "fails":
        raise typer.Exit(1)


def _written(report: SanityReport, sanity: SanityChecks, out: Path, called: str, *, with_page: bool) -> list[Path]:
    """The files of the report."""
    from excite.experiments.checks.run import markdown, write_figure, write_html
    from excite.io.files import save_json, save_text

    answer = {**report.to_dict(), "command": called, "left_out": sanity.unreadable, "failures": sanity.failures}
    written = [save_json(answer, out / "check.json"), save_text(markdown(report, called), out / "check.md")]
    if with_page:
        figure = write_figure(report, out / "check.png")
        written += [] if figure is None else [figure]
        written.append(write_html(report, sanity.facts(), called, out / "index.html"))
    return written


def _print(report: SanityReport, sanity: SanityChecks, written: list[Path]) -> None:
    from excite.experiments.checks.run import text

    for line in text(report):
        say(line)
    for place, why in sanity.unreadable.items():
        say(f"left out: {place}: {why}")
    say(f"written: {', '.join(map(str, written))}")
