"""Options that several commands share: which classifier."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["FullyConvolutional", "LabelsFile", "Model", "ModelArgument", "Size", "Weights"]

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
