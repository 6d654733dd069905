"""Pictures side by side with captions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from excite.errors import ExciteError
from excite.readouts.figure import CAPTION_LINES, _caption_lines, figure

RED, BLUE = (255, 0, 0), (0, 0, 255)


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
    page = figure([[(red, "above")], [(blue, "below")]], cell_width=160)
    (left, _, right, bottom), _ = where(page, RED)
    (left_below, top_below, _, bottom_below), _ = where(page, BLUE)
    assert left == left_below
    captions = np.asarray(page)[bottom:top_below, left:right]
    assert (captions < 128).any()
    assert (np.asarray(page)[bottom_below:] < 128).any()


def test_pictures_of_other_shapes_are_centred_and_not_distorted():
    wide, tall = Image.new("RGB", (200, 100), RED), Image.new("RGB", (50, 100), BLUE)
    page = figure([[(wide, ""), (tall, "")]], cell_width=120)
    (x0, y0, x1, y1), count = where(page, BLUE)
    assert (x1 - x0, y1 - y0) == (90, 180)  # as high as allowed, 1.5 times the width of a cell
    assert count == 90 * 180
    (_, top, _, bottom), _ = where(page, RED)
    assert (top + bottom) / 2 == (y0 + y1) / 2
    assert bottom - top == 60


def test_an_empty_cell_stays_white_and_keeps_its_place():
    red = Image.new("RGB", (40, 40), RED)
    page = figure([[(red, ""), (red, "")], [None, (red, "")]], cell_width=60)
    lower = np.asarray(page)[-60:]
    assert (lower[:, : 5 + 60] == 255).all()
    assert (lower[:30, 2 * 6 + 60 : -6, 1] == 0).all()


def test_rows_of_different_lengths():
    red = Image.new("RGB", (40, 40), RED)
    assert figure([[(red, "")], [(red, ""), (red, ""), (red, "")]], cell_width=60).width == 3 * 60 + 4 * 6


def test_margins_are_white():
    red = Image.new("RGB", (40, 40), RED)
    page = np.asarray(figure([[(red, "a caption")]], cell_width=120))
    for margin in (page[:10], page[-5:], page[:, :10], page[:, -10:]):
        assert (margin == 255).all()


def test_is_the_same_every_time():
    cells = [[(Image.new("RGB", (40, 40), RED), "a caption")]]
    assert figure(cells).tobytes() == figure(cells).tobytes()


@pytest.mark.parametrize("size", [(1, 1), (1, 1000), (1000, 1)])
def test_extreme_shapes(size):
    page = figure([[(Image.new("RGB", size, RED), "thin")]], cell_width=100)
    assert where(page, RED)[1] > 0
    assert page.height <= 100 * 1.5 + 60


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_other_modes(mode):
    assert figure([[(Image.new(mode, (20, 20)), "")]], cell_width=60).mode == "RGB"


FONT = ImageFont.load_default(size=16)


def test_a_short_caption_is_one_line():
    assert _caption_lines("tabby cat", FONT, 320) == [("tabby cat", True)]


def test_the_second_paragraph_is_told_apart():
    assert _caption_lines("tabby\n87% · pool2", FONT, 320) == [("tabby", True), ("87% · pool2", False)]


def test_a_long_caption_is_wrapped_between_words():
    caption = "a wire-haired fox terrier in the grass of a garden"
    (first, _), (second, _) = _caption_lines(caption, FONT, 200)
    assert f"{first} {second}" == caption
    assert FONT.getlength(first) <= 200 < FONT.getlength(f"{first} {second.split()[0]}")  # not one word more fits


def test_a_very_long_first_paragraph_leaves_room_for_the_second():
    lines = _caption_lines("word " * 100 + "\n87%", FONT, 200)
    assert len(lines) == CAPTION_LINES
    assert [first for _, first in lines] == [True, True, False]
    assert lines[0][0].endswith("word")
    assert lines[1][0].endswith("…")
    assert lines[2][0] == "87%"


def test_an_endless_word_is_shortened():
    ((text, _),) = _caption_lines("x" * 500, FONT, 200)
    assert text.endswith("x…")
    assert FONT.getlength(text) <= 200 < FONT.getlength("x" + text)


@settings(deadline=None)
@given(st.text(max_size=80), st.integers(30, 300))
def test_every_caption_fits(caption, width):
    lines = _caption_lines(caption, FONT, width)
    assert len(lines) <= CAPTION_LINES
    for text, _ in lines:
        assert text == "…" or FONT.getlength(text) <= width


def test_a_caption_no_font_can_draw():
    assert figure([[(Image.new("RGB", (20, 20)), "odd \udcff 猫 \x00\t")]], cell_width=60).width == 72


@pytest.mark.parametrize("cells", [[], [[]], [[None]]])
def test_no_pictures(cells):
    with pytest.raises(ExciteError, match="at least one image"):
        figure(cells)


def test_cells_too_small():
    with pytest.raises(ExciteError, match="39 pixels wide cannot hold a caption"):
        figure([[(Image.new("RGB", (20, 20)), "")]], cell_width=39)


def test_accents_that_the_font_lacks_are_left_out():
    font = ImageFont.load_default(size=12)
    assert _caption_lines("gâteau — Őszi\nköln", font, 500) == [("gateau - Oszi", True), ("koln", False)]
