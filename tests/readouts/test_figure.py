"""Images side by side with captions, and text that fits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from excite.errors import ExciteError
from excite.readouts.figure import CAPTION_LINES, GREY, INK, _caption, drawable, figure, lines_of

RED, BLUE = (255, 0, 0), (0, 0, 255)
FONT = ImageFont.load_default(size=16)


def where(page, colour):
    """The half-open box of all pixels of a colour, and how many there are."""
    rows, columns = np.nonzero((np.asarray(page) == colour).all(axis=2))
    return (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1), len(rows)


def test_cells_stand_side_by_side():
    page = figure([[(Image.new("RGB", (80, 40), RED), ""), (Image.new("RGB", (80, 40), BLUE), "")]], cell_width=160)
    gap = 160 // 12
    assert where(page, RED) == ((gap, gap, gap + 160, gap + 80), 160 * 80)
    assert where(page, BLUE) == ((2 * gap + 160, gap, 2 * gap + 320, gap + 80), 160 * 80)
    assert page.width == 3 * gap + 320


def test_rows_stand_below_each_other_and_captions_between():
    red, blue = Image.new("RGB", (80, 40), RED), Image.new("RGB", (80, 40), BLUE)
    page = figure([[(red, "above")], [(blue, "below"), None, (red, "")]], cell_width=160)
    (left, _, _, _), _ = where(page, RED)
    (left_below, top_below, right_below, bottom_below), _ = where(page, BLUE)
    assert left == left_below
    drawn = np.asarray(page)
    assert (drawn[top_below - 30 : top_below, left:160] < 128).any()
    assert (drawn[bottom_below:] < 128).any()
    assert (drawn[top_below:, right_below : right_below + 160] == 255).all()  # the empty cell
    for margin in (drawn[:10], drawn[-5:], drawn[:, :10], drawn[:, -10:]):
        assert (margin == 255).all()
    assert page.tobytes() == figure([[(red, "above")], [(blue, "below"), None, (red, "")]], cell_width=160).tobytes()


def test_pictures_of_other_shapes_are_centred_and_not_distorted():
    wide, tall = Image.new("RGB", (200, 100), RED), Image.new("RGB", (50, 100), BLUE)
    page = figure([[(wide, ""), (tall, "")]], cell_width=120)
    (x0, y0, x1, y1), count = where(page, BLUE)
    assert (x1 - x0, y1 - y0) == (90, 180)  # as high as allowed, 1.5 times the width of a cell
    assert count == 90 * 180
    (_, top, _, bottom), _ = where(page, RED)
    assert (top + bottom) / 2 == (y0 + y1) / 2
    assert bottom - top == 60


@pytest.mark.parametrize("size", [(1, 1), (1, 1000), (1000, 1)])
@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_extreme_shapes_and_modes(size, mode):
    page = figure([[(Image.new(mode, size), "thin")]], cell_width=100)
    assert page.mode == "RGB"
    assert page.height <= 100 * 1.5 + 60


@pytest.mark.parametrize(
    ("caption", "lines"),
    [
        ("tabby cat", [("tabby cat", INK)]),
        ("tabby\n87% · pool2", [("tabby", INK), ("87% · pool2", GREY)]),
        ("gâteau — Őszi\nköln", [("gateau - Oszi", INK), ("koln", GREY)]),  # accents that the font lacks
        ("a wire-haired fox terrier in the grass", [("a wire-haired fox", INK), ("terrier in the grass", INK)]),
        ("word " * 100 + "\n87%", [("word word word word", INK), ("word word word wor…", INK), ("87%", GREY)]),
    ],
)
def test_captions(caption, lines):
    """The second paragraph is told apart, and a long first one leaves room for it."""
    assert [(line.text, line.looks[0][0]) for line in _caption(caption, FONT, 165)] == lines


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=80), st.integers(30, 300), st.integers(1, 4))
def test_every_text_fits_and_none_of_it_is_lost(text, width, most):
    lines = lines_of(text, FONT, width, most=most)
    assert len(lines) <= most
    assert all(len(line.text) == len(line.looks) for line in lines)
    assert all(len(line.text) == 1 or FONT.getlength(line.text) <= width for line in lines)
    drawn = " ".join("".join(" " if letter.isspace() else drawable(letter) for letter in text).split())
    shown = "".join(line.text for line in lines)
    if shown.endswith("…") and not drawn.endswith("…"):
        assert drawn.replace(" ", "").startswith(shown[:-1].replace(" ", ""))
    else:
        assert shown.replace(" ", "") == drawn.replace(" ", "")


def test_an_endless_word_is_cut():
    first, second = (line.text for line in lines_of("x" * 5000, FONT, 200, most=2))
    assert (set(first), set(second)) == ({"x"}, {"x", "…"})
    assert FONT.getlength(first) <= 200 < FONT.getlength(first + "x")


@pytest.mark.parametrize(
    ("text", "drawn"),
    [("cafe\N{COMBINING ACUTE ACCENT}", "cafe"), ("straße", "strasse"), ("犬", "犬"), ("\udc80\x1b", "\\udc80\\x1b")],
)
def test_letters_that_the_font_lacks(text, drawn):
    assert "".join(map(drawable, text)) == drawn
    assert figure([[(Image.new("RGB", (20, 20)), text)]], cell_width=60).width == 72


def test_caption_lines_are_few():
    assert len(_caption("\n".join("abcdef"), FONT, 200)) == CAPTION_LINES


@pytest.mark.parametrize("cells", [[], [[]], [[None]]])
def test_no_pictures(cells):
    with pytest.raises(ExciteError, match="at least one image"):
        figure(cells)


def test_cells_too_small():
    with pytest.raises(ExciteError, match="39 pixels wide cannot hold a caption"):
        figure([[(Image.new("RGB", (20, 20)), "")]], cell_width=39)
