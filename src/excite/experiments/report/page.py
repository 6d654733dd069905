"""Pages of results, one file each: they fetch nothing, fit a phone and paper, and have a dark mode.

What is on them is in ``templates``: ``page.html`` is the skeleton, ``parts.html`` has tables, figures and examples,
``style.css`` is their look, and each experiment has a template of its own.
"""

from __future__ import annotations

import io
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from excite.errors import visible
from excite.experiments.report.figures import FAINT, INK
from excite.io.files import save_text
from excite.io.text import for_html, templates_of
from excite.readouts.notebook import data_address, jpeg

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Environment
    from markupsafe import Markup


LEAST_SCALE = 0.8  # a figure is not shrunk further, so that its text stays legible
QUALITY = 80  # of the JPEGs


def write_page(path: Path, template: str, **content: Any) -> Path:
    """Write the page of a template; the same content gives the same bytes."""
    return save_text(page_templates().get_template(template).render(content, headings=[]), path)


@cache
def page_templates() -> Environment:
    """The templates of pages, with filters for figures of matplotlib and for images."""
    environment = templates_of("excite.experiments.report")
    environment.filters |= {"svg": svg, "jpeg": shown_jpeg}
    return environment


class ShownJpeg(NamedTuple):
    """An image as it is shown: its size, and its content as a data URL."""

    width: int
    height: int
    address: str


def shown_jpeg(image: Image.Image, width: int) -> ShownJpeg:
    """An image as a JPEG, at most ``width`` pixels wide.

    Example:
        >>> shown_jpeg(Image.new("RGB", (64, 48)), 32)[:2]
        (32, 24)
    """
    shown = image.convert("RGB")
    if shown.width > width:
        shown = shown.resize((width, max(1, round(shown.height * width / shown.width))), Image.Resampling.LANCZOS)
    return ShownJpeg(*shown.size, data_address("image/jpeg", jpeg(shown, QUALITY)))


def svg(figure: Any, alt: str) -> Markup:
    """A figure of matplotlib as an SVG: its text stays text, its ink and faint lines are the page's own.

    Args:
        figure: drawn in the colours of `excite.experiments.report.figures`.
        alt: alternative text; unique among the figures of a page.
    """
    import matplotlib as mpl
    from markupsafe import Markup

    content = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # the same figure, the same bytes
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": alt}):
        figure.savefig(content, format="svg", transparent=True, metadata=nothing)
    text = content.getvalue()
    text = "\n".join(map(visible, text[text.index("<svg") :].split("\n")))  # labels may hold control characters
    text = text.replace(INK.lower(), "currentColor").replace(FAINT.lower(), "var(--line)")
    unused = {name for name in re.findall(r' id="([^"]+)"', text) if f"#{name}" not in text}
    text = re.sub(r' id="([^"]+)"', lambda found: "" if found[1] in unused else found[0], text)
    style = f"min-width: {figure.get_figwidth() * 72 * LEAST_SCALE:.0f}pt"
    named = f'<svg role="img" aria-label="{for_html(alt)}" style="{style}" '
    return Markup(text.replace("<svg ", named, 1).strip())  # noqa: S704 - matplotlib has escaped the labels
