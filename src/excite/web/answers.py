"""The answers of the HTTP interface as plain values; points and boxes are in pixels of the image as it was sent."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi.responses import JSONResponse
from PIL import Image
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from excite.grounding.ground import GAMMA, METHOD, MOST, MOST_GAMMA
from excite.readouts.box import peak, strong_box
from excite.readouts.notebook import jpeg
from excite.web.errors import RefusedError, collected_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.web.service import Service
    from excite.web.uploads import Upload

MOST_DRAWN = 10  # maps of an answer
MOST_NUMBERS = 500_000  # of an answer
MOST_LABELS = 200
DRAWN_SIDE = 1024  # pixels of the longer side
KEY_LETTERS = 32


@dataclass(frozen=True, eq=False)
class UpsampledMap:
    """A map, upsampled once to the size of its image (``plane``), with its point and its box."""

    found: AttentionMap
    plane: Tensor
    point: tuple[int, int] | None
    box: tuple[int, int, int, int] | None

    @classmethod
    def of(cls, found: AttentionMap) -> UpsampledMap:
        """Upsample a map."""
        plane = found.upsample()
        is_there = bool(found.values.max() > 0)
        return cls(found, plane, peak(plane) if is_there else None, strong_box(plane) if is_there else None)


def map_json(upload: Upload, one: UpsampledMap) -> dict[str, Any]:
    """As `AttentionMap.to_dict`."""
    found = one.found
    return {
        "concept": found.concept,
        "probability": found.probability,
        "point": upload.point(one.point),
        "box": upload.box(one.box),
        "mass": found.mass,
        "layer": found.layer,
        "method": found.method,
    }


def phrase_json(upload: Upload, found: Grounded) -> dict[str, Any]:
    """As `Grounded.to_json`."""
    regions = [{"box": upload.box(region.box), "score": region.score} for region in found.regions]
    return {**found.to_json(), "regions": regions, "point": upload.point(found.map.point)}


def rounded(values: Tensor) -> list[list[float]]:
    """The values of a map with six digits.

    Example:
        >>> import torch
        >>> rounded(torch.tensor([[1 / 3, 0.0]]))
        [[0.333333, 0.0]]
    """
    return [[float(f"{value:.6g}") for value in row] for row in values.tolist()]


class AsciiJSON(JSONResponse):
    """JSON in ASCII: its escapes keep every text exact, also one that is no UTF-8, and act on no terminal."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def take_image(service: Service, image: bytes | None, key: str | None) -> Upload:
    """The image of a request: sent with it, or before."""
    if (image is None) == (key is None):
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, "send the image as `image`, or the key of one sent before as `picture`"
        )
    return find_image(service, key) if image is None else service.uploads.take(image)


def find_image(service: Service, key: str | None) -> Upload:
    """The image of a key."""
    if key is None or len(key) != KEY_LETTERS or not key.isascii() or not key.isalnum():
        raise RefusedError(HTTPStatus.NOT_FOUND, "this is no image's key: send the image to POST /pictures first")
    return service.uploads.find(key)


def picture_answer(service: Service, image: bytes) -> dict[str, Any]:
    """Keep an image."""
    with collected_notes() as notes:
        upload = service.uploads.take(image)
    return _about(upload, notes)


def attend_answer(service: Service, image: bytes | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The maps of an image."""
    asked = AttendQuestion.model_validate(fields)
    _check_drawn(len(asked.concept or ()) if asked.overlay else 0)
    served_model = service.served_model(asked.model)
    with collected_notes() as notes:
        upload = take_image(service, image, asked.picture)
        maps = service.attend(
            upload,
            asked.concept or None,
            model=served_model.name,
            method=asked.method,
            layer=asked.layer,
            against=asked.against,
        )
    if asked.values:
        _check_numbers(maps)
    told = [_map(upload, one, values=asked.values, overlay=asked.overlay) for one in maps]
    return {**_about(upload, notes), "model": served_model.name, "maps": told}


def ground_answer(service: Service, image: bytes | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The regions of phrases."""
    asked = GroundQuestion.model_validate(fields)
    _check_drawn(len(asked.phrase) if asked.figure else 0)
    served_model = service.served_model(asked.model)
    with collected_notes() as notes:
        upload = take_image(service, image, asked.picture)
        found = service.ground(
            upload,
            asked.phrase,
            model=served_model.name,
            method=asked.method,
            layer=asked.layer,
            gamma=asked.gamma,
            most=asked.most,
        )
    told = [_phrase(upload, one, figure=asked.figure) for one in found]
    return {**_about(upload, notes), "model": served_model.name, "phrases": told}


def models_answer(service: Service) -> dict[str, Any]:
    """All classifiers, which are loaded if they are not yet."""
    models = [
        {
            "name": served_model.name,
            "words": served_model.classifier.labels is not None,
            "layer": served_model.layer,
            "layers": list(served_model.layers),
        }
        for served_model in service.models.values()
    ]
    return {"default": service.default, "models": models}


def labels_answer(service: Service, model: str | None, search: str) -> dict[str, Any]:
    """The labels of a classifier."""
    served_model = service.served_model(model)
    labels = served_model.classifier.labels
    if labels is None:
        raise RefusedError(
            HTTPStatus.NOT_FOUND, f"{served_model.name} has no labels: its concepts are the numbers of its outputs"
        )
    found: Sequence[int] = labels.search(search) if search else range(len(labels))
    told = [
        {"index": unit, "label": labels.name(unit), "synonyms": list(labels.synonyms(unit)[1:])}
        for unit in found[:MOST_LABELS]
    ]
    return {"model": served_model.name, "count": len(found), "labels": told}


def small_jpeg(picture: Image.Image, side: int) -> bytes:
    """An image as JPEG with at most ``side`` pixels on its longer side.

    Example:
        >>> Image.open(io.BytesIO(small_jpeg(Image.new("RGB", (40, 20)), 20))).size
        (20, 10)
    """
    return jpeg(_smaller(picture, side), quality=90)


def _about(upload: Upload, notes: list[str]) -> dict[str, Any]:
    return {"picture": upload.key, "width": upload.size[0], "height": upload.size[1], "notes": notes}


def _map(upload: Upload, one: AttentionMap, *, values: bool, overlay: bool) -> dict[str, Any]:
    told = map_json(upload, UpsampledMap.of(one))
    if values:
        told["values"] = rounded(one.values)
    if overlay:
        told["overlay"] = _png(one.overlay(_smaller(upload.picture, DRAWN_SIDE), point=True, box=True))
    return told


def _phrase(upload: Upload, one: Grounded, *, figure: bool) -> dict[str, Any]:
    told = phrase_json(upload, one)
    if figure:
        told["figure"] = _png(one.figure())
    return told


def _smaller(picture: Image.Image, side: int) -> Image.Image:
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


# The requests and answers, which are validated and described in /openapi.json.


MOST_REGIONS = 100


Texts = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


class Question(BaseModel):
    """The fields of all questions. The image is no field: it is a file, or base64 in JSON."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    picture: str | None = Field(
        None, description="Instead of `image`: the key of an image that was sent before.", examples=["KEY"]
    )
    model: str | None = Field(
        None, description="One of GET /models; the first of them if none is named.", examples=["words"]
    )
    layer: str | None = Field(None, description="Where the map is read; the classifier's own best if none is named.")


class AttendQuestion(Question):
    """Where is the evidence for these concepts?"""

    concept: Texts | None = Field(
        None,
        description="What to look for, see GET /labels; may be given several times. Without any: what is found.",
        examples=["cat"],
    )
    against: Texts = Field(
        default=[], description="The concepts that are subtracted, for contrastive methods; several times if need be."
    )
    method: str = Field("c-mwp", description="One of GET /methods.")
    values: bool = Field(default=False, description="Also tell the numbers of each map, row by row.")
    overlay: bool = Field(
        default=False, description="Also draw each map over the image, with its point and box: PNG as base64."
    )


class GroundQuestion(Question):
    """Which regions do these phrases refer to?"""

    phrase: Texts = Field(
        description="What to look for, in English; may be given several times.",
        examples=["a man in a red hat"],
        min_length=1,
    )
    method: str = Field(METHOD, description="One of GET /methods.")
    gamma: float = Field(
        GAMMA,
        ge=0,
        le=MOST_GAMMA,
        allow_inf_nan=False,
        description="0: the region with most of the map wins; 1: the one with most of it in each pixel.",
    )
    most: int = Field(MOST, ge=1, le=MOST_REGIONS, description="Tell at most so many regions of each phrase.")
    figure: bool = Field(default=False, description="Also draw each phrase, its words and regions: PNG as base64.")


class PictureAnswer(BaseModel):
    """An image that is kept for a while."""

    picture: str = Field(description="Its key: ask for it with this instead of sending it again.")
    width: int = Field(description="Its width in pixels, turned upright.")
    height: int = Field(description="Its height in pixels.")
    notes: list[str] = Field(description="What to keep in mind when reading the answer; usually nothing.")


class Answer(PictureAnswer):
    """The fields of all answers about an image."""

    model: str = Field(description="The classifier that answered.")


class MapAnswer(BaseModel):
    """The map of one concept. Points and boxes are in pixels of the image as it was sent."""

    concept: str = Field(description="What was looked for.")
    probability: float | None = Field(description="How sure the classifier is that it is there.")
    point: list[int] | None = Field(description="x and y of the pixel with the most evidence; null if there is none.")
    box: list[float] | None = Field(description="Left, top, right, bottom around strong evidence; null if none.")
    mass: float = Field(description="How much of the unit signal arrived at the layer.")
    layer: str = Field(description="Where the map was read.")
    method: str = Field(description="How it was made.")
    values: list[list[float]] | None = Field(None, description="The map, row by row; only if asked for.")
    overlay: str | None = Field(None, description="A PNG file as base64; only if asked for.")


class AttendAnswer(Answer):
    """The maps, in the order of the concepts."""

    maps: list[MapAnswer]


class RegionAnswer(BaseModel):
    """A region that a phrase may refer to."""

    box: list[float] = Field(description="Left, top, right, bottom in pixels of the image as it was sent.")
    score: float = Field(description="Comparable within one image and phrase.")


class WordAnswer(BaseModel):
    """A word of a phrase that the classifier knows."""

    word: str = Field(description="As it stands in the phrase.")
    concept: str = Field(description="What it is to the classifier.")
    probability: float | None = Field(description="How sure the classifier is that it is there.")
    mass: float = Field(description="How much of the unit signal arrived at the layer.")


class PhraseAnswer(BaseModel):
    """What a phrase refers to."""

    phrase: str = Field(description="As it was sent.")
    regions: list[RegionAnswer] = Field(description="Best first; none where there is no evidence.")
    point: list[int] | None = Field(description="x and y of the pixel with the most evidence.")
    words: list[WordAnswer] = Field(description="The words that were looked for; none: whatever is found.")
    hints: list[str] = Field(description="The words for places and colours that weighed the map.")
    skipped: list[str] = Field(
        description="The words that were not heeded: unknown, or said of order, size and the like."
    )
    figure: str | None = Field(None, description="A PNG file as base64; only if asked for.")


class GroundAnswer(Answer):
    """The phrases, in their order."""

    phrases: list[PhraseAnswer]


class ModelAnswer(BaseModel):
    """A classifier that can be asked."""

    name: str = Field(description="What it is called here.")
    words: bool = Field(description="Whether its outputs have words; without, concepts are their numbers.")
    layer: str = Field(description="The layer that is read when none is named.")
    layers: list[str] = Field(description="Layers that can be read, from the image up.")


class ModelsAnswer(BaseModel):
    """All classifiers."""

    default: str = Field(description="The one that is asked when none is named.")
    models: list[ModelAnswer]


class MethodAnswer(BaseModel):
    """A way to make a map."""

    name: str
    description: str


class LabelAnswer(BaseModel):
    """An output of a classifier."""

    index: int = Field(description="Its number, which can be asked for too.")
    label: str
    synonyms: list[str]


class LabelsAnswer(BaseModel):
    """Outputs of a classifier."""

    model: str
    count: int = Field(description="How many there are; at most 200 of them are listed.")
    labels: list[LabelAnswer]


class Health(BaseModel):
    """The server is running."""

    status: str
    version: str


class Problem(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="One line that says what is wrong and what to do.")
