"""The questions and answers of the HTTP interface: described in /openapi.json, and how each answer is made."""

import io
from base64 import b64encode
from functools import cache
from typing import Annotated, Any

from jinja2 import Environment, Undefined
from PIL import Image
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from torch import Tensor

from excite import __version__
from excite.attention import AttentionMap
from excite.grounding import Grounded
from excite.grounding.ground import GAMMA, METHOD, MOST, MOST_GAMMA
from excite.io.text import templates_of
from excite.readouts.box import peak
from excite.web.errors import RefusedError, collected_notes
from excite.web.service import Service, Upload

MOST_DRAWN = 10  # maps of an answer

Point = tuple[int, int]
PixelBox = tuple[int, int, int, int]
Texts = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


class Question(BaseModel):
    """The fields of all questions. The image is no field: it is a file, or base64 in JSON."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    picture: str | None = Field(None, description="Instead of `image`: the key of one sent before.", examples=["KEY"])
    model: str | None = Field(None, description="One of GET /models; the first of them if none.", examples=["words"])
    layer: str | None = Field(None, description="Where the map is read; the classifier's own best if none is named.")


class AttendQuestion(Question):
    """Where is the evidence for these concepts?"""

    concept: Texts | None = Field(
        None, description="One of GET /labels; may be given several times. None: what is found.", examples=["cat"]
    )
    against: Texts = Field(default=[], description="Concepts that contrastive methods subtract; several if need be.")
    method: str = Field("c-mwp", description="One of GET /methods.")
    values: bool = Field(default=False, description="Also tell the numbers of each map, row by row.")
    overlay: bool = Field(default=False, description="Also draw each map over the image: PNG as base64.")


class GroundQuestion(Question):
    """Which regions do these phrases refer to?"""

    phrase: Texts = Field(
        min_length=1, description="In English; may be given several times.", examples=["a man in a red hat"]
    )
    method: str = Field(METHOD, description="One of GET /methods.")
    gamma: Annotated[float, Field(ge=0, le=MOST_GAMMA, allow_inf_nan=False)] = Field(
        GAMMA, description="0: the region with most of the map wins; 1: the one with most of it in each pixel."
    )
    most: int = Field(MOST, ge=1, le=100, description="Tell at most so many regions of each phrase.")
    figure: bool = Field(default=False, description="Also draw each phrase, its words and regions: PNG as base64.")


class PictureAnswer(BaseModel):
    """An image that is kept for a while."""

    picture: str = Field(description="Its key: ask for it with this instead of sending it again.")
    width: int = Field(description="Its width in pixels, turned upright.")
    height: int = Field(description="Its height in pixels.")
    notes: list[str] = Field(description="What to keep in mind when reading the answer; usually nothing.")


class MapAnswer(BaseModel):
    """The map of one concept. Points and boxes are in pixels of the image as it was sent."""

    concept: str = Field(description="What was looked for.")
    probability: float | None = Field(description="How sure the classifier is that it is there.")
    point: list[int] | None = Field(description="x and y of the pixel with the most evidence; null if there is none.")
    box: list[float] | None = Field(description="Left, top, right, bottom of the main object; null if none.")
    boxes: list[list[float]] = Field(description="The same of each object, where several are clearly apart.")
    mass: float = Field(description="How much of the unit signal arrived at the layer.")
    layer: str = Field(description="Where the map was read.")
    method: str = Field(description="How it was made.")
    values: list[list[float]] | None = Field(default=None, description="The map, row by row; only if asked for.")
    overlay: str | None = Field(default=None, description="A PNG file as base64; only if asked for.")


class AttendAnswer(PictureAnswer):
    """The maps, in the order of the concepts."""

    model: str = Field(description="The classifier that answered.")
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
    reason: str | None = Field(description="Why there is no region, if there is none.")
    point: list[int] | None = Field(description="x and y of the pixel with the most evidence.")
    words: list[WordAnswer] = Field(description="The words that were looked for; none: whatever is found.")
    hints: list[str] = Field(description="The words for places and colours that weighed the map.")
    skipped: list[str] = Field(description="The words that were not heeded: unknown, or of order, size and the like.")
    figure: str | None = Field(default=None, description="A PNG file as base64; only if asked for.")


class GroundAnswer(PictureAnswer):
    """The phrases, in their order."""

    model: str = Field(description="The classifier that answered.")
    phrases: list[PhraseAnswer]


class MatchAnswer(BaseModel):
    """A photo that was found."""

    number: int = Field(description="Its number in the index: GET /find/NUMBER shows it.")
    photo: str = Field(description="Its name in the folder.")
    probability: float = Field(description="That it shows all that was asked for, and nothing that was excluded.")
    weight: float | None = Field(description="How well words of colour and position fit; null if not looked at.")
    concepts: dict[str, float] = Field(description="The probability of each concept, the excluded ones last.")


class FindAnswer(BaseModel):
    """The photos that were found, best first."""

    words: str = Field(description="As they were sent.")
    shows: str = Field(description="The same without what is excluded.")
    concepts: list[str] = Field(description="What the words mean to the classifier.")
    without: list[str] = Field(description="What is excluded.")
    hints: list[str] = Field(description="The words for places and colours that ranked the best photos again.")
    unused: list[str] = Field(description="The words without effect.")
    photos: int = Field(description="How many photos can be searched.")
    count: int = Field(description="How many of them are at least as probable as was asked for.")
    matches: list[MatchAnswer]


class ModelAnswer(BaseModel):
    """A classifier that can be asked."""

    name: str = Field(description="What it is called here.")
    words: bool = Field(description="Whether its outputs have words; without, concepts are their numbers.")
    layer: str = Field(description="The layer that is read when none is named.")
    layers: list[str] = Field(description="Layers that can be read, from the image up.")


class MethodAnswer(BaseModel):
    """A way to make a map."""

    name: str
    description: str
    main: bool


class ModelsAnswer(BaseModel):
    """All classifiers."""

    default: str = Field(description="The one that is asked when none is named.")
    models: list[ModelAnswer]


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


def attend_answer(service: Service, image: bytes | None, fields: dict[str, Any]) -> AttendAnswer:
    """The maps of an image."""
    asked = AttendQuestion.model_validate(fields)
    how: dict[str, Any] = {"model": service.served_model(asked.model).name, "method": asked.method}
    with collected_notes() as notes:
        upload = _take_image(service, image, asked.picture, len(asked.concept or ()) if asked.overlay else 0)
        found = service.attend(upload, asked.concept or None, layer=asked.layer, against=asked.against, **how)
    if asked.values and (numbers := sum(one.values.numel() for one in found)) > 500_000:
        raise RefusedError(400, f"{numbers:,} values in one answer: ask for fewer concepts, or for a coarser layer")
    maps = [map_answer(upload, one, *map_readouts(one)[1:]) for one in found]
    for told, one in zip(maps, found, strict=True):
        if asked.values:
            told.values = rounded(one.values)
        if asked.overlay:
            drawn = one.overlay(upload.smaller(1024), point=True, box=True)
            told.overlay = b64encode(png(drawn)).decode()
    return AttendAnswer(**about(upload, notes), model=how["model"], maps=maps)


def ground_answer(service: Service, image: bytes | None, fields: dict[str, Any]) -> GroundAnswer:
    """The regions of phrases."""
    asked = GroundQuestion.model_validate(fields)
    how: dict[str, Any] = {"model": service.served_model(asked.model).name, "gamma": asked.gamma, "most": asked.most}
    with collected_notes() as notes:
        upload = _take_image(service, image, asked.picture, len(asked.phrase) if asked.figure else 0)
        found = service.ground(upload, asked.phrase, method=asked.method, layer=asked.layer, **how)
    phrases = [phrase_answer(upload, one) for one in found]
    if asked.figure:
        for told, one in zip(phrases, found, strict=True):
            told.figure = b64encode(png(one.figure())).decode()
    return GroundAnswer(**about(upload, notes), model=how["model"], phrases=phrases)


def find_answer(service: Service, words: str, most: int, at_least: float) -> FindAnswer:
    """The photos that show these words."""
    index = service.index(words)
    found = index.query(words, most=most, at_least=at_least)
    told = found.to_dict()
    for row, match in zip(told["matches"], found.matches, strict=True):
        row["photo"] = str(match.path.relative_to(index.folder))
    return FindAnswer(**told, shows=found.question.reading.text)


def models_answer(service: Service) -> ModelsAnswer:
    """All classifiers, which are loaded if they are not yet."""
    models = [
        ModelAnswer(name=name, words=one.classifier.labels is not None, layer=one.layer, layers=list(one.layers))
        for name, one in service.models.items()
    ]
    return ModelsAnswer(default=service.default, models=models)


def labels_answer(service: Service, model: str | None, search: str) -> LabelsAnswer:
    """The labels of a classifier."""
    served_model = service.served_model(model)
    labels = served_model.classifier.labels
    if labels is None:
        raise RefusedError(404, f"{served_model.name} has no labels: its concepts are the numbers of its outputs")
    found = labels.listed(search)
    told = [
        LabelAnswer(index=unit, label=labels.name(unit), synonyms=list(labels.synonyms(unit)[1:]))
        for unit, *_ in found[:200]
    ]
    return LabelsAnswer(model=served_model.name, count=len(found), labels=told)


def map_readouts(found: AttentionMap) -> tuple[Tensor, Point | None, list[PixelBox]]:
    """A map, upsampled once to the size of its image, with its point and its boxes, if there is any evidence."""
    plane = found.upsample()
    return (plane, peak(plane), found.boxes()) if found.values.max() > 0 else (plane, None, [])


def map_answer(upload: Upload, found: AttentionMap, point: Point | None, boxes: list[PixelBox]) -> MapAnswer:
    """A map as `AttentionMap.to_dict` tells it."""
    told = [upload.box(box) or [] for box in boxes]
    return MapAnswer(
        concept=found.concept,
        probability=found.probability,
        point=upload.point(point),
        box=told[0] if told else None,
        boxes=told,
        mass=found.mass,
        layer=found.layer,
        method=found.method,
    )


def phrase_answer(upload: Upload, found: Grounded) -> PhraseAnswer:
    """A phrase as `Grounded.to_json` tells it."""
    regions = [{"box": upload.box(region.box), "score": region.score} for region in found.regions]
    return PhraseAnswer(**{**found.to_json(), "regions": regions, "point": upload.point(found.point)})


def rounded(values: Tensor) -> list[list[float]]:
    """The values of a map with six digits."""
    return [[float(f"{value:.6g}") for value in row] for row in values.tolist()]


def find_image(service: Service, key: str) -> Upload:
    """The image of a key."""
    if len(key) != 32 or not key.isascii() or not key.isalnum():
        raise RefusedError(404, "this is no image's key: send the image to POST /pictures first")
    return service.uploads.find(key)


def _take_image(service: Service, image: bytes | None, key: str | None, drawings: int) -> Upload:
    """The image of a request for so many drawings: sent with it, or before."""
    if drawings > MOST_DRAWN:
        raise RefusedError(400, f"{drawings} drawings at once: ask for at most {MOST_DRAWN}, or for none")
    if image is not None and key is None:
        return service.uploads.take(image)
    if image is None and key is not None:
        return find_image(service, key)
    raise RefusedError(400, "send the image as `image`, or the key of one sent before as `picture`")


def about(upload: Upload, notes: list[str]) -> dict[str, Any]:
    """The fields of every answer about an image."""
    return {"picture": upload.key, "width": upload.size[0], "height": upload.size[1], "notes": notes}


def png(picture: Image.Image, level: int = 3) -> bytes:
    """An image as a PNG file."""
    file = io.BytesIO()
    picture.save(file, format="PNG", compress_level=level)
    return file.getvalue()


def filled_in(template: str, **values: Any) -> str:
    """A page from its template. Texts stay texts: escaped, and with nothing that is not printable."""
    return _templates().get_template(template).render(version=__version__, **values)


@cache
def _templates() -> Environment:
    templates = templates_of("excite.web").overlay(undefined=Undefined)  # a schema has what applies to it
    templates.policies = {**templates.policies, "json.dumps_kwargs": {"sort_keys": False}}
    return templates
