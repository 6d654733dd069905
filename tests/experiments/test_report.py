"""The parts of pages: tables, images and figures."""

import base64
import io
import re

from matplotlib.figure import Figure
from pages import Page
from PIL import Image

from excite.experiments.report.figures import FAINT, INK
from excite.experiments.report.page import page_templates, shown_jpeg, svg
from excite.experiments.report.tables import DASH, Table, heated, ranked
from excite.metrics.statistics import Estimate

ATTACK = "<script>alert(\"1\")</script> & 'co'"


def part(text, **values):
    """Some parts of pages, rendered."""
    template = '{% import "parts.html" as parts with context %}' + text
    return page_templates().from_string(template).render(headings=[], **values)


PHOTO = Image.radial_gradient("L").resize((300, 150))


def test_a_table_names_its_rows_and_columns():
    content = Table(["method", "All", "Diff"], [["c-mwp", "1", "2"]], [("", 1), ("net", 2)], [["mean", "3", "4"]])
    made = part("{{ parts.table(table, 'Hits') }}", table=content)
    tags = Page(made).tags
    scopes = [attributes["scope"] for tag, attributes in tags if tag == "th"]
    assert scopes == ["colgroup", "colgroup", "col", "col", "col", "row", "row"]
    assert re.findall(r"<td>(.)</td>", made) == ["1", "2", "3", "4"]
    assert tags[0] == ("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": "Hits"})
    assert part("{{ parts.table(none, 'Hits') }}").strip() == ""


def test_cells():
    """The best and the second best, as they are shown; zeros need not count."""
    cells = ranked([Estimate(50.0, 40.0, 60.0), 62.0, None, 61.96])
    assert [(cell.text, cell.small, cell.rank) for cell in cells] == [
        ("50.0", f"40.0{DASH}60.0", 2),
        ("62.0", "", 1),
        (DASH, "", 0),
        ("62.0", "", 1),
    ]
    assert [cell.rank for cell in ranked([5.0, 0.0, 0.0], zeros=False)] == [0, 0, 0]
    assert [cell.rank for cell in ranked([5.0, 1.0], highest=False)] == [2, 1]
    assert [(cell.rank, cell.heat) for cell in heated([0.0, None, 0.0])] == [(0, 0.0), (0, None), (0, 0.0)]
    assert '<span class="heat" style="--share: 35%"><strong>50.0</strong></span>' in part(
        "{{ parts.table(table, '') }}", table=Table(["a", "b"], [["x", *heated([50.0])]])
    )


def test_a_picture_is_inside_the_page():
    kind, content = shown_jpeg(PHOTO, 100)[2].split(",")
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        assert (kind, image.format, image.size) == ("data:image/jpeg;base64", "JPEG", (100, 50))
    assert shown_jpeg(PHOTO, 400)[:2] == (300, 150)  # never larger than it is


def line_figure():
    figure = Figure(figsize=(3, 2))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=INK, marker="o", label="a < b")
    axes.plot([0, 1], [1, 1], color=FAINT)
    axes.set_title("<script>$x", parse_math=False)
    axes.legend()
    return figure


def test_a_drawing_takes_the_colours_of_the_page():
    made = svg(line_figure(), ATTACK)
    assert dict(Page(made).tags)["svg"]["aria-label"] == ATTACK
    assert "currentColor" in made
    assert "var(--line)" in made
    assert not [word for word in (INK.lower(), FAINT.lower(), "<script") if word in made]
    assert "&lt;script&gt;$x" in made  # text is text, not outlines of letters


def test_a_drawing_is_the_same_each_time_and_its_names_are_its_own():
    first, other = svg(line_figure(), "one"), svg(line_figure(), "two")
    assert first == svg(line_figure(), "one")
    named = [set(re.findall(r' id="([^"]+)"', made)) for made in (first, other)]
    assert all(named)
    assert not named[0] & named[1]
