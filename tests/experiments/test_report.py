"""Pages that are one file: nothing that is text becomes code, and nothing is fetched."""

import base64
import io
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from PIL import Image

from excite.experiments.report.examples import Panel, Strip
from excite.experiments.report.figures import FAINT, INK
from excite.experiments.report.page import page_templates, shown_jpeg, svg, write_page
from excite.experiments.report.tables import DASH, Cell, Table, heated, ranked
from excite.metrics.statistics import Estimate

ATTACK = "<script>alert(\"1\")</script> & 'co'"
WITHOUT_END = {"meta", "img", "br"}
ATTRIBUTES = {
    *("id", "class", "href", "lang", "name", "content", "charset", "alt", "src", "width", "height"),
    *("colspan", "scope", "tabindex", "role", "aria-label", "style"),
}


class Tags(HTMLParser):
    """Checks that every element is closed in turn, and keeps the tags."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in WITHOUT_END else [tag]

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def part(text, **values):
    """Some parts of pages, rendered."""
    template = '{% import "parts.html" as parts with context %}' + text
    return page_templates().from_string(template).render(headings=[], attack=ATTACK, **values)


PHOTO = Image.radial_gradient("L").resize((300, 150))
HOSTILE_TABLE = Table([ATTACK] * 2, [[ATTACK, Cell(ATTACK, ATTACK, 1, 50.0)]], [(ATTACK, 2)], [[ATTACK, ATTACK]])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{{ parts.table(table, attack) }}", {"table": HOSTILE_TABLE}),
        ("{{ parts.bullets([attack]) }}{{ parts.lines_or_nothing([attack] * 30) }}", {}),
        ("{% call parts.section(attack) %}{{ attack }}{% endcall %}", {}),
        ("{% call parts.how_to_read(attack) %}{{ attack }}{% endcall %}", {}),
        ("{{ parts.examples({attack: strips, 'none': []}) }}", {"strips": [Strip(ATTACK, ATTACK, trouble=ATTACK)]}),
        (
            "{{ parts.examples({attack: [strip, strip]}) }}",
            {"strip": Strip(ATTACK, ATTACK, (Panel(PHOTO, ATTACK, ATTACK, (ATTACK, ATTACK)),) * 2)},
        ),
    ],
)
def test_text_stays_text(text, values):
    made = part(text, **values)
    assert "script" in made
    assert "<script" not in made
    assert all(set(attributes) <= ATTRIBUTES for _, attributes in Tags(made).tags)


def test_a_table_names_its_rows_and_columns():
    content = Table(["method", "All", "Diff"], [["c-mwp", "1", "2"]], [("", 1), ("net", 2)], [["mean", "3", "4"]])
    made = part("{{ parts.table(table, 'Hits') }}", table=content)
    tags = Tags(made).tags
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
    assert dict(Tags(made).tags)["svg"]["aria-label"] == ATTACK
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


def test_a_page_fetches_nothing_and_fits_everywhere(tmp_path):
    class Report:
        model, method, pictures = ATTACK, "mwp", 3

        def summary(self):
            return "Yes."

    path = write_page(
        tmp_path / "page.html",
        "check.html",
        report=Report(),
        curves=line_figure(),
        titles=["a"],
        verdicts={},
        tables={},
        facts=[(ATTACK, ATTACK)],
        command="",
    )
    made = path.read_text()
    assert made.startswith("<!DOCTYPE html>\n")
    tags = Tags(made.partition("\n")[2]).tags
    assert not {"script", "link", "iframe"} & {tag for tag, _ in tags}
    addresses = [attributes[name] for _, attributes in tags for name in ("src", "href") if name in attributes]
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"url\((?!#)|@import", made)
    assert all(
        word in made for word in ("prefers-color-scheme: dark", "@media print", "width=device-width", 'lang="en"')
    )
    targets = {attributes["id"] for _, attributes in tags if "id" in attributes}
    assert {attributes["href"][1:] for tag, attributes in tags if tag == "a"} <= targets
