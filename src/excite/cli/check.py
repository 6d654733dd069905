"""``excite check`` and ``excite layers``: can the maps of a classifier be relied on, and which layer points best?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from excite.cli import options
from excite.cli.console import print_columns, progress, say, say_json, tell_failures
from excite.cli.options import AnswerOptions, ClassifierOptions, ImageOptions, JobOptions, grouped

if TYPE_CHECKING:
    from excite.experiments.layer_sweep import LayerRow

EXAMPLES = """\b
Examples:
  excite check efficientnet-lite0                              on the photographs of scikit-image
  excite check torchvision:resnet18 photos/ --method grad-cam --json
  excite check everyday photos/*.jpg --only randomisation,classes
"""
LAYERS_EXAMPLES = """\b
Examples:
  excite layers efficientnet-lite0 --data VOCdevkit/VOC2007              all of its block ends
  excite layers efficientnet-lite0 --data imagenet --limit 200 --by box  by boxes instead of points
  excite layers efficientnet-lite0 --data photos                         photos/dog/*.jpg, photos/cat/*.jpg: no boxes
  excite layers efficientnet-lite0 --data coco --layer blocks.10 --layer blocks.14 --json
"""


@grouped
def command(
    *,
    context: typer.Context,
    model: options.ModelArgument,
    pictures: Annotated[
        list[str] | None, Argument(help="Pictures, folders or patterns; the photographs of scikit-image if none.")
    ] = None,
    classifiers: ClassifierOptions,
    method: Annotated[str, Option(help="What is checked: a name of `excite ls methods`.")] = "c-mwp",
    layer: Annotated[str | None, Option(help="Where it is read; where it should be if none.")] = None,
    only: Annotated[
        str | None,
        Option(metavar="A,B,...", help="Some of mass, values, response, randomisation, classes, removal, stability."),
    ] = None,
    limit: Annotated[int, Option(min=1, help="Use at most so many images, evenly among those given.")] = 20,
    seed: Annotated[int, Option(help="The same seed draws the same weights, noise and concepts.")] = 0,
    jobs: JobOptions,
    out: Annotated[Path | None, Option(help="The folder for results; excite-out/check-MODEL if none.")] = None,
    answer: AnswerOptions,
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

    executor = jobs.executor()
    if answer.with_page:
        check_plots()
    checks = run.chosen_checks(only)
    files = run.pictures_of(pictures or [], limit)
    out = out or Path("excite-out") / f"check-{options.folder_name(model)}"
    (classifier,) = classifiers.load([model])
    sanity = run.SanityChecks(classifier, files, method=method, layer=layer, checks=checks, seed=seed)
    report = sanity.report(list(progress(sanity.records(out, executor), len(files))))
    called, rest = shlex.join(["excite", *context.obj]), {"left_out": sanity.unreadable, "failures": sanity.failures}
    written = [
        save_json({**report.to_dict(), "command": called, **rest}, out / "check.json"),
        save_text(run.markdown(report, called), out / "check.md"),
    ]
    if answer.with_page:
        figure = run.write_figure(report, out / "check.png")
        written += [] if figure is None else [figure]
        written.append(run.write_html(report, sanity.facts(), called, out / "index.html"))
    if answer.as_json:
        say_json({**report.to_dict(), **rest})
    else:
        left_out = (f"left out: {place}: {why}" for place, why in sanity.unreadable.items())
        for line in (*run.text(report), *left_out, f"written: {', '.join(map(str, written))}"):
            say(line)
    tell_failures(sanity.failures, len(files))
    if report.standing == "fails":
        raise typer.Exit(1)


@grouped
def layers_command(
    *,
    model: options.ModelArgument,
    data: options.Data,
    classifiers: ClassifierOptions,
    split: options.Split = None,
    layer: Annotated[
        list[str] | None, Option(help="A layer to try, may be given several times; the ends of the blocks if none.")
    ] = None,
    method: Annotated[
        list[str] | None, Option(help="A method to try, may be given several times; mwp and c-mwp if none.")
    ] = None,
    images: ImageOptions,
    by: Annotated[
        str | None,
        Option(help="Choose by pointing, by box (data with one main object), or by removal (data without boxes)."),
    ] = None,
    tolerance: Annotated[
        float | None, Option(min=0, help="How many pixels beside a box a point may lie; by the data's custom if none.")
    ] = None,
    seed: Annotated[int, Option(help="How images are shared out to choose on and to measure on.")] = 0,
    jobs: JobOptions,
    out: Annotated[Path | None, Option(help="The folder for results; excite-out/layers-MODEL if none.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure layers on annotated images and recommend one, with a table and a figure.

    The layer is chosen on one half of the images; all figures are about the other half. An interrupted run resumes.
    """
    from excite.datasets import open_dataset
    from excite.experiments.base import left_out_lines
    from excite.experiments.layer_sweep import METHODS, LayerSweep, checked_measure, layer_figure
    from excite.experiments.report.figures import check_plots
    from excite.io.files import save_json

    executor = jobs.executor()
    check_plots()
    dataset = open_dataset(data, split, boxes=False)
    checked_measure(by, dataset)
    out = out or Path("excite-out") / f"layers-{options.folder_name(model)}"
    (classifier,) = classifiers.load([model])
    sweep = LayerSweep(classifier, dataset, layers=layer, methods=method or METHODS, **vars(images))
    records = list(progress(sweep.records(out, executor), len(sweep.tasks)))
    found = sweep.report(records, by=by, tolerance=tolerance, seed=seed)
    figure = layer_figure(found, f"{classifier.name} on {dataset.name} {dataset.split}", out / "layers.png")
    answer = {**sweep.about(), "seed": seed, **found.to_dict(), "figure": str(figure)}
    save_json(answer, out / "layers.json")
    if as_json:
        say_json(answer)
    else:
        print_columns([_columns(row) for row in found.rows])
        left_out = left_out_lines(sweep.about()["left_out"])
        lines = [f"left out: {'; '.join(left_out)}"] if left_out else []
        for line in (*lines, *found.sentences(), f"written: {out / 'layers.png'}, {out / 'layers.json'}"):
            say(line)
    tell_failures(sweep.failures, len(sweep.names))


def _columns(row: LayerRow) -> dict[str, str]:
    """One line of the table, with what was measured."""
    shares = {"pointing %": row.pointing, "lost %": row.removal, "box error %": row.box_error}
    alpha = {} if row.alpha is None else {"alpha": str(row.alpha)}
    return {
        "method": row.method,
        "layer": row.layer,
        "map": f"{row.size[0]}x{row.size[1]}",
        **{name: str(share) for name, share in shares.items() if share is not None},
        **alpha,
        "mass": f"{row.mass:.3f}",
        "": "" if row.standing == "worse" else row.standing,
    }
