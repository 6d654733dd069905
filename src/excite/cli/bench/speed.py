"""``excite bench speed``: what a map costs, in forward passes and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.console import print_columns, progress, say, say_json
from excite.cli.options import MODEL_HELP

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\b
Examples:
  excite bench speed --quick                           the headline, in about one minute
  excite bench speed                                   everything, in about 20 minutes; goes on where it was stopped
  excite bench speed --model resnet50.safetensors --batches 1 --layers default --json
  excite bench speed --model torchvision:vgg16 --seconds 60 --threads 1
"""
LAYERS = ("all", "default")


def command(
    model: Annotated[list[str] | None, typer.Option(help=f"{MODEL_HELP} May be given several times.")] = None,
    batches: Annotated[str | None, typer.Option(help="How many images at once; 1,8,32 if none.")] = None,
    concepts: Annotated[str | None, typer.Option(help="How many concepts an image; 1,5,20,80 if none.")] = None,
    layers: Annotated[
        str | None, typer.Option(help="`all`: the cost at each layer, too (the paper's figure); or `default`.")
    ] = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", hidden=True)] = False,
    memory: Annotated[bool | None, typer.Option("--memory/--no-memory", help="Peak memory, too.")] = None,
    compiled: Annotated[
        bool | None,
        typer.Option("--compiled/--no-compiled", help="Maps by onnxruntime (excite.compile), too; not if not asked."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The headline only: all of the above at its least.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads; torch's own choice if none.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="How long a group of methods may take turns; 20 if none.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where the networks run: cpu, cuda, cuda:1.")] = "cpu",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what was measured before.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for results; a run that was stopped goes on there.")] = Path(
        "excite-out/speed"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line for each row.")] = False,
) -> None:
    """How long does a map take, and how much memory, beside the plain forward pass and the gradient?

    Everything that is compared takes turns in one process. Each time is divided by the plain forward pass of the same
    round; the tables give the median of the rounds with its 95 % interval.
    """
    import torch

    from excite.errors import DataError
    from excite.experiments.report.figures import check_plots
    from excite.experiments.speed.report import merged, speed_figure, write_tables
    from excite.experiments.speed.run import (
        QUICK,
        QUICK_SECONDS,
        REQUIRED,
        SECONDS,
        Plan,
        SpeedBench,
        checked_device,
        numbers,
    )
    from excite.jobs import open_results
    from excite.models import find_card

    check_plots()
    if peers:
        raise DataError("other packages are timed by a tool of the repository: run `python dev/speed_peers.py` there")
    if layers not in {None, *LAYERS}:
        raise DataError(f"--layers {layers}: give one of {', '.join(LAYERS)}")
    asked = {
        "models": None if model is None else tuple(model),
        "batches": None if batches is None else numbers(batches, "--batches"),
        "concepts": None if concepts is None else numbers(concepts, "--concepts"),
        "all_layers": None if layers is None else layers == "all",
        "memory": memory,
        "compiled": compiled,
    }
    plan = Plan(**{**(QUICK if quick else {}), **{name: value for name, value in asked.items() if value is not None}})
    for name in plan.models:
        find_card(name)  # a wrong name is an error before anything is measured
    budget = (QUICK_SECONDS if quick else SECONDS) if seconds is None else seconds
    bench = SpeedBench(budget, threads or torch.get_num_threads(), checked_device(device))
    tasks = list(plan.tasks())
    entries = bench.entries(tasks, open_results(out / "speed.jsonl", REQUIRED), fresh=fresh)
    rows = merged(row for entry in progress(entries, len(tasks), "groups") for row in entry["rows"])
    written = write_tables(rows, bench.facts, out)
    figure = speed_figure(rows, out / "speed.png")
    if as_json:
        for row in rows:
            say_json(row)
    else:
        _print(rows, bench.facts, [*written, *([figure] if figure else [])])


def _print(rows: Sequence[dict[str, object]], facts: dict[str, object], written: Sequence[Path]) -> None:
    """Print the headline, every row, and their explanation."""
    from excite.experiments.speed.report import about, columns, headline

    top = headline(rows)
    if top:
        print_columns(top)
        say()
    print_columns([columns(row) for row in rows])
    say()
    for sentence in about(rows, facts):
        say(sentence)
    say(f"written: {', '.join(map(str, written))}")
