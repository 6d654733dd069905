"""``excite ground``: the regions of an image that phrases refer to."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from excite import DEFAULT_MODEL
from excite.cli import options
from excite.cli.console import complain, note, print_columns, say, say_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.grounding import Grounded

EXAMPLES = """\b
Examples:
  excite ground photo.jpg "a man in a red hat"           its five best regions, and an image of them
  excite ground photo.jpg "the left dog" "a ball" --json two phrases at once, for a program
  excite ground photo.jpg --phrases captions.txt         a phrase a line
  excite ground photo.jpg "a dog" --proposals edge-boxes --gamma 0.25
"""


@options.grouped
def command(
    *,
    photo: Annotated[Path, Argument(metavar="PHOTO", help="An image.")],
    phrases: Annotated[
        list[str] | None,
        Argument(metavar="PHRASE", help="What to look for, in English; one phrase in quotes, or several."),
    ] = None,
    phrases_file: Annotated[Path | None, Option("--phrases", metavar="FILE", help="More phrases: one a line.")] = None,
    model: options.Model = DEFAULT_MODEL,
    classifiers: options.ClassifierOptions,
    layer: options.Layer = None,
    method: options.Method = None,
    proposals: options.ProposalsFrom = "hierarchy",
    cache: Annotated[Path | None, Option(metavar="FOLDER", help="Cache the proposed regions there.")] = None,
    gamma: Annotated[
        float | None, Option(help="Exponent of the area: 0 ranks regions by the sum of the map in them, 1 by its mean.")
    ] = None,
    trust: Annotated[
        float | None,
        Option(help="Weight of the regions' own order, 0 to 1; 0: the map alone decides, as in the paper."),
    ] = None,
    side: Annotated[
        int | None, Option(min=1, help="The shorter side of the classifier's input; 300, or --size.")
    ] = None,
    hints: options.Hints = True,
    most: Annotated[int, Option(min=1, metavar="N", help="The largest number of regions.")] = 5,
    out: Annotated[
        Path, Option(help="The folder for images; or the name of one, ending in .png, for one phrase.")
    ] = Path("excite-out"),
    overlays: options.Overlays = True,
    as_json: options.AsJson = False,
) -> None:
    """Rank the regions of an image that phrases refer to, and draw them with the map of each word."""
    from excite.grounding import ground
    from excite.grounding.ground import GAMMA, METHOD, MOST_GAMMA
    from excite.grounding.phrase_maps import SIDE
    from excite.grounding.proposals import find_proposer
    from excite.grounding.scoring import TRUST
    from excite.images import read_image
    from excite.methods import find_method
    from excite.models import Choice

    texts = [*(phrases or []), *(_phrases_of(phrases_file) if phrases_file else [])]
    if not texts:
        raise typer.BadParameter('say what to look for: a phrase in quotes, such as "a man in a red hat"')
    if overlays and _is_picture(out) and len(texts) > 1:
        raise typer.BadParameter(f"--out {out} is one image for {len(texts)} phrases: name a folder")
    how: dict[str, Any] = {
        "method": find_method(METHOD if method is None else method).name,
        "layer": layer,
        "gamma": GAMMA if gamma is None else _checked("--gamma", gamma, MOST_GAMMA),
        "trust": TRUST if trust is None else _checked("--trust", trust, 1),
        "side": side or classifiers.size or SIDE,
        "hints": hints,
        "most": most,
    }
    picture = read_image(photo)
    found = find_proposer(proposals, cache).of(picture, photo.name, photo)
    choice = Choice(model, **vars(classifiers))
    classifier = choice.load()
    grounded = ground(classifier, picture, texts, proposals=found, **how)
    asked = [*asdict(choice).values(), layer, how["method"], proposals, how["gamma"], how["trust"], side, hints, most]
    understood = [one for one in grounded if one.map.understood]
    drawn = _draw(understood, photo, out, asked) if overlays and understood else []
    files = dict(zip(map(id, understood), drawn, strict=overlays))
    for one in understood:
        if not one.map.known:
            note(f"{classifier.name} knows no thing in {one.phrase!r}: the answer is what it finds there in the image")
    refused = [one.phrase for one in grounded if not one.map.understood]
    if as_json:
        answer = {
            "image": str(photo),
            "model": classifier.name,
            "method": how["method"],
            "layer": grounded[0].map.words[0].layer,
            "gamma": how["gamma"],
            "trust": how["trust"],
            "proposals": proposals,
            "phrases": [{**one.to_json(), "picture": files.get(id(one))} for one in grounded],
        }
        say_json(answer)
    for number, one in enumerate(() if as_json else understood):
        if number:
            say()
        _print(one, files.get(id(one)))
    for phrase in refused:
        complain(f"{classifier.name} knows no word of {phrase!r}: name things to see, see `excite ls labels`")
    if refused:
        raise typer.Exit(1)


def _phrases_of(file: Path) -> list[str]:
    """The lines of a file that are not blank; the others are counted in a note."""
    from excite.datasets.base import read_lines
    from excite.errors import DataError

    lines = list(read_lines(file))
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise DataError(f"{str(file)!r} holds no phrase: write one a line")
    if len(texts) < len(lines):
        note(f"blank lines of {str(file)!r} skipped: {len(lines) - len(texts)}")
    return texts


def _checked(name: str, value: float, most: float) -> float:
    """A number within its range; typer's own check accepts NaN."""
    if not 0 <= value <= most:
        limit = "" if most == 1 else f", {most:g} at most"
        raise typer.BadParameter(f"{name} is a number from 0 to 1{limit}, not {value}")
    return value


def _is_picture(out: Path) -> bool:
    return out.suffix.lower() == ".png" and not out.is_dir()


def _draw(grounded: Sequence[Grounded], photo: Path, out: Path, asked: Sequence[object]) -> list[str]:
    """Draw each phrase; return the files. ``asked`` holds all other settings that the drawings depend on."""
    from excite.grounding.ground import as_map
    from excite.io.drawn import draw, file_names, map_names

    if _is_picture(out):
        return [str(draw(grounded[0].figure(), out))]
    names = map_names(file_names([photo])[photo], [as_map(one) for one in grounded])
    question = ["ground", os.path.realpath(photo), *asked]
    return [
        str(draw(one.figure(), out / f"{name}.png", [*question, one.phrase]))
        for one, name in zip(grounded, names, strict=True)
    ]


def _print(grounded: Grounded, file: str | None) -> None:
    """Print its words, hints and skipped words, its regions, its point, and the file of its figure."""
    from excite.grounding.ground import span_of, unused_spans
    from excite.readouts.figure import percent

    reading, words, hints, point = grounded.map.reading, grounded.map.words, grounded.map.hints, grounded.point
    say(grounded.phrase, bold=True)
    rows = [
        {"word": word.text, "meaning": one.concept, "probability": percent(one.probability), "mass": f"{one.mass:.3f}"}
        for word, one in zip(reading.words, words, strict=grounded.map.known)
    ]
    if rows:
        print_columns(rows)
    for what, spans in (("weighed by", [*map(span_of, hints)]), ("skipped", unused_spans(reading, hints))):
        if spans:
            say(f"{what}: {', '.join(reading.text[start:end] for start, end in spans)}")
    regions = [
        {"rank": rank, "box": ", ".join(f"{side:.0f}" for side in region.box), "score": f"{region.score:.4g}"}
        for rank, region in enumerate(grounded.regions, 1)
    ]
    print_columns(regions) if regions else say(f"regions: none, {grounded.reason}")
    say(f"point: {'nowhere' if point is None else '{}, {}'.format(*point)}")
    if file is not None:
        say(f"written: {file}")
