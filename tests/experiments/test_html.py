"""Pages that are one file: nothing that is text becomes code, and nothing is fetched."""

import base64
import io
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from PIL import Image

from excite.experiments.report.figures import FAINT, INK
from excite.experiments.report.html import Html, drawing, element, joined, page, picture, table

ATTACK = "<script>alert(\"1\")</script> & 'co'"
WITHOUT_END = {"meta", "img", "br"}
ATTRIBUTES = {
    *("id", "class", "href", "lang", "name", "content", "charset", "alt", "src", "width", "height"),
    *("colspan", "scope", "tabindex", "role", "aria-label", "title"),
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


@pytest.mark.parametrize(
    "made",
    [
        element("p", ATTACK),
        element("p", "text", title=ATTACK),
        joined([ATTACK]),
        table(ATTACK, [ATTACK, ATTACK], [[ATTACK, ATTACK]], groups=[(ATTACK, 2)], foot=[[ATTACK, ATTACK]]),
        picture(Image.new("RGB", (2, 2)), ATTACK, width=2),
        page(ATTACK, ATTACK, [(ATTACK, element("p", ATTACK))]),
    ],
)
def test_text_stays_text(made):
    assert "script" in made
    assert "<script" not in made
    assert all(set(attributes) <= ATTRIBUTES for _, attributes in Tags(made).tags)


def test_html_is_not_escaped_twice():
    assert element("p", element("b", "1 < 2"), Html("<br>")) == "<p><b>1 &lt; 2</b><br></p>"


def test_a_table_names_its_rows_and_columns():
    made = table(
        "Hits",
        ["method", "All", "Diff"],
        [["c-mwp", "1", "2"]],
        groups=[("", 1), ("net", 2)],
        foot=[["mean", "3", "4"]],
    )
    tags = Tags(made).tags
    assert [attributes["scope"] for tag, attributes in tags if tag == "th"] == [
        *("colgroup", "colgroup"),
        *("col", "col", "col"),
        *("row", "row"),
    ]
    assert re.findall(r"<td>(.)</td>", made) == ["1", "2", "3", "4"]
    assert tags[0] == ("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": "Hits"})
    assert ("th", {"colspan": "2", "scope": "colgroup"}) in tags


def test_a_picture_is_inside_the_page():
    photo = Image.radial_gradient("L").resize((300, 150))
    made = picture(photo, "a ring", width=100)
    ((_, attributes),) = Tags(made).tags
    kind, content = attributes["src"].split(",")
    with Image.open(io.BytesIO(base64.b64decode(content))) as shown:
        assert (kind, shown.format, shown.size) == ("data:image/jpeg;base64", "JPEG", (100, 50))
    assert (attributes["alt"], attributes["width"], attributes["height"]) == ("a ring", "100", "50")
    assert 'width="300"' in picture(photo, "a ring", width=400)  # never larger than it is


def line_figure():
    figure = Figure(figsize=(3, 2))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=INK, marker="o", label="a < b")
    axes.plot([0, 1], [1, 1], color=FAINT)
    axes.set_title("<script>$x", parse_math=False)
    axes.legend()
    return figure


def test_a_drawing_takes_the_colours_of_the_page():
    made = drawing(line_figure(), "a line")
    tags = Tags(made).tags
    assert dict(tags)["svg"]["aria-label"] == "a line"
    assert "currentColor" in made
    assert "var(--line)" in made
    assert INK.lower() not in made
    assert FAINT.lower() not in made
    assert "&lt;script&gt;$x" in made  # text is text, not outlines of letters


def test_a_drawing_is_the_same_each_time_and_its_names_are_its_own():
    first, other = drawing(line_figure(), "one"), drawing(line_figure(), "two")
    assert first == drawing(line_figure(), "one")
    named = [set(re.findall(r' id="([^"]+)"', made)) for made in (first, other)]
    assert all(named)
    assert not named[0] & named[1]


def test_a_page_fetches_nothing_and_fits_everywhere():
    made = page("Title", "About.", [("One", drawing(line_figure(), "a line")), ("Two", element("p", "text"))])
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
