"""The parts of the page that gradio does not have: a place to drop pictures, findings, the stage, maps side by side."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import gradio as gr

from excite.readouts.colours import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.web.examples import Example

__all__ = ["drop_area", "finding_list", "inert", "map_grid", "script", "stage", "style"]

TEMPLATE_SIGNS = "$`{}\\@"  # of JavaScript's templates, of Handlebars, and of @children


def script() -> str:
    """The page's own script, with the tables of colours."""
    tables = {name: table().ravel().tolist() for name, table in TABLES.items()}
    code = _asset("page.js").replace("/*TABLES*/ {}", json.dumps(tables, separators=(",", ":")))
    return f"<script>{code}</script>"


def style() -> str:
    """The page's own style."""
    return _asset("page.css")


def drop_area(examples: Mapping[str, Example]) -> gr.HTML:
    """Where pictures are dropped or picked; its value names the picture, its event is ``upload``."""
    return _component(
        f"""
        <label class="drop"><input type="file" accept="image/*" aria-label="Choose a picture">
          <b>Drop a picture here</b> or choose a file, or paste one</label>
        <p class="drop-told" role="status"></p>
        <ul class="examples" aria-label="Examples">{"".join(_example(one) for one in examples.values())}</ul>""",
        "excite.drop(element, trigger)",
        elem_id="drop",
    )


def finding_list() -> gr.HTML:
    """What the classifier finds; its event is ``select``, with the concept."""
    return _component(
        '<ul class="findings" aria-label="What the classifier finds"></ul>',
        "watch('value', excite.findings(element, props, trigger))",
        elem_id="findings",
    )


def stage() -> gr.HTML:
    """The picture with its map, what there is to say about it, and its files."""
    return _component(
        """
        <div class="stage">
          <canvas role="img" aria-label="No picture yet" width="900" height="600"></canvas>
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
    """A component that is drawn once, and follows its value by its own script."""
    return gr.HTML(html_template=template, js_on_load=on_load, apply_default_css=False, **more)


def _example(example: Example) -> str:
    name, title = inert(example.name), inert(example.title)
    return (
        f'<li><button type="button" data-example="{name}" title="{title}">'
        f'<img src="{example.thumbnail()}" alt="Example: {title}"></button></li>'
    )


def inert(text: str) -> str:
    """Text for a template of gradio, which would run what stands in ``${...}`` or ``{{...}}``.

    Example:
        >>> inert("${a} <b>")
        '&#36;&#123;a&#125; &lt;b&gt;'
    """
    return "".join(f"&#{ord(sign)};" if sign in TEMPLATE_SIGNS else sign for sign in html.escape(text))


def _asset(name: str) -> str:
    return files("excite.web").joinpath("assets", name).read_text(encoding="utf-8")
