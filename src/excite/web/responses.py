"""The answers to programs as plain values. Points and boxes are told in pixels of the image as it was sent."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from PIL import Image

from excite.readouts.box import strong_box
from excite.readouts.notebook import jpeg
from excite.readouts.point import peak
from excite.web.errors import RefusedError, noting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol, TypeVar

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.web.schemas import AttendQuestion, GroundQuestion
    from excite.web.service import Service
    from excite.web.uploads import Sheet

    Result = TypeVar("Result")

    class Hands(Protocol):
        """Who finds the images and draws."""

        service: Service

        def take(self, image: bytes) -> Sheet:
            """Keep an image."""

        def sheet(self, image: bytes | None, key: str | None) -> Sheet:
            """The image of a question."""

        def draw(self, work: Callable[[], Result]) -> Result:
            """Draw when it is one's turn."""


# What maps and phrases say, in pixels of the image as it was sent: the same for the page and for programs.


@dataclass(frozen=True, eq=False)
class Stretched:
    """A map over its image, with its point and its box: stretched once for all of them.

    Attributes:
        found: the map.
        plane: as large as the image.
        point: as `AttentionMap.point` gives it.
        box: as `AttentionMap.box` gives it.
    """

    found: AttentionMap
    plane: Tensor
    point: tuple[int, int] | None
    box: tuple[int, int, int, int] | None

    @classmethod
    def of(cls, found: AttentionMap) -> Stretched:
        """Stretch a map."""
        plane = found.upsample()
        is_there = bool(found.values.max() > 0)
        return cls(found, plane, peak(plane) if is_there else None, strong_box(plane) if is_there else None)


def map_told(sheet: Sheet, one: Stretched) -> dict[str, Any]:
    """As `AttentionMap.to_dict`."""
    found = one.found
    return {
        "concept": found.concept,
        "probability": found.probability,
        "point": sheet.point(one.point),
        "box": sheet.box(one.box),
        "mass": found.mass,
        "layer": found.layer,
        "method": found.method,
    }


def phrase_told(sheet: Sheet, found: Grounded) -> dict[str, Any]:
    """As `Grounded.to_json`."""
    regions = [{"box": sheet.box(region.box), "score": region.score} for region in found.regions]
    return {**found.to_json(), "regions": regions, "point": sheet.point(found.map.point)}


def rounded(values: Tensor) -> list[list[float]]:
    """The numbers of a map with as many digits as say something.

    Example:
        >>> import torch
        >>> rounded(torch.tensor([[1 / 3, 0.0]]))
        [[0.333333, 0.0]]
    """
    return [[float(f"{value:.6g}") for value in row] for row in values.tolist()]


# The answers to programs as plain values. Points and boxes are told in pixels of the image as it was sent.

MOST_DRAWN = 10  # maps of an answer
MOST_NUMBERS = 500_000  # of an answer
MOST_LABELS = 200
DRAWN_SIDE = 1024  # pixels of the longer side


def picture_answer(hands: Hands, image: bytes) -> dict[str, Any]:
    """An image that is kept from now on."""
    with noting() as notes:
        sheet = hands.take(image)
    return _about(sheet, notes)


def attend_answer(hands: Hands, image: bytes | None, asked: AttendQuestion) -> dict[str, Any]:
    """The maps of an image."""
    _check_drawn(len(asked.concept or ()) if asked.overlay else 0)
    offer = hands.service.offer(asked.model)
    with noting() as notes:
        sheet = hands.sheet(image, asked.picture)
        maps = hands.service.attend(
            sheet,
            asked.concept or None,
            model=offer.name,
            method=asked.method,
            layer=asked.layer,
            against=asked.against,
        )
    if asked.values:
        _check_numbers(maps)
    told = hands.draw(lambda: [_map(sheet, one, values=asked.values, overlay=asked.overlay) for one in maps])
    return {**_about(sheet, notes), "model": offer.name, "maps": told}


def ground_answer(hands: Hands, image: bytes | None, asked: GroundQuestion) -> dict[str, Any]:
    """The regions of phrases."""
    _check_drawn(len(asked.phrase) if asked.figure else 0)
    offer = hands.service.offer(asked.model)
    with noting() as notes:
        sheet = hands.sheet(image, asked.picture)
        found = hands.service.ground(
            sheet,
            asked.phrase,
            model=offer.name,
            method=asked.method,
            layer=asked.layer,
            gamma=asked.gamma,
            most=asked.most,
        )
    told = hands.draw(lambda: [_phrase(sheet, one, figure=asked.figure) for one in found])
    return {**_about(sheet, notes), "model": offer.name, "phrases": told}


def models_answer(service: Service) -> dict[str, Any]:
    """All classifiers; those that nobody has asked yet are loaded."""
    with service.gate.passed():
        models = [
            {
                "name": offer.name,
                "words": offer.classifier.labels is not None,
                "layer": offer.layer,
                "layers": list(offer.layers),
            }
            for offer in service.offers.values()
        ]
    return {"default": service.default, "models": models}


def labels_answer(service: Service, model: str | None, search: str) -> dict[str, Any]:
    """What a classifier can be asked for."""
    offer = service.offer(model)
    labels = offer.classifier.labels
    if labels is None:
        raise RefusedError(
            HTTPStatus.NOT_FOUND, f"{offer.name} has no labels: its concepts are the numbers of its outputs"
        )
    found: Sequence[int] = labels.search(search) if search else range(len(labels))
    told = [
        {"index": unit, "label": labels.name(unit), "synonyms": list(labels.synonyms(unit)[1:])}
        for unit in found[:MOST_LABELS]
    ]
    return {"model": offer.name, "count": len(found), "labels": told}


def small_jpeg(picture: Image.Image, side: int) -> bytes:
    """An image for a page, at most so large.

    Example:
        >>> Image.open(io.BytesIO(small_jpeg(Image.new("RGB", (40, 20)), 20))).size
        (20, 10)
    """
    return jpeg(_smaller(picture, side), quality=90)


def _about(sheet: Sheet, notes: list[str]) -> dict[str, Any]:
    return {"picture": sheet.key, "width": sheet.size[0], "height": sheet.size[1], "notes": notes}


def _map(sheet: Sheet, one: AttentionMap, *, values: bool, overlay: bool) -> dict[str, Any]:
    told = map_told(sheet, Stretched.of(one))
    if values:
        told["values"] = rounded(one.values)
    if overlay:
        told["overlay"] = _png(one.overlay(_smaller(sheet.picture, DRAWN_SIDE), point=True, box=True))
    return told


def _phrase(sheet: Sheet, one: Grounded, *, figure: bool) -> dict[str, Any]:
    told = phrase_told(sheet, one)
    if figure:
        told["figure"] = _png(one.figure())
    return told


def _smaller(picture: Image.Image, side: int) -> Image.Image:
    """The image with at most so many pixels on its longer side."""
    share = side / max(picture.size)
    if share >= 1:
        return picture
    width, height = (max(1, round(each * share)) for each in picture.size)
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def _png(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, format="PNG", compress_level=3)
    return base64.b64encode(file.getvalue()).decode()


def _check_drawn(count: int) -> None:
    if count > MOST_DRAWN:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"{count} drawings at once: ask for at most {MOST_DRAWN}, or for none"
        )


def _check_numbers(maps: Sequence[AttentionMap]) -> None:
    count = sum(one.values.numel() for one in maps)
    if count > MOST_NUMBERS:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"{count:,} values in one answer: ask for fewer concepts, or for a coarser layer"
        )
