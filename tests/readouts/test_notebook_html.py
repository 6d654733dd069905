"""What a notebook shows of a map and of a phrase."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

from excite.attention import AttentionMap
from excite.grounding import Grounded, PhraseMap, Region
from excite.vocabulary import Labels, read_phrase

HOSTILE = """<script>alert('1')</script> & "cat" </td></table>"""


class Page(HTMLParser):
    """The tags of a page, its image, and the text of its cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.cells, self.image = [], [], [], None
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "img":
            self.image = dict(attrs)
            return
        self.open.append(tag)
        if tag in {"th", "td"}:
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        assert self.open[-1] in {"th", "td"}
        self.cells[-1] += data

    @property
    def table(self):
        return dict(zip(self.cells[::2], self.cells[1::2], strict=True))

    @property
    def picture(self):
        kind, _, content = self.image["src"].partition(";base64,")
        assert kind == "data:image/jpeg"
        with Image.open(io.BytesIO(base64.b64decode(content, validate=True))) as picture:
            assert picture.size == (int(self.image["width"]), int(self.image["height"]))
            return picture.convert("RGB")


def spot(x=3, y=1, width=7, height=5):
    values = torch.zeros(height, width)
    values[y, x] = 0.75
    return values


def a_map(values=None, size=(960, 640), colour=(0, 0, 0), **changes):
    fields = {"concept": "tabby", "layer": "pool4", "method": "c-mwp", "mass": 0.5, "image_size": size}
    image = None if colour is None else Image.new("RGB", size, colour)
    return AttentionMap(spot() if values is None else values, **{**fields, "image": image, **changes})


def page_of(one):
    return Page(one._repr_html_())


def test_says_what_the_map_says():
    one = a_map(probability=0.874)
    (x, y), (x0, y0, x1, y1) = one.point(), one.box()
    assert page_of(one).table == {
        "concept": "tabby",
        "probability": "87%",
        "point": f"{x}, {y}",
        "box": f"{x0}, {y0}, {x1}, {y1}",
        "mass": "0.500",
        "layer": "pool4",
        "method": "c-mwp",
    }
    place = f"most at {x}, {y}, strong within {x0}, {y0} to {x1}, {y1}, in 960 x 640 pixels"
    assert page_of(one).image["alt"] == f"Where the evidence for tabby is: {place}."


SIZES = {(960, 640): (480, 320), (300, 2000): (72, 480), (400, 300): (400, 300), (24, 12): (240, 120)}


@pytest.mark.parametrize(("size", "expected"), [*SIZES.items(), ((10_000, 1), (480, 1)), ((1, 1), (240, 240))])
def test_is_neither_large_nor_tiny(size, expected):
    assert page_of(a_map(size=size)).picture.size == expected
    assert page_of(a_map(size=size, colour=None)).picture.size == expected


def test_is_the_overlay_with_its_marks():
    one = a_map()
    seen = np.asarray(page_of(one).picture).astype(int)
    x, y = (at // 2 for at in one.point())
    assert seen[y, x].min() > 180  # the dot in the middle of the ring
    x0, y0, x1, y1 = (round(at / 2) for at in one.box())
    assert seen[(y0 + y1) // 2, x0].min() > 150  # the left side of the box
    assert seen[(y0 + y1) // 2, x1 - 1].min() > 150
    assert seen[:, : x0 - 4].max() < 60  # a black image elsewhere


def test_without_a_picture_the_map_alone():
    right = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    seen = np.asarray(page_of(a_map(right, colour=None, size=(400, 400))).picture).astype(int)
    assert seen[200, 50].max() < 50
    red, green, blue = seen[200, 350]  # yellow, far from the ring at the upper edge
    assert (red > 150, green > 150, blue < 130) == (True, True, True)


def test_without_evidence():
    page = page_of(a_map(torch.zeros(3, 3), mass=0.0))
    assert (page.table["point"], page.table["box"], page.table["probability"]) == ("no evidence", "none", "not known")
    assert page.image["alt"] == "No evidence for tabby in this image."


def test_text_stays_text():
    page = page_of(a_map(**dict.fromkeys(("concept", "layer", "method"), HOSTILE)))
    assert [page.table[field] for field in ("concept", "layer", "method")] == [HOSTILE] * 3
    assert set(page.tags) == {"div", "img", "table", "tbody", "tr", "th", "td"}
    html = a_map(concept="odd \udcff name")._repr_html_()
    assert html.encode(), "half a letter can be sent"
    assert Page(html).table["concept"] == r"odd \udcff name"


def test_has_no_colours_of_its_own():
    """Black text would be lost in a dark notebook."""
    styles = re.findall(r'style="([^"]*)"', a_map()._repr_html_())
    assert styles
    for style in styles:
        assert not re.search(r"color|#[0-9a-f]{3}|rgb|black|white(?!-space)|background: (?!none)", style), style


LABELS = Labels(["man", "hat"])
ONE_REGION = (Region((0.0, 1.0, 9.0, 9.5), 0.25),)


def grounded(phrase, *, regions=ONE_REGION):
    reading, image = read_phrase(phrase, LABELS), Image.new("RGB", (40, 30))
    words = tuple(AttentionMap(torch.eye(3), "hat", "l", "mwp", 0.5, (40, 30), 0.25, image) for _ in reading.words)
    return Grounded(phrase, regions, PhraseMap(reading, words, np.ones((30, 40))))


def test_figure_and_best_regions_of_a_phrase():
    page = page_of(grounded("the hat of a gizmo"))
    assert page.picture.width == 800
    assert page.table == {"phrase": "the hat of a gizmo", "region 1": "0, 1, 9, 9.5 (score 0.25)", "skipped": "gizmo"}
    assert page.image["alt"] == "Where the hat of a gizmo is: most likely 0, 1, 9, 9.5 (score 0.25)."
    many = tuple(Region((0.0, 0.0, 9.0 + k, 9.0), 1 / (k + 1)) for k in range(9))
    assert list(page_of(grounded("hat", regions=many)).table) == ["phrase", "region 1", "region 2", "region 3"]
    hostile = page_of(grounded(f"hat {HOSTILE}"))
    assert hostile.table["phrase"] == f"hat {HOSTILE}"
    assert "script" not in hostile.tags
