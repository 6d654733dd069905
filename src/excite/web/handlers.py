"""The events of the page: `PageAnswers` computes plain values, `Handlers` connects them to gradio's controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from excite.errors import ConceptError, ExciteError, MethodError, visible
from excite.grounding.ground import METHOD as PHRASE
from excite.io.text import for_html
from excite.methods import METHODS
from excite.readouts.figure import percent
from excite.readouts.overlay import TABLES
from excite.vocabulary import read_phrase
from excite.web.errors import collected_notes
from excite.web.uploads import GoneError
from excite.web.views import map_view, phrase_view, picture_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.web.reports import Report
    from excite.web.service import ServedModel, Service
    from excite.web.uploads import Example, Upload


USUAL, WORD = "usual", "c-mwp"  # the default methods of the commands
FINDINGS = 8
MOST_CELLS = 24
CHOICES = [USUAL, *METHODS]
MARKS = ["point", "box", "regions"]
OPACITY = 60
NO_FINDINGS: dict[str, Any] = {"findings": []}

Selection = dict[str, Any] | None
"""The image that was dropped or picked: the key of an upload or the name of an example, and the number of the event."""


@dataclass(frozen=True)
class Settings:
    """The values of the controls.

    Attributes:
        model: the name of the classifier.
        question: a concept or a phrase; blank for the classifier's most probable finding.
        against: concepts to contrast with, separated by commas.
        method: the method; "usual" for the default of `excite attend` for a word, of `excite ground` for a phrase.
        layer: the index of the layer among those of the classifier; None for the default.
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


class PageAnswers:
    """The answers to the page as plain values, without gradio."""

    def __init__(self, service: Service, examples: Mapping[str, Example]) -> None:
        self.service = service
        self.examples = examples
        self._keys: dict[str, str] = {}  # of examples that were read

    def find_upload(self, selection: Selection) -> Upload | None:
        """The image that was dropped or picked, if any; a `GoneError` if it is no longer kept."""
        uploads, selected = self.service.uploads, selection or {}
        example = self.examples.get(selected.get("example") or "")
        if example is None:
            return uploads.find(str(selected["picture"])) if selected.get("picture") else None
        try:
            return uploads.find(self._keys.get(example.name, ""))
        except GoneError:
            upload = uploads.put(example.read())
        self._keys[example.name] = upload.key
        return upload

    def findings(self, upload: Upload, settings: Settings) -> dict[str, Any]:
        """The classifier's findings, each with its map; none after an error, which the stage shows."""
        try:
            with self.service.concurrency.slot(), collected_notes():  # the stage shows the notes of its own map
                found = self.service.findings(upload, settings.model, FINDINGS, settings.for_words)
                views = self._views(upload, [one.concept for one in found], settings)
        except ExciteError:
            return NO_FINDINGS
        return {
            "findings": [
                {"concept": one.concept, "probability": one.probability, "sure": percent(one.probability), "view": view}
                for one, view in zip(found, views, strict=True)
            ]
        }

    def _views(self, upload: Upload, concepts: Sequence[str], settings: Settings) -> list[dict[str, Any] | None]:
        layer = self.layer(settings)
        try:
            maps = self.service.attend(upload, concepts, model=settings.model, method=settings.for_words, layer=layer)
        except ExciteError:
            return [None] * len(concepts)
        return [map_view(upload, one) for one in maps]

    def stage(self, upload: Upload, settings: Settings) -> dict[str, Any]:
        """The image with its map, or with an error."""
        shown = {"picture": picture_view(upload), "view": None, "error": None}
        try:
            with collected_notes() as notes:
                view = self.view(upload, settings)
        except ExciteError as error:
            return {**shown, "error": sentence(error)}
        return {**shown, "view": {**view, "notes": [*view["notes"], *map(sentence, notes)]}}

    def view(self, upload: Upload, settings: Settings) -> dict[str, Any]:
        """The map of a concept or of a phrase."""
        question = settings.question.strip()
        self.service.check_texts([question, *settings.rivals])  # before they are parsed
        served_model = self.service.served_model(settings.model)
        if question and not _is_concept(served_model, question):
            if settings.rivals:
                raise ConceptError("a phrase has no contrast: ask for a single concept, or leave `but not` blank")
            (found,) = self.service.ground(
                upload, [question], model=settings.model, method=settings.for_phrases, layer=self.layer(settings)
            )
            return phrase_view(upload, found, settings.model)
        with self.service.concurrency.slot():
            concept = question or self.service.findings(upload, settings.model, 1, settings.for_words)[0].concept
            (one,) = self.service.attend(
                upload,
                [concept],
                model=settings.model,
                method=settings.for_words,
                layer=self.layer(settings),
                against=settings.rivals,
            )
            return map_view(upload, one)

    def grid(
        self, upload: Upload, model: str, concepts: str, methods: Sequence[str], layers: Sequence[str]
    ) -> dict[str, Any]:
        """Maps side by side: a row for each concept, a column for each method and layer."""
        shown: dict[str, Any] = {"picture": picture_view(upload), "rows": [], "error": None}
        try:
            with self.service.concurrency.slot(), collected_notes() as notes:
                rows = self._rows(upload, model, listed(concepts), methods, layers)
        except ExciteError as error:
            return {**shown, "error": sentence(error)}
        return {**shown, "rows": rows, "error": " ".join(map(sentence, notes)) or None}

    def _rows(
        self, upload: Upload, model: str, concepts: list[str], methods: Sequence[str], layers: Sequence[str]
    ) -> list[list[dict[str, Any]]]:
        wanted = concepts or [one.concept for one in self.service.findings(upload, model, 2)]
        cells = len(wanted) * len(methods) * max(1, len(layers))
        if not methods:
            raise MethodError("choose at least one method")
        if cells > MOST_CELLS:
            raise ConceptError(f"these are {cells} maps: choose fewer, at most {MOST_CELLS}")
        shown = {visible(name): name for name in self.service.served_model(model).layers}
        columns = [
            self.service.attend(upload, wanted, model=model, method=method, layer=layer)
            for method in methods
            for layer in ([shown.get(name, name) for name in layers] or (None,))
        ]
        return [[map_view(upload, column[k]) for column in columns] for k in range(len(wanted))]

    def layer(self, settings: Settings) -> str | None:
        """The name of the layer; None for the default one."""
        served_model = self.service.served_model(settings.model)
        if settings.layer is None or not 0 <= settings.layer < len(served_model.layers):
            return None
        name = served_model.layers[settings.layer]
        return None if name == served_model.layer else name

    @staticmethod
    def empty(error: Exception | None = None) -> dict[str, Any]:
        """The stage without an image."""
        return {"picture": None, "view": None, "error": None if error is None else sentence(error)}


def listed(text: str) -> list[str]:
    """Concepts, separated by commas.

    Example:
        >>> listed("cat, red apple,")
        ['cat', 'red apple']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def sentence(error: Exception | str) -> str:
    """An error or a note as a sentence.

    Example:
        >>> sentence(ValueError("there is no cat"))
        'There is no cat.'
    """
    text = str(error).strip()
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _is_concept(served_model: ServedModel, text: str) -> bool:
    """Whether a text is a concept of the classifier, or else a phrase; a `ConceptError` if no word of it is known."""
    labels = served_model.classifier.labels
    if labels is None:
        return True  # a number
    try:
        labels.find(text)
    except ConceptError:
        if not read_phrase(text, labels).words:  # a phrase has words that are no labels: "umpire", "surf board"
            raise
        return False
    return True


class Handlers:
    """The handlers of gradio's events: values of controls to values of components."""

    def __init__(self, answers: PageAnswers, reports: Sequence[Report]) -> None:
        self.answers = answers
        self.service = answers.service
        self.reports = {report.name: report for report in reports}

    def load(self, request: gr.Request) -> list[Any]:
        """The settings of a link, or those of a new page."""
        query = dict(request.query_params)
        model = query.get("model", "") if query.get("model") in self.service.models else self.service.default
        method = query.get("method", "") if query.get("method") in METHODS else USUAL
        layers = self.layer_slider(model)
        layers["value"] = _number(query.get("layer"), layers["value"], layers["maximum"])
        selection = {name: query[name] for name in ("example", "picture") if name in query}
        if not selection and self.answers.examples:
            selection = {"example": next(iter(self.answers.examples))}
        return [
            selection,
            model,
            query.get("question", ""),
            query.get("against", ""),
            gr.update(value=method, info=method_info(method)),
            gr.update(**{**layers, **self._layer_info(model, layers["value"])}),
            _number(query.get("opacity"), OPACITY, 100),
            query.get("colours") if query.get("colours") in TABLES else next(iter(TABLES)),
            [mark for mark in MARKS if "show" not in query or mark in query["show"].split(",")],
        ]

    def show_image(self, selection: Selection, *settings: Any) -> list[Any]:
        """Another image or classifier: everything is computed."""
        upload, error = self._find(selection)
        if upload is None:
            return [None, _numbered(selection, NO_FINDINGS), _numbered(selection, self.answers.empty(error))]
        kept = {**(selection or {}), "picture": upload.key}
        return [kept, *self.update_maps(kept, *settings)]

    def update_maps(self, selection: Selection, *settings: Any) -> list[Any]:
        """Another method or layer: the maps of the findings change too."""
        upload, error = self._find(selection)
        if upload is None:
            return [_numbered(selection, NO_FINDINGS), _numbered(selection, self.answers.empty(error))]
        chosen = Settings(*settings)
        found, shown = self.answers.findings(upload, chosen), self.answers.stage(upload, chosen)
        return [_numbered(selection, found), _numbered(selection, shown)]

    def ask(self, selection: Selection, *settings: Any) -> dict[str, Any]:
        """Another question about the same image: one backward pass."""
        upload, error = self._find(selection)
        shown = self.answers.empty(error) if upload is None else self.answers.stage(upload, Settings(*settings))
        return _numbered(selection, shown)

    def compare(
        self, selection: Selection, model: str, concepts: str, methods: list[str], layers: list[str]
    ) -> dict[str, Any]:
        """Maps side by side."""
        upload, error = self._find(selection)
        if upload is None:
            message = self.answers.empty(error)["error"] or "Drop an image first, on the other tab."
            return {"picture": None, "rows": [], "error": message}
        shown: dict[str, Any] = _sendable(self.answers.grid(upload, model, concepts, methods, layers))
        return shown

    def describe(self, _: Selection, *settings: Any) -> list[Any]:
        """The descriptions of the method and the layer."""
        chosen = Settings(*settings)
        layer = self._layer_info(chosen.model, chosen.layer or 0)
        return [gr.update(info=method_info(chosen.method)), gr.update(**layer)]

    def change_model(self, model: str) -> list[Any]:
        """The layers of another classifier."""
        return [
            gr.update(**self.layer_slider(model)),
            gr.update(choices=self.layer_choices(model), value=[]),
        ]

    def layer_choices(self, model: str) -> list[str]:
        """The layers of a classifier, as they are shown."""
        return list(map(visible, self.service.served_model(model).layers))

    def layer_slider(self, model: str) -> dict[str, Any]:
        """The slider over the layers of a classifier, at the default one."""
        served_model = self.service.served_model(model)
        index, last = served_model.layers.index(served_model.layer), len(served_model.layers) - 1
        return {"minimum": 0, "maximum": last, "step": 1, "value": index, **self._layer_info(model, index)}

    def report_frame(self, name: str) -> str:
        """A report in a frame without scripts."""
        if name not in self.reports:
            return "<p>There is no such report.</p>"
        address, title = for_html(self.reports[name].url), for_html(self.reports[name].title)
        return (
            f'<iframe class="report" src="{address}" title="{title}" sandbox="allow-same-origin"></iframe>'
            f'<p><a href="{address}" target="_blank" rel="noopener">Open {title} by itself</a></p>'
        )

    @staticmethod
    def select(event: gr.EventData) -> str:
        """The finding that was clicked."""
        return str(event.concept)

    def _layer_info(self, model: str, index: int) -> dict[str, Any]:
        served_model = self.service.served_model(model)
        name = served_model.layers[min(index, len(served_model.layers) - 1)]
        usual = "" if name == served_model.layer else f"; the usual one is {served_model.layer}"
        return {"label": visible(f"Layer {name}"), "info": visible(f"from the image to the words{usual}")}

    def _find(self, selection: Selection) -> tuple[Upload | None, ExciteError | None]:
        """The image, or the error if there is none."""
        try:
            return self.answers.find_upload(selection), None
        except ExciteError as error:
            return None, error


def _numbered(selection: Selection, shown: dict[str, Any]) -> dict[str, Any]:
    """An answer with the number of its event: answers may overtake each other, and the browser shows the latest."""
    return {**_sendable(shown), "turn": (selection or {}).get("turn", 0)}


def _sendable(value: Any) -> Any:
    """A value that gradio can send: it fails at text that is no UTF-8, which becomes escapes."""
    if isinstance(value, dict):
        return {name: _sendable(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(_sendable, value))
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def method_info(method: str) -> str:
    """The description of a method.

    Example:
        >>> method_info("usual")
        'c-mwp for a word, excite for a phrase'
    """
    return f"{WORD} for a word, {PHRASE} for a phrase" if method == USUAL else METHODS[method].description


def _number(text: str | None, default: int, most: int) -> int:
    """A number of a link, if it is one within its range."""
    return int(text) if text and text.isdecimal() and len(text) < 6 and int(text) <= most else default
