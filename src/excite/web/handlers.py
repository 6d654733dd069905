"""What happens when somebody touches a control: the values of all controls in, what is to be shown out."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from excite.errors import ConceptError, ExciteError, MethodError
from excite.grounding.ground import METHOD as PHRASE
from excite.methods import METHODS
from excite.readouts.figure import percent
from excite.readouts.overlay import TABLES
from excite.vocabulary import read_phrase
from excite.web.errors import noting
from excite.web.uploads import GoneError
from excite.web.views import map_view, phrase_view, picture_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.web.reports import Report
    from excite.web.service import Offer, Service
    from excite.web.uploads import Example, Sheet


# What the page shows for what a person has set: plain values in, plain values out, nothing of gradio.

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
        examples: images that are ready.
    """

    def __init__(self, service: Service, examples: Mapping[str, Example]) -> None:
        self.service = service
        self.examples = examples
        self._keys: dict[str, str] = {}  # of examples that were read: nobody reads them for every question

    def place(self, dropped: dict[str, Any] | None) -> Sheet | None:
        """The image that somebody has dropped or picked.

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
        """The image with the map that was asked for; what cannot be answered is told beside the bare image."""
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
        """The stage without an image."""
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


# What happens when somebody touches a control: the values of all controls in, what is to be shown out.

CHOICES = [USUAL, *METHODS]
MARKS = ["point", "box", "regions"]
OPACITY = 60
NO_FINDINGS: dict[str, Any] = {"findings": []}

Dropped = dict[str, Any] | None


class Handlers:
    """The answers to what is touched, in the form in which gradio takes them.

    Args:
        answers: what is shown.
        reports: of benchmarks.
    """

    def __init__(self, answers: Answers, reports: Sequence[Report]) -> None:
        self.answers = answers
        self.service = answers.service
        self.reports = {report.name: report for report in reports}

    def opened(self, request: gr.Request) -> list[Any]:
        """The settings that a link names; those of a new page otherwise."""
        said = dict(request.query_params)
        model = said.get("model", "") if said.get("model") in self.service.offers else self.service.default
        method = said.get("method", "") if said.get("method") in METHODS else USUAL
        layers = self.layer_slider(model)
        layers["value"] = _number(said.get("layer"), layers["value"], layers["maximum"])
        dropped = {name: said[name] for name in ("example", "picture") if name in said}
        if not dropped and self.answers.examples:
            dropped = {"example": next(iter(self.answers.examples))}
        return [
            dropped,
            model,
            said.get("question", ""),
            said.get("against", ""),
            gr.update(value=method, info=method_told(method)),
            gr.update(**{**layers, **self._layer_told(model, layers["value"])}),
            _number(said.get("opacity"), OPACITY, 100),
            said.get("colours") if said.get("colours") in TABLES else next(iter(TABLES)),
            [mark for mark in MARKS if "show" not in said or mark in said["show"].split(",")],
        ]

    def arrived(self, dropped: Dropped, *settings: Any) -> list[Any]:
        """An image is there, or another classifier: everything is new."""
        sheet, error = self._place(dropped)
        if sheet is None:
            return [None, _turned(dropped, NO_FINDINGS), _turned(dropped, self.answers.empty(error))]
        kept = {**(dropped or {}), "picture": sheet.key}
        return [kept, *self.again(kept, *settings)]

    def again(self, dropped: Dropped, *settings: Any) -> list[Any]:
        """The same question in another way: the maps of the findings are others too."""
        sheet, error = self._place(dropped)
        if sheet is None:
            return [_turned(dropped, NO_FINDINGS), _turned(dropped, self.answers.empty(error))]
        said = Settings(*settings)
        found, shown = self.answers.findings(sheet, said), self.answers.stage(sheet, said)
        return [_turned(dropped, found), _turned(dropped, shown)]

    def asked(self, dropped: Dropped, *settings: Any) -> dict[str, Any]:
        """Another question about the same image: one way down."""
        sheet, error = self._place(dropped)
        shown = self.answers.empty(error) if sheet is None else self.answers.stage(sheet, Settings(*settings))
        return _turned(dropped, shown)

    def compared(
        self, dropped: Dropped, model: str, concepts: str, methods: list[str], layers: list[str]
    ) -> dict[str, Any]:
        """Maps side by side."""
        sheet, error = self._place(dropped)
        if sheet is None:
            told = self.answers.empty(error)["error"] or "Drop an image first, on the other tab."
            return {"picture": None, "rows": [], "error": told}
        return self.answers.grid(sheet, model, concepts, methods, layers)

    def told(self, _: Dropped, *settings: Any) -> list[Any]:
        """What the method and the layer are, beside where they are chosen."""
        said = Settings(*settings)
        place = said.layer or 0
        return [gr.update(info=method_told(said.method)), gr.update(**self._layer_told(said.model, place))]

    def other_model(self, model: str) -> list[Any]:
        """The layers of another classifier."""
        return [
            gr.update(**self.layer_slider(model)),
            gr.update(choices=list(self.service.offer(model).layers), value=[]),
        ]

    def layer_slider(self, model: str) -> dict[str, Any]:
        """The slider over the layers of a classifier, at the usual one."""
        offer = self.service.offer(model)
        place = offer.layers.index(offer.layer)
        return {
            "minimum": 0,
            "maximum": len(offer.layers) - 1,
            "step": 1,
            "value": place,
            **self._layer_told(model, place),
        }

    def report_frame(self, name: str) -> str:
        """A report within the page; it may not run anything."""
        if name not in self.reports:
            return "<p>There is no such report.</p>"
        address, title = html.escape(self.reports[name].url), html.escape(self.reports[name].title)
        return (
            f'<iframe class="report" src="{address}" title="{title}" sandbox="allow-same-origin"></iframe>'
            f'<p><a href="{address}" target="_blank" rel="noopener">Open {title} by itself</a></p>'
        )

    @staticmethod
    def chosen(event: gr.EventData) -> str:
        """The finding that was clicked on."""
        return str(event.concept)

    def _layer_told(self, model: str, place: int) -> dict[str, Any]:
        offer = self.service.offer(model)
        name = offer.layers[min(place, len(offer.layers) - 1)]
        usual = "" if name == offer.layer else f"; the usual one is {offer.layer}"
        return {"label": f"Layer {name}", "info": f"from the image to the words{usual}"}

    def _place(self, dropped: Dropped) -> tuple[Sheet | None, ExciteError | None]:
        """The image that is asked about, or why there is none."""
        try:
            return self.answers.place(dropped), None
        except ExciteError as error:
            return None, error


def _turned(dropped: Dropped, shown: dict[str, Any]) -> dict[str, Any]:
    """An answer with the number of its question: answers may overtake each other, and the browser shows the latest."""
    return {**shown, "turn": (dropped or {}).get("turn", 0)}


def method_told(method: str) -> str:
    """What a method is, in a few words.

    Example:
        >>> method_told("usual")
        'c-mwp for a word, excite for a phrase'
    """
    return f"{WORD} for a word, {PHRASE} for a phrase" if method == USUAL else METHODS[method].description


def _number(said: str | None, usual: int, most: int) -> int:
    """A number of a link, if it is one within its range."""
    return int(said) if said and said.isdecimal() and len(said) < 6 and int(said) <= most else usual
