"""The photos that were found as pictures: a contact sheet and a page, with the evidence marked in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.io.files import save_bytes, save_png
from excite.readouts.figure import figure, percent
from excite.readouts.gallery import Card, file_link, write_gallery
from excite.readouts.notebook import jpeg
from excite.readouts.overlay import overlay
from excite.search.query import Answer, Match, evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from PIL import Image

    from excite.search.photos import PhotoIndex

COLUMNS, WIDTH, QUALITY = 5, 320, 85  # of a contact sheet, of a photo on it, and of its JPEG

Drawn = tuple["Match", "Image.Image"]


def draw_matches(index: PhotoIndex, answer: Answer) -> Iterator[Drawn]:
    """Each photo that was found, made smaller, with its evidence and the place where most of it is."""
    for match in answer.matches:
        picture, found = evidence(index, answer.question, match.path, hints=True)
        marked = overlay(picture, torch.from_numpy(found.plane), point=found.point)
        marked.thumbnail((WIDTH, WIDTH))
        yield match, marked


def save_sheet(path: Path, shown: Iterable[Drawn]) -> Path:
    """Write a contact sheet: a PNG if the file is called so, else a JPEG."""
    cells = [(picture, f"{match.path.name}\n{percent(match.probability)}") for match, picture in shown]
    sheet = figure([cells[at : at + COLUMNS] for at in range(0, len(cells), COLUMNS)], cell_width=WIDTH)
    return save_png(sheet, path) if path.suffix.lower() == ".png" else save_bytes(jpeg(sheet, QUALITY), path)


def save_page(path: Path, answer: Answer, photos: Path, shown: Iterable[Drawn]) -> Path:
    """Write a page that needs no other file; the photos in the folder ``photos`` are behind the pictures."""
    cards = (
        Card(picture, str(match.path.relative_to(photos)), file_link(match.path.resolve(), path.resolve()), match.each)
        for match, picture in shown
    )
    return write_gallery(path, answer.question.text, cards, answer.summary())
