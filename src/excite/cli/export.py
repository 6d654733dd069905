"""``excite export``: a network and its maps in one file, for other runtimes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excite.cli.console import print_columns, say, say_json
from excite.cli.options import FullyConvolutional, LabelsFile, ModelArgument, Weights

if TYPE_CHECKING:
    from excite.export.export import Exported

EXAMPLES = """\b
Examples:
  excite export efficientnet-lite0 --onnx map.onnx                     at its own layer, c-mwp
  excite export vgg16 --weights FILE --layer pool3 --method mwp --pt2 map.pt2
  excite export everyday --onnx map.onnx --check photo.jpg --check holiday/
"""


def command(
    model: ModelArgument,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an ONNX file, its name in .onnx.")] = None,
    pt2: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a file of torch.export, in .pt2.")] = None,
    layer: Annotated[str | None, typer.Option(help="The layer of the map; see `excite ls layers`.")] = None,
    method: Annotated[str, typer.Option(metavar="c-mwp|mwp", help="The method of the map.")] = "c-mwp",
    weights: Weights = None,
    labels: LabelsFile = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="HxW", help="Height and width of the images; by default those of its training."),
    ] = None,
    fully_convolutional: FullyConvolutional = None,
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic/--no-dynamic", help="Serve batches and, where the network can, other sizes; or a single image."
        ),
    ] = True,
    check: Annotated[
        list[str] | None,
        typer.Option(metavar="PICTURE", help="Check the file on these images or folders; by default on noise."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The largest number of images for the check.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a network with its maps into one file: image and signal in, map out.

    The file is compared with the library before it is put in place: it is written only if both agree to 1e-4.
    """
    from excite.export.export import export
    from excite.images import find_images, read_image
    from excite.models import Choice

    path = _path(onnx, pt2)
    sides = _sides(size)
    photos = find_images(check)[:limit] if check else []
    classifier = Choice(model, weights, labels, None, fully_convolutional).load()
    pictures = [read_image(photo) for photo in photos]
    found = export(classifier, path, layer=layer, method=method, size=sides, dynamic=dynamic, pictures=pictures)
    if as_json:
        say_json(found.to_dict())
    else:
        _print(found)


def _path(onnx: Path | None, pt2: Path | None) -> Path:
    """The file of the one format, with the suffix of that format."""
    if (onnx is None) == (pt2 is None):
        raise typer.BadParameter("say which file to write: --onnx FILE or --pt2 FILE")
    path, suffix = (onnx, ".onnx") if onnx is not None else (pt2, ".pt2")
    if path is None or path.suffix != suffix:
        raise typer.BadParameter(f"{str(path)!r} is no name for it: end it in {suffix}")
    return path


def _sides(size: str | None) -> tuple[int, int] | None:
    if size is None:
        return None
    given = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", size)
    if given is None:
        raise typer.BadParameter(f"{size!r} is no size: give height and width as in 224x320, or one side of a square")
    return int(given[1]), int(given[2] or given[1])


def _print(found: Exported) -> None:
    facts = found.facts
    sizes = facts["sizes"]
    what = f"{found.agreement.pictures} image{'s' if found.agreement.pictures > 1 else ''}"
    print_columns(
        [
            {
                "file": str(found.path),
                "MB": f"{found.path.stat().st_size / 1e6:.1f}",
                "model": facts["model"],
                "layer": facts["layer"],
                "method": facts["method"],
                "pictures": sizes["serves"],
                "batch": str(sizes["batch"]),
            }
        ]
    )
    say(
        f"checked on {what}: the map differs by at most {found.agreement.map:.1e} of its sum, "
        f"the output by {found.agreement.output:.1e} of its largest score (least sum of a map: "
        f"{found.agreement.faintest:.1e} of the signal)"
    )
