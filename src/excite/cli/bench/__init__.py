"""``excite bench``: does it work, and on what?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.bench import grounding, localization, pointing
from excite.cli.bench import speed as bench_speed
from excite.cli.console import print_columns, progress, say, say_json
from excite.cli.options import Address, Engine, Workers, executor_of, group

if TYPE_CHECKING:
    from collections.abc import Mapping

app = group("Measure the engine itself, and how well its maps point and box.")
app.command("pointing", epilog=pointing.EXAMPLES)(pointing.command)
app.command("localization", epilog=localization.EXAMPLES)(localization.command)
app.command("grounding", epilog=grounding.EXAMPLES)(grounding.command)
app.command("speed", epilog=bench_speed.EXAMPLES)(bench_speed.command)


@app.command()
def conservation(
    family: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only families and models whose name contains this.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Only those of torchvision, or only those of timm.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same weights.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder for results; a run that was stopped goes on there.")] = Path(
        "excite-out"
    ),
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line for each model.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the table as a page of documentation.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the models and stop.")] = False,
) -> None:
    """Does all of the signal arrive? Every classifier family of torchvision and timm, with random weights.

    Ends with 1 if any answer is wrong: negative or too much probability, other values than the plain network, a crash.
    """
    from excite.experiments.conservation.networks import architectures
    from excite.experiments.conservation.page import columns, page
    from excite.experiments.conservation.run import FIELDS, Conservation
    from excite.io.files import save_text
    from excite.jobs import open_results
    from excite.jobs.loop import run

    executor = executor_of(workers, engine, address)
    chosen = architectures(source, family)
    if only_list:
        listed = [{"source": each.source, "family": each.family, "model": each.name} for each in chosen]
        say_json(listed) if as_json else print_columns(listed)
        return
    store = open_results(out / "conservation.jsonl", FIELDS, parquet=executor.is_cluster)
    rows = []
    for row in progress(run(Conservation(seed), chosen, store, workers=executor), len(chosen), "networks"):
        rows.append(row)
        say_json(row) if as_json else say(_line(columns(row)))
    if markdown is not None:
        save_text(page(rows, seed), markdown)
    if any(row["status"] == "wrong" for row in rows):
        raise typer.Exit(1)


def _line(columns: Mapping[str, str]) -> str:
    """A row for the terminal: its status first, and then numbers and reasons."""
    _, model, status, *numbers, words = columns
    parts = [f"{name} {columns[name]}" for name in numbers if columns[name]] + [columns[words]] * bool(columns[words])
    return f"{columns[status]:9}  {columns[model]:45}  {', '.join(parts)}"
