"""The page: its controls and components, and the handlers of their events."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import gradio as gr

from excite.io.text import for_html
from excite.methods import METHODS
from excite.readouts.overlay import TABLES
from excite.web.errors import UNEXPECTED
from excite.web.handlers import CHOICES, MARKS, OPACITY, Handlers, PageAnswers, method_info
from excite.web.log import LOG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from excite.web.reports import Report
    from excite.web.service import Service
    from excite.web.uploads import Example


SIDE_BY_SIDE = ["mwp", "c-mwp"]
LINKED = ["model", "question", "against", "method", "layer", "opacity", "colours", "show"]
MOST_EVENTS = 200  # in gradio's queue; the service has a limit of its own
SESSIONS = 100  # gradio keeps the state of each page, also when it is closed
MEANING = (
    "A map shows where the classifier's evidence for a word lies, not what is true. Images are kept in the server's "
    "memory only, for a while."
)
QUIET: dict[str, Any] = {"show_progress": "hidden", "trigger_mode": "always_last", "api_visibility": "private"}
ASKED = "(...values) => excite.asked(values)"  # adds the latest image and the number of the event
FAILED = "() => { excite.failed() }"
SET_LOOK = "(...looks) => { excite.setLook(...looks) }"
TEMPLATE_SIGNS = "$`{}\\@"  # of JavaScript's templates, of Handlebars, and of @children


def mount_page(
    app: FastAPI, service: Service, reports: Sequence[Report] = (), examples: Mapping[str, Example] | None = None
) -> FastAPI:
    """Put the page at ``/`` of a web application, beside its other addresses."""
    blocks = _Page(Handlers(PageAnswers(service, examples or {}), reports)).build()
    blocks.queue(default_concurrency_limit=service.limits.at_once + service.limits.waiting, max_size=MOST_EVENTS)
    blocks.state_session_capacity = SESSIONS
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        blocks,
        path="/",
        css=style(),
        head=script(),
        theme=gr.themes.Default(
            primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
        ),
        footer_links=[],
        show_error=False,  # errors of excite are shown by the page itself
        ssr_mode=False,
        allowed_paths=[],
        pwa=False,
    )
    return mounted


class _Blocks(gr.Blocks):  # type: ignore[misc]  # gradio has no types
    """Logs errors of events as all others: gradio would print the values of the controls."""

    async def process_api(self, *arguments: Any, **more: Any) -> Any:
        """Handle an event."""
        try:
            return await super().process_api(*arguments, **more)
        except Exception:  # noqa: BLE001 - logged
            LOG.exception("unexpected error")
            raise gr.Error(UNEXPECTED, visible=False, print_exception=False) from None


class _Page:
    """The layout, and the events of its controls."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.service = handlers.service

    def build(self) -> gr.Blocks:
        blocks = _Blocks(title="excite", analytics_enabled=False, fill_width=True)
        with blocks:
            gr.Markdown("# excite\nWhere in this image is the evidence for that concept?", elem_id="headline")
            with gr.Tabs():
                with gr.Tab("Look"), gr.Row(elem_id="look"):
                    with gr.Column(scale=2, min_width=300):
                        self._questions()
                    with gr.Column(scale=3, min_width=320):
                        self._answer()
                with gr.Tab("Side by side") as self.beside:
                    self._side_by_side()
                if self.handlers.reports:
                    with gr.Tab("Reports"):
                        self._reports()
            gr.Markdown(f"{MEANING} [For programs](docs)")
            self._connect(blocks)
        return blocks

    def _questions(self) -> None:
        names = list(self.service.models)
        self.drop = drop_area(self.handlers.answers.examples)
        self.question = gr.Textbox(
            label="Look for",
            placeholder="a word or a phrase: cat, the left dog, a man in a red hat",
            elem_id="question",
        )
        self.against = gr.Textbox(label="But not", placeholder="another concept to contrast with", elem_id="against")
        self.go = gr.Button("Show me", variant="primary", size="sm", elem_id="go")
        gr.Markdown("**What the classifier finds**", elem_id="findings-title")
        self.findings = finding_list()
        with gr.Row(elem_classes="settings"):
            self.model = gr.Dropdown(
                names, value=names[0], label="Classifier", interactive=len(names) > 1, elem_id="model"
            )

    def _answer(self) -> None:
        self.stage = stage()
        with gr.Row(elem_classes="settings"):
            self.method = gr.Dropdown(
                CHOICES, value=CHOICES[0], label="Method", info=method_info(CHOICES[0]), elem_id="method"
            )
            self.layer = gr.Slider(
                **self.handlers.layer_slider(self.service.default), precision=0, buttons=[], elem_id="layer"
            )
        with gr.Row(elem_classes="settings"):
            self.opacity = gr.Slider(0, 100, value=OPACITY, step=1, label="Opacity, %", elem_id="opacity")
            self.colours = gr.Dropdown(list(TABLES), value=next(iter(TABLES)), label="Colours", elem_id="colours")
            self.marks = gr.CheckboxGroup(MARKS, value=MARKS, label="Show", elem_id="marks")
        with gr.Row(elem_classes="settings"):
            self.share = gr.Button("Copy a link to this", size="sm", elem_id="share")
            self.address = gr.Textbox(label="Link", visible=False, interactive=False, elem_id="address")

    def _side_by_side(self) -> None:
        with gr.Row():
            self.concepts = gr.Textbox(
                label="Concepts", placeholder="cat, dog; the first two findings if none", elem_id="concepts"
            )
            self.methods = gr.Dropdown(
                list(METHODS), value=SIDE_BY_SIDE, multiselect=True, label="Methods", elem_id="methods"
            )
            layers = self.handlers.layer_choices(self.service.default)
            self.layers = gr.Dropdown(layers, value=[], multiselect=True, label="Layers", elem_id="layers")
        self.compare = gr.Button("Compare", variant="primary", elem_id="compare")
        self.grid = map_grid()

    def _reports(self) -> None:
        titles = [(report.title, report.name) for report in self.handlers.reports.values()]
        chosen = gr.Dropdown(titles, value=titles[0][1], label="Report", elem_id="report")
        shown = gr.HTML(self.handlers.report_frame(titles[0][1]))
        chosen.input(self.handlers.report_frame, chosen, shown, **QUIET)

    def _connect(self, blocks: gr.Blocks) -> None:
        do = self.handlers
        settings = [self.drop, self.model, self.question, self.against, self.method, self.layer]
        looks = [self.opacity, self.colours, self.marks]
        whole = [self.drop, self.findings, self.stage]
        opened = blocks.load(do.load, None, [*settings, *looks], **QUIET)
        shown = opened.then(do.show_image, settings, whole, js=ASKED, **QUIET)
        shown.then(None, looks, None, js=SET_LOOK)
        dropped = self.drop.upload(lambda: ("", ""), None, [self.question, self.against], **QUIET)
        taken = dropped.then(do.show_image, settings, whole, js=ASKED, **QUIET)
        changed = self.model.input(do.change_model, self.model, [self.layer, self.layers], **QUIET)
        seen = changed.then(do.show_image, settings, whole, js=ASKED, **QUIET)
        chosen = self.findings.select(do.select, None, self.question, **QUIET)
        picked = chosen.then(do.ask, settings, self.stage, js=ASKED, **QUIET)
        asking = [self.question.submit, self.against.submit, self.go.click]
        asked = gr.on(asking, do.ask, settings, self.stage, js=ASKED, **QUIET)
        gr.on([self.method.input, self.layer.input], do.describe, settings, [self.method, self.layer], **QUIET)
        other = [self.method.input, self.layer.input]
        again = gr.on(other, do.update_maps, settings, [self.findings, self.stage], js=ASKED, **QUIET)
        gr.on([self.opacity.change, self.colours.change, self.marks.change], None, looks, None, js=SET_LOOK)
        beside = [self.drop, self.model, self.concepts, self.methods, self.layers]
        comparing = [self.beside.select, self.compare.click, self.concepts.submit]
        compared = gr.on(comparing, do.compare, beside, self.grid, js=ASKED, **QUIET)
        for each in (shown, taken, seen, picked, asked, again, compared):
            each.failure(None, None, None, js=FAILED)
        linked = f"(drop, ...values) => excite.link(drop, {LINKED}, values)"
        shared = self.share.click(None, [*settings, *looks], self.address, js=linked)
        shared.then(lambda: gr.update(visible=True), None, self.address, **QUIET)


# Components that gradio does not have.


def script() -> str:
    """The page's own script, with the tables of colours."""
    tables = {name: table().ravel().tolist() for name, table in TABLES.items()}
    code = _asset("page.js").replace("/*TABLES*/ {}", json.dumps(tables, separators=(",", ":")))
    return f"<script>{code}</script>"


def style() -> str:
    """The page's own style."""
    return _asset("page.css")


def drop_area(examples: Mapping[str, Example]) -> gr.HTML:
    """The area to drop or pick images; its value names the image, its event is ``upload``."""
    return _component(
        f"""
        <label class="drop"><input type="file" accept="image/*" aria-label="Choose an image">
          <b>Drop an image here</b> or choose a file, or paste one</label>
        <p class="drop-told" role="status"></p>
        <ul class="examples" aria-label="Examples">{"".join(_example(one) for one in examples.values())}</ul>""",
        "excite.drop(element, trigger)",
        elem_id="drop",
    )


def finding_list() -> gr.HTML:
    """The classifier's findings; the event is ``select``, with the concept."""
    return _component(
        '<ul class="findings" aria-label="What the classifier finds"></ul>',
        "watch('value', excite.findings(element, props, trigger))",
        elem_id="findings",
    )


def stage() -> gr.HTML:
    """The image with its map, its caption, and files to download."""
    return _component(
        """
        <div class="stage">
          <canvas role="img" aria-label="No image yet" width="900" height="600"></canvas>
          <div class="stage-caption" role="status">
            <div><span class="stage-title"></span> <span class="stage-about"></span></div>
            <div class="stage-notes"></div>
            <div class="stage-error"></div>
          </div>
          <div class="stage-words" hidden>Words: <span class="chips"></span></div>
          <div class="stage-regions" hidden>Regions, best first: <span class="chips"></span></div>
          <div class="stage-files" hidden>Download:
            <button type="button" data-file="overlay">overlay</button>
            <button type="button" data-file="map">map</button>
            <button type="button" data-file="npy">values</button>
            <button type="button" data-file="json">JSON</button>
          </div>
        </div>""",
        "watch('value', excite.stage(element, props))",
        elem_id="stage",
    )


def map_grid() -> gr.HTML:
    """Maps side by side."""
    return _component(
        '<p class="grid-error" role="status"></p><div class="grid"></div>',
        "watch('value', excite.grid(element, props))",
        elem_id="grid",
    )


def _component(template: str, on_load: str, **more: Any) -> gr.HTML:
    """A component that is drawn once, and updated by its own script."""
    return gr.HTML(html_template=template, js_on_load=on_load, apply_default_css=False, **more)


def _example(example: Example) -> str:
    name, title = inert(example.name), inert(example.title)
    return (
        f'<li><button type="button" data-example="{name}" title="{title}">'
        f'<img src="{example.thumbnail()}" alt="Example: {title}"></button></li>'
    )


def inert(text: str) -> str:
    """Text for a template of gradio, which would evaluate ``${...}`` and ``{{...}}``.

    Example:
        >>> inert("${a} <b>")
        '&#36;&#123;a&#125; &lt;b&gt;'
    """
    return "".join(f"&#{ord(sign)};" if sign in TEMPLATE_SIGNS else sign for sign in for_html(text))


def _asset(name: str) -> str:
    return files("excite.web").joinpath("assets", name).read_text(encoding="utf-8")
