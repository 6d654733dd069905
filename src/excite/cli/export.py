"""``excite export``: a network and its maps in one file, for other runtimes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from excite.cli import options
from excite.cli.console import print_columns, say, say_json

if TYPE_CHECKING:
    from excite.export.export import Exported

EXAMPLES = """\b
Examples:
  excite export efficientnet-lite0 --onnx map.onnx                     at its own layer, c-mwp
  excite export vgg16 --weights FILE --layer pool3 --method mwp --pt2 map.pt2
  excite export everyday --onnx map.onnx --check photo.jpg --check holiday/
"""


def command(
    model: options.ModelArgument,
    onnx: Annotated[Path | None, Option(metavar="FILE", help="Write an ONNX file, its name in .onnx.")] = None,
    pt2: Annotated[Path | None, Option(metavar="FILE", help="Write a file of torch.export, in .pt2.")] = None,
    layer: options.Layer = None,
    method: Annotated[str, Option(metavar="c-mwp|mwp", help="The method of the map.")] = "c-mwp",
    weights: options.Weights = None,
    labels: options.LabelsFile = None,
    size: Annotated[
        str | None, Option(metavar="HxW", help="Height and width of the images; by default those of its training.")
    ] = None,
    fully_convolutional: options.FullyConvolutional = None,
    dynamic: Annotated[
        bool,
        Option(
            "--dynamic/--no-dynamic", help="Serve batches and, where the network can, other sizes; or a single image."
        ),
    ] = True,
    check: Annotated[
        list[str] | None,
        Option(metavar="PICTURE", help="Check the file on these images or folders; by default on noise."),
    ] = None,
    limit: Annotated[int | None, Option(min=1, help="The largest number of images for the check.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a network with its maps into one file: image and signal in, map out.

    The file is compared with the library before it is put in place: it is written only if both agree to 1e-4.
    """
    from excite.export.export import export
    from excite.images import find_images, read_image
    from excite.models import Choice

    path, sides = _path(onnx, pt2), None if size is None else _sides(size)
    photos = find_images(check)[:limit] if check else []
    classifier = Choice(model, weights, labels, None, fully_convolutional).load()
    pictures = [read_image(photo) for photo in photos]
    found = export(classifier, path, layer=layer, method=method, size=sides, dynamic=dynamic, pictures=pictures)
    say_json(found.to_dict()) if as_json else _print(found)


def _path(onnx: Path | None, pt2: Path | None) -> Path:
    """The file of the one format, with the suffix of that format."""
    given = [(path, suffix) for path, suffix in ((onnx, ".onnx"), (pt2, ".pt2")) if path is not None]
    if len(given) != 1:
        raise typer.BadParameter("say which file to write: --onnx FILE or --pt2 FILE")
    ((path, suffix),) = given
    if path.suffix != suffix:
        raise typer.BadParameter(f"{str(path)!r} is no name for it: end it in {suffix}")
    return path


def _sides(size: str) -> tuple[int, int]:
    given = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", size)
    if given is None:
        raise typer.BadParameter(f"{size!r} is no size: give height and width as in 224x320, or one side of a square")
    return int(given[1]), int(given[2] or given[1])


def _print(found: Exported) -> None:
    facts, agreement = found.facts, found.agreement
    row = {
        "file": str(found.path),
        "MB": f"{found.path.stat().st_size / 1e6:.1f}",
        **{name: facts[name] for name in ("model", "layer", "method")},
        "pictures": facts["sizes"]["serves"],
        "batch": str(facts["sizes"]["batch"]),
    }
    print_columns([row])
    say(
        f"checked on {agreement.pictures} image{'s' if agreement.pictures > 1 else ''}: the map differs by at most "
        f"{agreement.map:.1e} of its sum, the output by {agreement.output:.1e} of its largest score (least sum of a "
        f"map: {agreement.faintest:.1e} of the signal)"
    )
