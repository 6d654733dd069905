"""``excite boxes``: boxes for one's own images, as a detector's training set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from excite.cli.console import note, print_columns, progress, say, say_json, tell_failures
from excite.cli.options import (
    Address,
    AsJson,
    Engine,
    Fresh,
    LabelsFile,
    Model,
    Size,
    Weights,
    Workers,
    executor_of,
)
from excite.models.cards import DEFAULT_MODEL

EXAMPLES = """\b
Examples:
  excite boxes photos/ --concept dog --concept cat      where are dogs and cats in these images?
  excite boxes photos/ --concepts-from-folders --format voc --out training
                                                        photos/dog/1.jpg shows a dog, photos/cat/1.jpg a cat
  excite boxes photos/ --format csv --at-least 0.8      the best finding in each image, if it is probable
"""


def command(
    folders: Annotated[
        list[str], typer.Argument(metavar="FOLDER", help="Folders of images; or images, or patterns in quotes.")
    ],
    concept: Annotated[
        list[str] | None,
        typer.Option(help="Look for this in every image; may be given several times. None: the best finding."),
    ] = None,
    from_folders: Annotated[
        bool,
        typer.Option("--concepts-from-folders", help="Look for what the folder is called in which an image lies."),
    ] = False,
    at_least: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="P", help="No box for what is less probable; 0.5, or 0 with --concepts-from-folders."
        ),
    ] = None,
    kind: Annotated[str, typer.Option("--format", help="How to write the boxes: coco, csv or voc.")] = "coco",
    model: Model = DEFAULT_MODEL,
    weights: Weights = None,
    labels: LabelsFile = None,
    size: Size = None,
    method: Annotated[
        str | None, typer.Option(help="How to make the map behind a box; see `excite ls methods`.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Where to read it; see `excite ls layers`.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="The box surrounds what is above this many means of the map.")
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    out: Annotated[Path, typer.Option(help="The folder for the files; a run that was stopped goes on there.")] = Path(
        "excite-out/boxes"
    ),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Write boxes around what your images show, for a detector to learn from.

    All that has to be known is what an image shows, not where. Stopped and started again, it goes on where it was.
    """
    from excite.autolabel import AutoLabeler, BoxQuery, find_format
    from excite.autolabel.run import substitutions
    from excite.models import Choice

    if concept and from_folders:
        raise typer.BadParameter("--concepts-from-folders already says what to look for: leave --concept out")
    executor = executor_of(workers, engine, address)
    find_format(kind)
    query = BoxQuery(tuple(concept or ()), from_folders, at_least, _how(method, layer, alpha))
    classifier = Choice(model, weights, labels, size).load()
    labeler = AutoLabeler(classifier, folders, out, query, kind, fresh=fresh)
    if taken := substitutions(labeler.targets):
        note(f"taken {taken}")
    answer = labeler.write(workers=executor, progress=progress)
    say_json(answer) if as_json else _print(answer)
    tell_failures(answer["failures"], answer["pictures"])


def _how(method: str | None, layer: str | None, alpha: float | None) -> dict[str, Any]:
    """The arguments of `locate` other than the defaults, checked as far as possible without an image."""
    from excite.methods import find_method
    from excite.readouts.box import checked_alpha

    how: dict[str, Any] = {} if method is None else {"method": find_method(method).name}
    how |= {} if layer is None else {"layer": layer}
    return how | ({} if alpha is None else {"alpha": checked_alpha(alpha)})


def _print(answer: dict[str, Any]) -> None:
    """Print the summary of a run."""
    if answer["concepts"]:
        print_columns([{"concept": name, "boxes": count} for name, count in answer["concepts"].items()])
    read = answer["pictures"] - len(answer["failures"])
    say(f"boxes: {answer['boxes']}, in {read - answer['without']} of {read} images of {answer['folder']}")
    for line in answer["notes"]:
        say(line)
    say(f"written: {', '.join(answer['files'])}")
