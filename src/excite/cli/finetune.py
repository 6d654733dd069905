"""``excite finetune``: teach a classifier other concepts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excite.cli.console import progress
from excite.cli.failures import tell_failures
from excite.cli.options import Address, Engine, LabelsFile, Model, Weights, Workers, crew_of

if TYPE_CHECKING:
    from excite.vocabulary import Labels

__all__ = ["EXAMPLES", "command"]

EXAMPLES = """\b
Examples:
  excite finetune --data VOCdevkit/VOC2007 --out voc                 EfficientNet-Lite0 learns VOC's 20 categories
  excite finetune --data VOCdevkit/VOC2007 --out voc --model vgg16 --augment      the paper's own way
  excite finetune --data coco --split train2017 --out pets --categories dog,cat --held-out 0.1
  excite attend photo.jpg dog --model voc                            any command takes the folder
"""


def command(
    data: Annotated[Path, typer.Option(help="The folder of pictures to learn from: VOC, COCO, or with labels only.")],
    out: Annotated[Path, typer.Option(help="The folder for the new classifier; a run that was stopped goes on there.")],
    split: Annotated[str, typer.Option(help="Which part of the data.")] = "train",
    model: Model = "efficientnet-lite0",
    weights: Weights = None,
    labels: LabelsFile = None,
    categories: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Learn only these categories, in this order.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Pictures a step; by default as in the paper, 64 or, for vgg16, 32.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="The learning rate.")] = 0.01,
    views: Annotated[int, typer.Option(min=1, help="Random views of each picture, looked at once.")] = 4,
    augment: Annotated[
        bool, typer.Option("--augment", help="New random views in each epoch: the paper's way, and slow.")
    ] = False,
    held_out: Annotated[
        float, typer.Option(min=0, max=0.9, metavar="SHARE", help="Keep so many pictures aside and measure on them.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same classifier.")] = 0,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train the output layer of a classifier for other categories; all other weights stay as they are.

    Multi-label cross-entropy by stochastic gradient descent, until the training loss plateaus. The folder can be given
    to every command as --model.
    """
    from excite.training.examples import read_examples
    from excite.training.finetune import FineTuning
    from excite.training.sgd import Descent, usual_batch

    started = time.monotonic()
    crew = crew_of(workers, engine, address)
    examples = read_examples(data, split)
    wanted = _wanted(labels, categories)
    kept, aside = (examples if wanted is None else examples.of(wanted)).split(held_out)
    descent = Descent(batch or usual_batch(model), rate, seed=seed)
    tuning = FineTuning(model, kept, out, weights, descent, views, augment, crew, progress)
    answer = tuning.train()
    answer |= tuning.measure(aside) if held_out else {}
    answer["seconds"] = round(time.monotonic() - started, 1)
    typer.echo(json.dumps(answer)) if as_json else _print(answer)
    failures = [*examples.failures, *tuning.failures]
    tell_failures(failures, len(examples.pictures) + len(examples.failures))


def _wanted(labels: str | None, categories: str | None) -> Labels | None:
    """The labels to learn, where somebody named any."""
    from excite.vocabulary import Labels

    if labels is not None and categories is not None:
        raise typer.BadParameter("--labels already says what to learn: leave --categories out")
    if categories is not None:
        return Labels([category.strip() for category in categories.split(",")])
    return None if labels is None else Labels.read(Path(labels))


def _print(answer: dict[str, Any]) -> None:
    """What was learnt, and what to do with it."""
    typer.echo(
        f"{len(answer['categories'])} categories learnt from {answer['pictures']} pictures in {answer['epochs']} "
        f"epochs ({answer['seconds']:.0f} s); training loss {answer['loss']:.3f} a picture"
    )
    if answer["never_seen"]:
        typer.echo(f"in none of these pictures: {', '.join(answer['never_seen'])}")
    if answer.get("map") is not None:
        typer.echo(f"mean average precision on {answer['held_out']} pictures kept aside: {answer['map']:.3f}")
    typer.echo(f"written: {', '.join(answer['files'])}")
    typer.secho(f"next: excite attend PHOTO --model {Path(answer['files'][0]).parent}", dim=True)
