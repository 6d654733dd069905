"""``excite reproduce``: the paper's tables and figures, one command each."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from excite.cli import options
from excite.cli.console import print_columns, say, say_json

EXAMPLES = """\b
Examples:
  excite reproduce                                              what there is
  excite reproduce table1 --data data --weights bvlc_googlenet.caffemodel --workers 2
  excite reproduce table1 --data data --model vgg16 --weights VGG_ILSVRC_16_layers.caffemodel
  excite reproduce all --data data --weights bvlc_googlenet.caffemodel --out paper
"""


def command(
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One of the list, or `all`.")] = None,
    data: Annotated[
        Path, typer.Option(help="The folder of VOCdevkit, coco and imagenet; docs/reproduction.md says what it holds.")
    ] = Path("data"),
    coco_train: Annotated[
        Path | None, typer.Option(help="COCO's training images, laid out as --data's coco; those there if none.")
    ] = None,
    model: options.Model = "googlenet",
    weights: options.Weights = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="How many processes work at the same time.")] = 1,
    out: options.Out = Path("excite-out/reproduction"),
    as_json: options.AsJson = False,
) -> None:
    """Make a table or a figure of the paper again, beside the paper's numbers.

    Other commands are run one after the other, and printed; each resumes where it was stopped. Differences that the
    paper claims are tested on the same images. Without TABLE, lists what there is.
    """
    from excite.cli.app import app
    from excite.experiments.reproduction import Reproduction, all_recipes, find_recipes

    if name is None:
        print_columns([{"name": one.name, "what": one.title} for one in all_recipes().values()])
        say("next: excite reproduce NAME --data FOLDER --weights FILE")
        return
    work = Reproduction(data, out, model, weights, coco_train, workers)
    recipes, failed = find_recipes(name, model), False
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        for arguments in work.commands(recipes):
            say(f"$ excite {shlex.join(arguments)}", bold=True)
            failed |= bool(app(arguments, prog_name="excite", standalone_mode=False, obj=arguments))
            say()
    for recipe in recipes:
        answer = work.answer(recipe)
        written = answer.write(out)
        if as_json:
            say_json(answer.to_dict())
            continue
        for title, lines in answer.tables:
            say(f"{title}:")
            print_columns(lines)
            say()
        say(f"written: {', '.join(map(str, written))}")
    if failed:
        raise typer.Exit(1)
