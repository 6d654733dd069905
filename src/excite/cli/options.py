"""Options that several commands share: which classifier, and who does the work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from excite.jobs import Crew
    from excite.tags.corpus import ColumnNames

__all__ = [
    "Address",
    "Columns",
    "CorpusArgument",
    "Engine",
    "FullyConvolutional",
    "Hints",
    "LabelsFile",
    "Model",
    "ModelArgument",
    "ProposalsFrom",
    "Size",
    "Weights",
    "Workers",
    "columns_of",
    "crew_of",
    "folder_name",
]

NOT_IN_NAMES = re.compile(r"[^\w.-]+")  # what a model's name may hold and a folder's should not
MODEL_HELP = "The classifier: a name of `excite ls models`, torchvision:NAME, timm:NAME, or a Caffe or weights file."

Model = Annotated[str, typer.Option(help=MODEL_HELP)]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
Weights = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Weights for it: safetensors, a state dict, a .caffemodel; or `random`."),
]
LabelsFile = Annotated[
    str | None, typer.Option("--labels", metavar="FILE", help="Its labels: one a line, synonyms after commas; or JSON.")
]
Size = Annotated[
    int | None, typer.Option(min=1, help="The shorter side of the pictures it sees; by default as it was trained.")
]
FullyConvolutional = Annotated[
    bool | None,
    typer.Option(
        "--fully-convolutional/--whole-picture",
        help="Answer for each window of its training size, or once for the picture; by default as it needs.",
    ),
]
ProposalsFrom = Annotated[
    str,
    typer.Option(
        "--proposals",
        metavar="NAME|FILE|FOLDER",
        help="The regions to choose from: hierarchy, edge-boxes, selective-search; or files.",
    ),
]
Hints = Annotated[
    bool,
    typer.Option(
        "--hints/--no-hints", help='Whether "left", "red" and such words weigh the map, and the main word counts more.'
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="How many processes work at the same time; 1 if none, or with --engine ray one for each CPU.",
    ),
]
Engine = Annotated[str, typer.Option(metavar="local|ray", help="Work on this machine, or on a Ray cluster of many.")]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The Ray cluster: HOST:PORT, ray://HOST:PORT, auto or local; the one that is there if none, or a new one.",
    ),
]
CorpusArgument = Annotated[
    Path,
    typer.Argument(metavar="CORPUS", help="A Parquet file with the columns image, tags, user; or a folder of such."),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAME=COLUMN,...", help="What image, tags and user are called there, as in tags=keywords."),
]


def columns_of(said: str | None, *, users_needed: bool = True) -> ColumnNames:
    """What the columns of a corpus are called, as somebody has said; a column of users that is named must be there.

    Example:
        >>> columns_of("tags=keywords,user=owner")
        ColumnNames(image='image', tags='keywords', user='owner', users_needed=True)
    """
    from excite.tags.corpus import ColumnNames

    usual = {"image": "image", "tags": "tags", "user": "user"}
    for pair in said.split(",") if said else []:
        name, equals, column = pair.partition("=")
        if name not in usual or not equals or not column:
            raise typer.BadParameter(f"--columns names image, tags or user, as in tags=keywords, not {pair!r}")
        usual[name] = column
        users_needed |= name == "user"
    return ColumnNames(**usual, users_needed=users_needed)


def crew_of(workers: int | None, engine: str, address: str | None) -> Crew:
    """Who does the work, checked before anything heavy is loaded.

    Example:
        >>> crew_of(2, "local", None).workers
        2
    """
    from excite.jobs import ENGINES, Crew

    if engine not in ENGINES:
        raise typer.BadParameter(f"there is no engine {engine!r}: choose {' or '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise typer.BadParameter("--address is that of a Ray cluster: give --engine ray too")
    return Crew(engine, workers, address)


def folder_name(model: str) -> str:
    """What a model is called in the name of a folder.

    Example:
        >>> folder_name("torchvision:resnet18")
        'torchvision-resnet18'
    """
    return NOT_IN_NAMES.sub("-", model)
