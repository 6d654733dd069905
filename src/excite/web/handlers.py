"""What happens when somebody touches a control: the values of all controls in, what is to be shown out."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import gradio as gr

from excite.errors import ExciteError
from excite.methods import METHODS
from excite.readouts.colours import TABLES
from excite.web.answers import PHRASE, USUAL, WORD, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.web.answers import Answers
    from excite.web.reports import Report
    from excite.web.uploads import Sheet

__all__ = ["CHOICES", "MARKS", "OPACITY", "Handlers", "method_told"]

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
        """A picture is there, or another classifier: everything is new."""
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
        """Another question about the same picture: one way down."""
        sheet, error = self._place(dropped)
        shown = self.answers.empty(error) if sheet is None else self.answers.stage(sheet, Settings(*settings))
        return _turned(dropped, shown)

    def compared(
        self, dropped: Dropped, model: str, concepts: str, methods: list[str], layers: list[str]
    ) -> dict[str, Any]:
        """Maps side by side."""
        sheet, error = self._place(dropped)
        if sheet is None:
            told = self.answers.empty(error)["error"] or "Drop a picture first, on the other tab."
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
        return {"label": f"Layer {name}", "info": f"from the picture to the words{usual}"}

    def _place(self, dropped: Dropped) -> tuple[Sheet | None, ExciteError | None]:
        """The picture that is asked about, or why there is none."""
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
