"""``excite attend`` and ``excite boxes``: where in these images is the evidence? Maps, or boxes for a detector."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from excite import DEFAULT_MODEL
from excite.cli import options
from excite.cli.console import note, print_columns, progress, say, say_json, tell_failures
from excite.cli.help import completes

EXAMPLES = """\b
Examples:
  excite attend photo.jpg                                its five best findings
  excite attend photo.jpg tabby 761 --json               two concepts, for a program
  excite attend photo.jpg cat --against dog              cat, not dog
  excite attend holiday/ --out maps                      a folder: a line for each image, and maps/index.html
  excite attend holiday/ dog --at-least 0.2 --workers 4  where are dogs? stopped, it can be resumed
  excite attend photo.jpg --model timm:convnext_tiny     another classifier
"""
KINDS = ("jpg", "png")  # of overlays
BOXES_EXAMPLES = """\b
Examples:
  excite boxes photos/ --concept dog --concept cat      where are dogs and cats in these images?
  excite boxes photos/ --concepts-from-folders          photos/dog/1.jpg shows a dog, photos/cat/1.jpg a cat
  excite boxes photos/ --concept dog --draw             and draw them; see excite-out/boxes/index.html
  excite boxes photos/ --concept dog --format yolo      for a detector; label-studio: to correct them by hand
  excite boxes photos/ --format csv --at-least 0.8      the best finding in each image, if it is probable
"""


@options.grouped
def command(
    *,
    photo: Annotated[str, Argument(metavar="PHOTO", help="An image, a folder, or a pattern in quotes.")],
    concepts: Annotated[
        list[str] | None,
        Argument(
            metavar="CONCEPT",
            help="What to look for: labels, synonyms, everyday words or indices; nothing for the classifier's five "
            "best findings. More images may come before.",
        ),
    ] = None,
    model: options.Model = DEFAULT_MODEL,
    classifiers: options.ClassifierOptions,
    layer: Annotated[
        list[str] | None,
        Option(
            help="Where to read the map, may be given several times; see `excite ls layers`.",
            autocompletion=completes("layers"),
        ),
    ] = None,
    method: options.Method = None,
    contrast: Annotated[
        bool | None, Option("--contrast/--no-contrast", help="c-mwp (the default) or plain mwp.")
    ] = None,
    against: Annotated[
        list[str] | None, Option(help='Contrast with this concept: "cat" --against dog. May be given several times.')
    ] = None,
    alpha: Annotated[
        float | None,
        Option(help="Instead of the boxes of objects, that around what is above this many means of the map."),
    ] = None,
    style: Annotated[
        str, Option(metavar="STYLE", help="How maps are drawn: heat (colours), spotlight, or contours.")
    ] = "heat",
    jobs: options.JobOptions,
    out: Annotated[Path, Option(help="The folder for overlays and results.")] = Path("excite-out"),
    at_least: Annotated[
        float,
        Option(min=0, max=1, metavar="P", help="Of several images: box, print, draw what is at least so probable."),
    ] = 0.5,
    most: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Of several images: draw at most so many concepts of each; 1, or all if you name concepts.",
        ),
    ] = None,
    overlays: options.Overlays = True,
    kind: Annotated[str, Option("--format", metavar="jpg|png", help="How to write the overlays.")] = "jpg",
    full_size: Annotated[
        bool, Option("--full-size", help="Draw overlays as large as the image, not at most 1600 pixels.")
    ] = False,
    arrays: Annotated[bool, Option("--arrays", help="Also save each map as NPY, and draw each.")] = False,
    fresh: options.Fresh = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line for each image.")] = False,
) -> None:
    """Draw where a classifier sees each concept, and print probability, point, box and mass.

    Of several images: a line for each with what is found in it, and all of them on a page, index.html.
    """
    from excite.autolabel.batch import LONGEST, AttendQuery, Batch, Drawing, split_arguments
    from excite.errors import MethodError
    from excite.methods import find_method
    from excite.models import Choice
    from excite.readouts.box import checked_alpha
    from excite.readouts.overlay import checked_style

    if kind not in KINDS:
        raise typer.BadParameter(f"there are no overlays of the format {kind!r}: choose {' or '.join(KINDS)}")
    executor = jobs.executor()
    photos, wanted = split_arguments([photo, *(concepts or [])], out)
    choice = Choice(model, **vars(classifiers))
    if method is not None and contrast is not None:
        raise MethodError("--method already says whether to contrast: give either --method or --contrast/--no-contrast")
    name = find_method(method or ("mwp" if contrast is False else "c-mwp")).name
    layers, others = tuple(layer or ()) or None, tuple(against or ())
    threshold = None if alpha is None else checked_alpha(alpha)
    query = AttendQuery(choice, tuple(wanted) or None, layers, name, others, threshold)
    size = None if full_size else LONGEST
    drawing = Drawing(at_least, most or (None if wanted else 1), kind, size, style=checked_style(style))
    given = drawing if overlays else None
    batch = Batch(query, out, drawing=given, arrays=arrays, fresh=fresh, at_least=at_least)
    for answer in progress(batch.answers(photos, executor), len(photos)):
        if as_json:
            say_json(answer)
        elif len(photos) > 1:
            say(f"{answer['image']}  {_findings(answer['maps'], drawing.shown(answer['maps']), at_least)}")
        else:
            say(answer["image"], bold=True)
            print_columns([_row(found) for found in answer["maps"]])
    if batch.page and not as_json:
        say(f"written: {batch.page}")
    tell_failures(batch.failures, len(photos))


def _findings(maps: list[dict[str, Any]], shown: dict[str, float], at_least: float) -> str:
    """What is in an image, on one line; where nothing is probable enough, the most probable."""
    from excite.readouts.figure import percent

    if shown:
        return ", ".join(f"{concept} {percent(probability)}" for concept, probability in shown.items())
    best = max(maps, key=lambda found: found["probability"])
    return f"nothing at least {percent(at_least)} probable; most: {best['concept']} {percent(best['probability'])}"


def _row(found: dict[str, Any]) -> dict[str, str]:
    point, box, probability = found["point"], found["box"], found["probability"]
    return {
        "concept": found["concept"],
        "probability": "<0.1%" if probability < 0.001 else f"{probability:.1%}",
        "point": "nowhere" if point is None else "{}, {}".format(*point),
        "box": "none" if box is None else "; ".join("{}, {}, {}, {}".format(*each) for each in found["boxes"]),
        "mass": f"{found['mass']:.3f}",
        "layer": found["layer"],
        "method": found["method"],
        "overlay": found["overlay"] or "",
    }


@options.grouped
def boxes_command(
    *,
    folders: Annotated[
        list[str], Argument(metavar="FOLDER", help="Folders of images; or images, or patterns in quotes.")
    ],
    concept: Annotated[
        list[str] | None,
        Option(help="Look for this in every image; may be given several times. None: the best finding."),
    ] = None,
    from_folders: Annotated[
        bool, Option("--concepts-from-folders", help="Look for what the folder is called in which an image lies.")
    ] = False,
    at_least: Annotated[
        float | None,
        Option(
            min=0, max=1, metavar="P", help="No box for what is less probable; 0.5, or 0 with --concepts-from-folders."
        ),
    ] = None,
    draw: Annotated[
        bool, Option("--draw", help="Also draw the boxes, with their names, and show all images on a page, index.html.")
    ] = False,
    kind: Annotated[
        str, Option("--format", help="How to write the boxes: coco, csv, voc, yolo or label-studio.")
    ] = "coco",
    model: options.Model = DEFAULT_MODEL,
    weights: options.Weights = None,
    labels: options.LabelsFile = None,
    size: options.Size = None,
    device: options.Device = "auto",
    method: options.Method = None,
    layer: options.Layer = None,
    alpha: Annotated[float | None, Option(help="The box surrounds what is above this many means of the map.")] = None,
    jobs: options.JobOptions,
    out: Annotated[Path, Option(help="The folder for the files; a run that was stopped goes on there.")] = Path(
        "excite-out/boxes"
    ),
    fresh: options.Fresh = False,
    as_json: options.AsJson = False,
) -> None:
    """Write boxes around what your images show, for a detector to learn from.

    All that has to be known is what an image shows, not where. Stopped and started again, it goes on where it was.
    """
    from excite.autolabel import AutoLabeler, BoxQuery, find_format
    from excite.autolabel.run import substitutions
    from excite.methods import find_method
    from excite.models import Choice
    from excite.readouts.box import checked_alpha

    if concept and from_folders:
        raise typer.BadParameter("--concepts-from-folders already says what to look for: leave --concept out")
    executor = jobs.executor()
    find_format(kind)
    how = {
        "method": None if method is None else find_method(method).name,
        "layer": layer,
        "alpha": None if alpha is None else checked_alpha(alpha),
    }
    given = {name: value for name, value in how.items() if value is not None}
    query = BoxQuery(tuple(concept or ()), from_folders, at_least, given)
    classifier = Choice(model, weights, labels, size, device=device).load()
    labeler = AutoLabeler(classifier, folders, out, query, kind, fresh=fresh, drawn=draw)
    if taken := substitutions(labeler.targets):
        note(f"taken {taken}")
    answer = labeler.write(workers=executor, progress=progress)
    say_json(answer) if as_json else _print_boxes(answer)
    tell_failures(answer["failures"], answer["pictures"])


def _print_boxes(answer: dict[str, Any]) -> None:
    if answer["concepts"]:
        print_columns([{"concept": name, "boxes": count} for name, count in answer["concepts"].items()])
    read = answer["pictures"] - len(answer["failures"])
    say(f"boxes: {answer['boxes']}, in {read - answer['without']} of {read} images of {answer['folder']}")
    for line in answer["notes"]:
        say(line)
    say(f"written: {', '.join(answer['files'])}")
