"""What the page shows for what a person has set: plain values in, plain values out, nothing of gradio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from excite.errors import ConceptError, ExciteError, MethodError
from excite.grounding.ground import METHOD as PHRASE
from excite.readouts.figure import percent
from excite.vocabulary import read_phrase
from excite.web.api_notes import noting
from excite.web.uploads import GoneError
from excite.web.views import map_view, phrase_view, picture_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.web.examples import Example
    from excite.web.service import Offer, Service
    from excite.web.uploads import Sheet

__all__ = ["PHRASE", "USUAL", "WORD", "Answers", "Settings"]

USUAL, WORD = "usual", "c-mwp"  # the methods that the commands use when nobody names one
FINDINGS = 8
MOST_CELLS = 24


@dataclass(frozen=True)
class Settings:
    """What a person has set.

    Attributes:
        model: the name of the classifier.
        question: a concept or a phrase; blank: whatever the classifier is most sure of.
        against: concepts to contrast with, parted by commas.
        method: how the map is made; "usual": as `excite attend` does it for a word, and `excite ground` for a phrase.
        layer: the place of the layer among those of the classifier; None: as the method likes it.
    """

    model: str
    question: str = ""
    against: str = ""
    method: str = USUAL
    layer: int | None = None

    @property
    def for_words(self) -> str:
        """The method for a concept."""
        return WORD if self.method == USUAL else self.method

    @property
    def for_phrases(self) -> str:
        """The method for a phrase."""
        return PHRASE if self.method == USUAL else self.method

    @property
    def rivals(self) -> list[str]:
        """The concepts to contrast with."""
        return listed(self.against)


class Answers:
    """Answers for the page.

    Args:
        service: what can be asked.
        examples: pictures that are ready.
    """

    def __init__(self, service: Service, examples: Mapping[str, Example]) -> None:
        self.service = service
        self.examples = examples
        self._keys: dict[str, str] = {}  # of examples that were read: nobody reads them for every question

    def place(self, dropped: dict[str, Any] | None) -> Sheet | None:
        """The picture that somebody has dropped or picked.

        Raises:
            GoneError: it is no longer kept.
        """
        example = self.examples.get((dropped or {}).get("example") or "")
        if example is not None:
            return self._example(example)
        key = (dropped or {}).get("picture")
        return self.service.desk.find(str(key)) if key else None

    def _example(self, example: Example) -> Sheet:
        desk = self.service.desk
        try:
            return desk.find(self._keys.get(example.name, ""))
        except GoneError:
            sheet = desk.put(example.read())
        self._keys[example.name] = sheet.key
        return sheet

    def findings(self, sheet: Sheet, settings: Settings) -> dict[str, Any]:
        """What the classifier finds, each with its map; where there can be none, the stage tells why."""
        try:
            with self.service.gate.passed(), noting():  # the stage tells what there is to say of its own map
                found = self.service.findings(sheet, settings.model, FINDINGS, settings.for_words)
                views = self._views(sheet, [one.concept for one in found], settings)
        except ExciteError:
            return {"findings": []}
        return {
            "findings": [
                {"concept": one.concept, "probability": one.probability, "sure": percent(one.probability), "view": view}
                for one, view in zip(found, views, strict=True)
            ]
        }

    def _views(self, sheet: Sheet, concepts: Sequence[str], settings: Settings) -> list[dict[str, Any] | None]:
        layer = self.layer(settings)
        try:
            maps = self.service.attend(sheet, concepts, model=settings.model, method=settings.for_words, layer=layer)
        except ExciteError:
            return [None] * len(concepts)
        return [map_view(sheet, one) for one in maps]

    def stage(self, sheet: Sheet, settings: Settings) -> dict[str, Any]:
        """The picture with the map that was asked for; what cannot be answered is told beside the bare picture."""
        shown = {"picture": picture_view(sheet), "view": None, "error": None}
        try:
            with noting() as notes:
                view = self.view(sheet, settings)
        except ExciteError as error:
            return {**shown, "error": sentence(error)}
        return {**shown, "view": {**view, "notes": [*view["notes"], *map(sentence, notes)]}}

    def view(self, sheet: Sheet, settings: Settings) -> dict[str, Any]:
        """The map of a concept or of a phrase.

        Raises:
            ExciteError: it cannot be made; the message says why.
        """
        question = settings.question.strip()
        self.service.check_texts([question, *settings.rivals])  # before anything reads them
        offer = self.service.offer(settings.model)
        if question and not _is_concept(offer, question):
            if settings.rivals:
                raise ConceptError("a phrase has no contrast: ask for a single concept, or leave `but not` blank")
            (found,) = self.service.ground(
                sheet, [question], model=settings.model, method=settings.for_phrases, layer=self.layer(settings)
            )
            return phrase_view(sheet, found, settings.model)
        with self.service.gate.passed():
            concept = question or self.service.findings(sheet, settings.model, 1, settings.for_words)[0].concept
            (one,) = self.service.attend(
                sheet,
                [concept],
                model=settings.model,
                method=settings.for_words,
                layer=self.layer(settings),
                against=settings.rivals,
            )
            return map_view(sheet, one)

    def grid(
        self, sheet: Sheet, model: str, concepts: str, methods: Sequence[str], layers: Sequence[str]
    ) -> dict[str, Any]:
        """Maps side by side: a row for each concept, in it each method at each layer."""
        shown: dict[str, Any] = {"picture": picture_view(sheet), "rows": [], "error": None}
        try:
            with self.service.gate.passed(), noting() as notes:
                rows = self._rows(sheet, model, listed(concepts), methods, layers)
        except ExciteError as error:
            return {**shown, "error": sentence(error)}
        return {**shown, "rows": rows, "error": " ".join(map(sentence, notes)) or None}

    def _rows(
        self, sheet: Sheet, model: str, concepts: list[str], methods: Sequence[str], layers: Sequence[str]
    ) -> list[list[dict[str, Any]]]:
        wanted = concepts or [one.concept for one in self.service.findings(sheet, model, 2)]
        cells = len(wanted) * len(methods) * max(1, len(layers))
        if not methods:
            raise MethodError("choose at least one method")
        if cells > MOST_CELLS:
            raise ConceptError(f"these are {cells} maps: choose fewer, at most {MOST_CELLS}")
        columns = [
            self.service.attend(sheet, wanted, model=model, method=method, layer=layer)
            for method in methods
            for layer in (layers or (None,))
        ]
        return [[map_view(sheet, column[k]) for column in columns] for k in range(len(wanted))]

    def layer(self, settings: Settings) -> str | None:
        """The name of the layer that was chosen; None where it is the usual one, or nobody chose."""
        offer = self.service.offer(settings.model)
        if settings.layer is None or not 0 <= settings.layer < len(offer.layers):
            return None
        name = offer.layers[settings.layer]
        return None if name == offer.layer else name

    @staticmethod
    def empty(error: Exception | None = None) -> dict[str, Any]:
        """The stage without a picture."""
        return {"picture": None, "view": None, "error": None if error is None else sentence(error)}


def listed(text: str) -> list[str]:
    """Concepts as people write them down.

    Example:
        >>> listed("cat, red apple,")
        ['cat', 'red apple']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def sentence(error: Exception | str) -> str:
    """An error or a note as a sentence on a page.

    Example:
        >>> sentence(ValueError("there is no cat"))
        'There is no cat.'
    """
    said = str(error).strip()
    return said[:1].upper() + said[1:].rstrip(".") + "."


def _is_concept(offer: Offer, text: str) -> bool:
    """Whether the classifier has a concept of that name, or a phrase is meant.

    Raises:
        ConceptError: neither: it knows no word of it; the message has guesses.
    """
    labels = offer.classifier.labels
    if labels is None:
        return True  # a number is meant
    try:
        labels.find(text)
    except ConceptError:
        if not read_phrase(text, labels).words:  # a phrase has words that are no labels: "umpire", "surf board"
            raise
        return False
    return True
