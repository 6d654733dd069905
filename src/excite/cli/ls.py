"""``excite ls`` and ``excite fetch``: models, layers, methods and labels, with the next step; data sets to fetch."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from excite import DEFAULT_MODEL
from excite.cli import options
from excite.cli.console import print_columns, progress, say, say_json

FETCH_EXAMPLES = """\b
Examples:
  excite fetch voc2007 --to data                 train, val and test, 0.9 GB
  excite fetch voc2007 --to data --split val     only the archive of train and val
  excite fetch coco2014 --to data/coco           the paper's validation images, 6.9 GB
"""
app = options.group("List models, layers, methods or labels.")

Json = Annotated[bool, Option("--json", help="One JSON array, for programs.")]


@app.command()
def models(as_json: Json = False) -> None:
    """The classifiers known by name."""
    from excite.models import MODELS

    rows = [
        {"model": card.name, "description": card.description, "layers": list(card.layers), "source": card.source}
        for card in MODELS.values()
    ]
    _show(
        rows,
        as_json,
        "next: excite attend PHOTO --model MODEL (also torchvision:, timm:, hf: or open_clip:NAME, or a file)",
    )


@app.command()
def layers(model: options.ModelArgument = DEFAULT_MODEL, size: options.Size = None, as_json: Json = False) -> None:
    """The layers of a model that can be read as maps, from the image up.

    Which layers there are does not depend on the weights, so none are fetched.
    """
    from excite.models import Choice
    from excite.models.layers import outline

    seen, recommended = outline(Choice(model, weights="random", size=size).load())
    rows: list[dict[str, Any]] = [
        {
            "layer": layer.name,
            "kind": layer.kind,
            "channels": layer.channels,
            "size": f"{layer.height}x{layer.width}" + (" tokens" if layer.tokens else ""),
            "stride": round(layer.stride, 2),
            "receptive field": layer.receptive_field or "all",
            "recommended": recommended.index(layer.name) + 1 if layer.name in recommended else None,
        }
        for layer in seen
    ]
    _show(
        rows,
        as_json,
        "next: excite attend PHOTO --layer LAYER (sizes are for a square image; 1 is read by default; "
        "`excite layers MODEL --data FOLDER` measures them)",
    )


@app.command()
def methods(as_json: Json = False) -> None:
    """The ways to make a map."""
    from excite.methods import METHODS

    if as_json:
        say_json([{"method": one.name, "description": one.description, "main": one.main} for one in METHODS.values()])
        return
    width = max(map(len, METHODS))
    for title, main in (("methods", True), ("for comparison", False)):
        say(title, bold=True)
        for one in METHODS.values():
            if one.main is main:
                say(f"  {one.name:{width}}  {one.description}")
    say("next: excite attend PHOTO --method METHOD", dim=True)


@app.command()
def labels(
    text: Annotated[str, Argument(metavar="TEXT", help="Only labels with a synonym that contains this.")] = "",
    model: options.Model = DEFAULT_MODEL,
    as_json: Json = False,
) -> None:
    """What a model can be asked for."""
    from excite.errors import ConceptError
    from excite.models import find_card

    known = find_card(model).labels()
    if known is None:
        raise ConceptError(f"{model} has no labels: its concepts are numbers, unless other commands get --labels FILE")
    found = known.listed(text)
    if not found:
        raise ConceptError(f"no label contains {text!r}: `excite ls labels` lists all {len(known)}")
    rows = [
        {"index": unit, "label": known.name(unit), "synonyms": list(known.synonyms(unit)[1:]), "also": others}
        for unit, *others in found
    ]
    _show(rows, as_json, "next: excite attend PHOTO LABEL")


def _show(rows: list[dict[str, Any]], as_json: bool, next_step: str) -> None:
    if as_json:
        say_json(rows)
        return
    print_columns([{name: _text(value) for name, value in row.items()} for row in rows])
    say(next_step, dim=True)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _published(name: str) -> str:
    """Check the name before other options: some data sets cannot be fetched at all."""
    from excite.datasets.published import published_dataset

    published_dataset(name)
    return name


def fetch_command(
    name: Annotated[str, Argument(metavar="DATASET", callback=_published, help="voc2007, coco2014 or coco2017.")],
    to: Annotated[Path, Option(metavar="DIR", help="The folder it is put into.")],
    split: Annotated[
        list[str] | None,
        Option(help="Only this split; may be given several times. By default all of VOC, and val of COCO."),
    ] = None,
) -> None:
    """Fetch a data set, check it by its hash and unpack it. Stopped and started again, it goes on where it was."""
    from excite.datasets.published import fetch_dataset

    folder = fetch_dataset(
        name, to, split or (), say=typer.echo, shown=lambda files, count: progress(files, count, "files")
    )
    say(f"next: excite bench pointing --data {shlex.quote(str(folder))} --split {(split or ['val'])[-1]}")
