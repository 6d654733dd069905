"""The requests and answers of the HTTP interface: requests are validated, both are described in /openapi.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from excite.grounding.ground import GAMMA, METHOD, MOST, MOST_GAMMA

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
