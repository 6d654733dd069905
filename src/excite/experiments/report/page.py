"""Reports of experiments: their tables, sentences and pages."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from PIL import Image

from excite.errors import visible
from excite.experiments import published
from excite.experiments.base import ExperimentRun, left_out_lines
from excite.experiments.report.figures import FAINT, INK, AnyRow, check_plots
from excite.experiments.report.tables import Lines, csv_table, text_table
from excite.io.files import save_json, save_text
from excite.io.text import for_html, templates_of
from excite.metrics.statistics import RESAMPLES
from excite.readouts.notebook import data_address, jpeg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from jinja2 import Environment
    from markupsafe import Markup


AnyRun = TypeVar("AnyRun", bound=ExperimentRun)


class Report(ABC, Generic[AnyRun]):
    """The results of an experiment on one or several networks, as files and in words."""

    name: ClassVar[str]  # of the page and of its template

    def __init__(self, runs: Sequence[AnyRun]) -> None:
        self.runs, self.first, self.about = runs, runs[0], runs[0].about
        self.several = len(runs) > 1

    @abstractmethod
    def answer(self) -> dict[str, Any]:
        """All results as plain values for JSON, independent of time and machine."""

    @abstractmethod
    def tables(self) -> list[tuple[str, Lines]]:
        """The tables in the terminal, each with its title."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """What was measured, and what was left out and why."""

    @abstractmethod
    def spreadsheets(self) -> dict[str, Lines]:
        """Tables by the names of their CSV files."""

    @abstractmethod
    def markdown(self) -> list[str]:
        """The paragraphs of ``table.md``."""

    def printed(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return self.answer()

    def spoken(self) -> list[str]:
        """The lines after the tables in the terminal."""
        return self.sentences()

    def left_out(self, run: AnyRun) -> list[str]:
        """What the run of a network left out and why."""
        return left_out_lines(run.about["left_out"])

    def failures(self) -> list[str]:
        """A line for each unreadable image or annotation, each once."""
        return list(dict.fromkeys(failure for run in self.runs for failure in run.about["failures"]))

    def per_network(self, *keys: str) -> dict[str, dict[str, Any]]:
        """For each key of the runs' facts its value for each network."""
        return {key: {run.classifier_name: run.about[key] for run in self.runs} for key in keys}

    def rivals(
        self, rows: Sequence[AnyRow], main: str, rating: Callable[[AnyRow], float]
    ) -> Iterator[tuple[AnyRun, AnyRow, AnyRow]]:
        """For each network that has both: the row of the main method, and the lowest rated of the others."""
        for run in self.runs:
            found = {row.method: row for row in rows if row.model == run.classifier_name}
            own = found.pop(main, None)
            if own is not None and found:
                yield run, own, min(found.values(), key=rating)

    def write_tables(self, out: Path) -> list[Path]:
        """Write ``rows.json``, the spreadsheets and ``table.md``; the same values give the same bytes."""
        texts = {name: csv_table(lines) for name, lines in self.spreadsheets().items()}
        texts["table.md"] = "\n\n".join(self.markdown()) + "\n"
        return [save_json(self.answer(), out / "rows.json"), *(save_text(texts[name], out / name) for name in texts)]

    def write_page(self, out: Path, command: str = "") -> Path:
        """Write the page, with the command that makes it again; the same runs give the same bytes."""
        check_plots()
        facts = {"report": self, "runs": self.runs, "published": published, "resamples": RESAMPLES, "command": command}
        return write_page(out / f"{self.name}.html", f"{self.name}.html", **facts)


def write_page(path: Path, template: str, **content: Any) -> Path:
    """Write the page of a template; the same content gives the same bytes."""
    return save_text(page_templates().get_template(template).render(content, headings=[]), path)


@cache
def page_templates() -> Environment:
    """The templates of pages, with filters for figures of matplotlib and for images."""
    environment = templates_of("excite.experiments.report")
    environment.filters |= {"svg": svg, "jpeg": shown_jpeg, "as_table": text_table}
    return environment


def shown_jpeg(image: Image.Image, width: int) -> tuple[int, int, str]:
    """The width and height of an image as it is shown, at most ``width`` pixels wide, and its JPEG as a data URL."""
    shown = image.convert("RGB")
    if shown.width > width:
        shown = shown.resize((width, max(1, round(shown.height * width / shown.width))), Image.Resampling.LANCZOS)
    return *shown.size, data_address("image/jpeg", jpeg(shown, 80))


def svg(figure: Any, alt: str) -> Markup:
    """A figure of matplotlib as an SVG, in the page's own ink and with text as text; ``alt`` is unique on a page."""
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
    style = f"min-width: {figure.get_figwidth() * 72 * 0.8:.0f}pt"  # so that its text stays legible
    named = f'<svg role="img" aria-label="{for_html(alt)}" style="{style}" '
    return Markup(text.replace("<svg ", named, 1).strip())  # noqa: S704 - matplotlib has escaped the labels
