"""``excite attend``: where in these images is the evidence?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from excite.cli import options
from excite.cli.console import print_columns, progress, say, say_json, tell_failures
from excite.models.cards import DEFAULT_MODEL

EXAMPLES = """\b
Examples:
  excite attend photo.jpg                                its five best findings
  excite attend photo.jpg tabby 761 --json               two concepts, for a program
  excite attend photo.jpg cat --against dog              cat, not dog
  excite attend holiday/ dog --out maps --workers 4      a folder; stopped, it can be resumed
  excite attend photo.jpg --model timm:convnext_tiny     another classifier
"""


def command(
    photo: Annotated[str, typer.Argument(metavar="PHOTO", help="An image, a folder, or a pattern in quotes.")],
    concepts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONCEPT",
            help="What to look for: labels, synonyms, everyday words or indices; nothing for the classifier's five "
            "best findings. More images may come before.",
        ),
    ] = None,
    model: options.Model = DEFAULT_MODEL,
    weights: options.Weights = None,
    labels: options.LabelsFile = None,
    size: options.Size = None,
    fully_convolutional: options.FullyConvolutional = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(help="Where to read the map, may be given several times; see `excite ls layers`."),
    ] = None,
    method: options.Method = None,
    contrast: Annotated[
        bool | None, typer.Option("--contrast/--no-contrast", help="c-mwp (the default) or plain mwp.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help='Contrast with this concept: "cat" --against dog. May be given several times.'),
    ] = None,
    alpha: Annotated[float, typer.Option(help="The box surrounds what is above this many means of the map.")] = 1.0,
    workers: options.Workers = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    out: Annotated[Path, typer.Option(help="The folder for overlays and results.")] = Path("excite-out"),
    overlays: options.Overlays = True,
    arrays: Annotated[bool, typer.Option("--arrays", help="Also save each map as NPY.")] = False,
    fresh: options.Fresh = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line for each image.")] = False,
) -> None:
    """Draw where a classifier sees each concept, and print probability, point, box and mass."""
    from excite.autolabel.batch import AttendQuery, Batch, split_arguments
    from excite.models import Choice

    executor = options.executor_of(workers, engine, address)
    photos, wanted = split_arguments([photo, *(concepts or [])], out)
    choice = Choice(model, weights, labels, size, fully_convolutional)
    query = AttendQuery.of_options(
        model=choice, concepts=wanted, layers=layer, method=method, contrast=contrast, against=against, alpha=alpha
    )
    batch = Batch(query, out, overlays=overlays, arrays=arrays, fresh=fresh)
    for answer in progress(batch.answers(photos, executor), len(photos)):
        if as_json:
            say_json(answer)
            continue
        say(answer["image"], bold=True)
        print_columns([_row(found) for found in answer["maps"]])
    tell_failures(batch.failures, len(photos))


def _row(found: dict[str, Any]) -> dict[str, str]:
    point, box, probability = found["point"], found["box"], found["probability"]
    return {
        "concept": found["concept"],
        "probability": "<0.1%" if probability < 0.001 else f"{probability:.1%}",
        "point": "nowhere" if point is None else "{}, {}".format(*point),
        "box": "none" if box is None else "{}, {}, {}, {}".format(*box),
        "mass": f"{found['mass']:.3f}",
        "layer": found["layer"],
        "method": found["method"],
        "overlay": found["overlay"] or "",
    }
