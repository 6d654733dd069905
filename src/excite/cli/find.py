"""``excite find``: rank a folder of photos by words."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from excite import DEFAULT_MODEL
from excite.cli import options
from excite.cli.console import note, print_columns, progress, say, say_json, tell_failures

if TYPE_CHECKING:
    from excite.search import Answer, PhotoIndex

EXAMPLES = """\b
Examples:
  excite find holiday/ "a yellow surfboard"              the 20 most probable photos
  excite find holiday/ "dog -cat" --at-least 0.5         a dog, and no cat
  excite find holiday/ dog sofa --page dogs.html         both, on a page with the evidence marked
  excite find holiday/ --workers 4                       bring the index up to date, ask nothing
  excite find /mnt/cd dog --index cd.sqlite --json       the index elsewhere; for a program
"""


@options.grouped
def command(
    *,
    photos: Annotated[Path, Argument(metavar="PHOTOS", help="The folder of photos, at any depth.")],
    words: Annotated[
        list[str] | None,
        Argument(metavar="WORDS", help='What they show: "a dog on a sofa"; "dog -cat" for a dog and no cat.'),
    ] = None,
    most: Annotated[int, Option(min=1, metavar="N", help="The largest number of photos.")] = 20,
    at_least: Annotated[
        float, Option(min=0, max=1, metavar="P", help="Leave out photos that are less probable.")
    ] = 0.0,
    hints: Annotated[
        bool, Option("--hints/--no-hints", help='Whether "left", "red" and such words rank the best photos again.')
    ] = True,
    page: Annotated[
        Path | None, Option(metavar="FILE.html", help="Write a page of the photos with the evidence marked in each.")
    ] = None,
    sheet: Annotated[Path | None, Option(metavar="FILE.jpg", help="Write a contact sheet of them.")] = None,
    csv: Annotated[Path | None, Option("--csv", metavar="FILE", help="Write the list as CSV.")] = None,
    model: options.Model = DEFAULT_MODEL,
    classifiers: options.ClassifierOptions,
    index: Annotated[
        Path | None, Option(metavar="FILE", help="The index; .excite-index.sqlite in the folder if none.")
    ] = None,
    update: Annotated[
        bool, Option("--update/--no-update", help="Whether to look first for photos that are new, changed or gone.")
    ] = True,
    thumbnails: Annotated[
        bool, Option("--thumbnails/--no-thumbnails", help="Whether the index has small images.")
    ] = True,
    fresh: Annotated[bool, Option("--fresh", help="Make the index again.")] = False,
    jobs: options.JobOptions,
    as_json: options.AsJson = False,
) -> None:
    """Rank a folder of photos by words. An index is made beside them once, and kept up to date."""
    from excite.errors import ConceptError
    from excite.models import Choice
    from excite.search import PhotoIndex, read_question

    executor, text, failed = jobs.executor(), " ".join(words or []), list[str]()
    _check_names(page, sheet)
    classifier = Choice(model, **vars(classifiers)).load()
    told: dict[str, Any] = {"model": classifier.name}
    try:
        if text and classifier.labels is not None:
            read_question(text, classifier.labels)  # an error now, not after a thousand photos
        found = PhotoIndex(photos, classifier, file=index, thumbnails=thumbnails, fresh=fresh)
        told["index"] = str(found.file.path)
        if update:
            changes = found.update(workers=replace(executor, all_threads=True), progress=progress)
            failed = changes.unreadable
            told["changes"] = {**asdict(changes), "unreadable": len(failed)}
        told["unreadable"] = found.unreadable()
        answer = found.query(text, most=most, at_least=at_least, hints=hints, progress=progress) if text else None
    except ConceptError as error:
        if as_json:
            say_json({**told, "words": text, "matches": [], "error": str(error)})
        raise
    if answer is not None:
        _write(found, answer, page, sheet, csv)
    if as_json:
        say_json({**told, **({"photos": len(found)} if answer is None else answer.to_dict())})
    elif answer is None:
        say(f"{len(found)} photos in {found.file.path}")
    else:
        _print(answer)
    earlier = len(told["unreadable"]) - len(failed)
    if earlier:
        note(f"photos that could not be read before, and have not changed: {earlier}; --json lists them")
    tell_failures(failed, len(found) + len(told["unreadable"]))


def _check_names(page: Path | None, sheet: Path | None) -> None:
    """Check the names of files before anything is computed."""
    from excite.readouts.gallery import check_gallery

    if page is not None:
        check_gallery(page)
    if sheet is not None and sheet.suffix.lower() not in {".jpg", ".jpeg", ".png"}:
        raise typer.BadParameter(f"--sheet {sheet} is a picture: let its name end in .jpg or .png")


def _write(found: PhotoIndex, answer: Answer, page: Path | None, sheet: Path | None, csv: Path | None) -> None:
    """Write the files that were asked for; each photo is drawn once."""
    from excite.io.files import save_csv
    from excite.search.report import draw_matches, save_page, save_sheet

    if csv is not None:
        header = ["photo", "probability", "weight", *answer.question.names]
        rows = ([one.path, one.probability, one.weight, *one.each.values()] for one in answer.matches)
        save_csv([header, *rows], csv)
    if not answer.matches or (page is None and sheet is None):
        return
    shown = list(progress(draw_matches(found, answer), len(answer.matches), "pictures"))
    if page is not None:
        save_page(page, answer, found.folder, shown)
    if sheet is not None:
        save_sheet(sheet, shown)


def _print(answer: Answer) -> None:
    from excite.readouts.figure import percent

    several = answer.question.names if len(answer.question.names) > 1 else ()
    rows = [
        {
            "probability": percent(one.probability),
            **{name: percent(one.each[name]) for name in several},
            "photo": one.path,
        }
        for one in answer.matches
    ]
    if rows:
        print_columns(rows)
    note(answer.summary())
