"""Images side by side with captions, text that fits, and a phrase in an image: boxes, maps, words in their colours."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from excite.errors import ExciteError
from excite.readouts import figure as figures
from excite.readouts.figure import Headed, Told, WordMap, draw_boxes, draw_row, figure, grounded_figure
from excite.readouts.overlay import DARK, LIGHT

RED, GREEN, BLUE = (255, 0, 0), (90, 120, 60), (0, 0, 255)
FONT = ImageFont.load_default(size=16)
MAP = torch.eye(5)


def having(picture, colour):
    """Where an image has exactly this colour."""
    return (np.asarray(picture) == colour).all(axis=2)


def around(picture, colour):
    """The half-open box of all pixels of a colour."""
    rows, columns = np.nonzero(having(picture, colour))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def test_cells_stand_side_by_side_rows_below_each_other_and_captions_between():
    red, blue = Image.new("RGB", (80, 40), RED), Image.new("RGB", (80, 40), BLUE)
    page = figure([[(red, ""), (blue, "")]], cell_width=160)
    gap = 160 // 12
    assert around(page, RED) == (gap, gap, gap + 160, gap + 80)
    assert around(page, BLUE) == (2 * gap + 160, gap, 2 * gap + 320, gap + 80)
    assert page.width == 3 * gap + 320
    page = figure([[(red, "above")], [(blue, "below"), None, (red, "")]], cell_width=160)
    left = around(page, RED)[0]
    left_below, top_below, right_below, bottom_below = around(page, BLUE)
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
    x0, y0, x1, y1 = around(page, BLUE)
    assert (x1 - x0, y1 - y0) == (90, 180)  # as high as allowed, 1.5 times the width of a cell
    assert having(page, BLUE).sum() == 90 * 180
    _, top, _, bottom = around(page, RED)
    assert (top + bottom) / 2 == (y0 + y1) / 2
    assert bottom - top == 60
    for size in ((1, 1), (1, 1000), (1000, 1)):
        for mode in ("L", "RGBA", "P", "1"):
            page = figure([[(Image.new(mode, size), "thin")]], cell_width=100)
            assert page.mode == "RGB"
            assert page.height <= 100 * 1.5 + 60


@pytest.mark.parametrize(
    ("caption", "lines"),
    [
        ("tabby cat", [("tabby cat", figures.INK)]),
        ("tabby\n87% · pool2", [("tabby", figures.INK), ("87% · pool2", figures.GREY)]),
        (
            "gâteau — Őszi\nköln",
            [("gateau - Oszi", figures.INK), ("koln", figures.GREY)],
        ),  # accents that the font lacks
        (
            "a wire-haired fox terrier in the grass",
            [("a wire-haired fox", figures.INK), ("terrier in the grass", figures.INK)],
        ),
        (
            "word " * 100 + "\n87%",
            [("word word word word", figures.INK), ("word word word wor…", figures.INK), ("87%", figures.GREY)],
        ),
    ],
)
def test_captions(caption, lines):
    """The second paragraph is told apart, and a long first one leaves room for it."""
    assert [(line.text, line.looks[0][0]) for line in figures._caption(caption, FONT, 165)] == lines
    assert len(figures._caption("\n".join("abcdef"), FONT, 200)) == figures.CAPTION_LINES


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=80), st.integers(30, 300), st.integers(1, 4))
def test_every_text_fits_and_none_of_it_is_lost(text, width, most):
    lines = figures.lines_of(text, FONT, width, most=most)
    assert len(lines) <= most
    assert all(len(line.text) == len(line.looks) for line in lines)
    assert all(len(line.text) == 1 or FONT.getlength(line.text) <= width for line in lines)
    drawn = " ".join("".join(" " if letter.isspace() else figures.drawable(letter) for letter in text).split())
    shown = "".join(line.text for line in lines)
    if shown.endswith("…") and not drawn.endswith("…"):
        assert drawn.replace(" ", "").startswith(shown[:-1].replace(" ", ""))
    else:
        assert shown.replace(" ", "") == drawn.replace(" ", "")


def test_an_endless_word_is_cut():
    first, second = (line.text for line in figures.lines_of("x" * 5000, FONT, 200, most=2))
    assert (set(first), set(second)) == ({"x"}, {"x", "…"})
    assert FONT.getlength(first) <= 200 < FONT.getlength(first + "x")


@pytest.mark.parametrize(
    ("text", "drawn"),
    [("cafe\N{COMBINING ACUTE ACCENT}", "cafe"), ("straße", "strasse"), ("犬", "犬"), ("\udc80\x1b", "\\udc80\\x1b")],
)
def test_letters_that_the_font_lacks(text, drawn):
    assert "".join(map(figures.drawable, text)) == drawn
    assert figure([[(Image.new("RGB", (20, 20)), text)]], cell_width=60).width == 72


def test_no_pictures_cells_too_small_pages_too_narrow_and_no_map():
    for cells in ([], [[]], [[None]]):
        with pytest.raises(ExciteError, match="at least one image"):
            figure(cells)
    with pytest.raises(ExciteError, match="39 pixels wide cannot hold a caption"):
        figure([[(Image.new("RGB", (20, 20)), "")]], cell_width=39)
    with pytest.raises(ExciteError, match="at least 400"):
        grounded_figure(photograph(), Told("a"), MAP, [], [], width=399)
    with pytest.raises(ExciteError, match="NaN"):
        page(Told("a"), plane=torch.full((2, 2), torch.nan))


# A phrase in an image.


def photograph(width=320, height=240):
    return Image.new("RGB", (width, height), GREEN)


def words(count):
    return [WordMap(f"w{k}", MAP, "87%", ((3 * k, 3 * k + 2),)) for k in range(count)]


def page(told, maps=(), boxes=(), plane=MAP):
    return grounded_figure(photograph(), told, plane, maps, boxes, width=600)


def _long_runs(row):
    """How many unbroken lines there are in a row of pixels, letters aside."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return int((edges[1::2] - edges[::2] > 60).sum())


def test_underlines_are_below_the_letters_and_in_their_colour():
    text = "oxo cat"
    plain, lined = (
        figures._sentence(text, [(BLUE, on)] * 3 + [(figures.INK, False)] * 4, 300, 30) for on in (False, True)
    )
    changed = np.nonzero((np.asarray(plain) != np.asarray(lined)).any(axis=2))
    assert changed[0].min() > around(plain, BLUE)[3]
    assert changed[1].max() < around(plain, figures.INK)[0]
    assert having(lined, BLUE).sum() > having(plain, BLUE).sum()
    for odd in ("", "   ", "\n", "\udc80", "犬", "a\x00b"):
        assert figures._sentence(odd, [(figures.INK, False)] * len(odd), 100, 20).size == (100, 30)


class TestBoxes:
    def test_each_in_its_place_and_the_best_thicker(self):
        picture = photograph()
        drawn = draw_boxes(picture, [(20, 30, 150, 200), (200, 60, 300, 220)])
        assert having(picture, GREEN).all(), "it is a copy"
        assert around(drawn, figures.BEST) == (21, 31, 149, 199)  # within a dark line
        assert around(drawn, figures.OTHERS) == (201, 61, 299, 219)
        row = np.asarray(drawn)[130]
        assert (row == figures.BEST).all(axis=1).sum() == 2 * (row == figures.OTHERS).all(axis=1).sum()

    def test_the_right_one_is_dashed(self):
        drawn = draw_boxes(photograph(), [], true_boxes=[(20, 30, 150, 200)])
        edge = np.asarray(drawn)[30, 20:150]
        light = (edge == LIGHT).all(axis=1)
        assert (light | (edge == DARK).all(axis=1)).all()
        assert np.abs(np.diff(light.astype(int))).sum() > 4
        assert around(drawn, LIGHT)[:2] == (20, 30)

    def test_numbers_do_not_hide_each_other(self):
        one, three = (draw_boxes(photograph(), [(20, 30, 150, 200)] * count) for count in (1, 3))
        assert having(three, figures.OTHERS).sum() > 100  # the edges are below the best's: only numbers are seen
        assert having(three, figures.BEST)[30:60, 20:40].sum() == having(one, figures.BEST)[30:60, 20:40].sum()

    @pytest.mark.parametrize("box", [(-50, -50, 900, 900), (5, 5, 5, 5), (400, 300, 500, 400), (319.6, 0, 320, 0.2)])
    def test_boxes_beyond_the_picture(self, box):
        assert having(draw_boxes(photograph(), [box]), figures.BEST).any()


def test_a_long_title_is_shortened_and_its_note_is_whole():
    long, short = (draw_row([Headed(photograph(80, 60), title, "87%", BLUE)], 80, 8, 12) for title in ("w" * 90, "w"))
    assert (long.width, having(long, figures.GREY).sum()) == (80, having(short, figures.GREY).sum())
    assert having(long, BLUE).sum() > having(short, BLUE).sum() > 0


class TestFigure:
    def test_frames_and_words_share_their_colours(self):
        plain = page(Told("w0 w1 no"), [WordMap("w0", MAP), WordMap("w1", MAP)])
        marked = page(Told("w0 w1 no"), [WordMap("w0", MAP, spans=((0, 2),)), WordMap("w1", MAP, spans=((3, 5),))])
        assert plain.size == marked.size
        for colour in figures.WORD_COLOURS[:2]:
            assert having(plain, colour).sum() > 500  # the frame
            assert not having(plain, colour)[-40:].any()
            assert having(marked, colour)[-40:].any()
        assert not having(marked, figures.WORD_COLOURS[2]).any()

    def test_hints_are_underlined_in_their_own_colour(self):
        pages = [page(Told("w0 w1", hints=hints), words(2)) for hints in ((), ((0, 2),))]
        plain, lined = ([having(each, colour).sum() for colour in figures.WORD_COLOURS[:2]] for each in pages)
        assert lined[0] > plain[0]
        assert lined[1] == plain[1]

    def test_boxes_are_on_the_left_and_the_map_on_the_right(self):
        drawn = page(Told("a word", skipped=((2, 6),)), boxes=[(0, 0, 160, 120)])
        assert having(drawn, figures.PALE).any()
        assert not having(page(Told("a word")), figures.PALE).any()
        left, top, right, bottom = around(drawn, figures.BEST)
        assert (left, right) == (13, 13 + 282 // 2 - 2)  # half of the image, within a dark line
        assert bottom - top == 212 // 2 - 2
        assert not having(drawn, figures.BEST)[:, 306:].any()
        assert not having(drawn, figures.PAPER)[top : top + 200, 306:588].all(axis=1).any()

    @pytest.mark.parametrize(("count", "rows"), [(0, []), (1, [1]), (5, [5]), (6, [3, 3]), (11, [4, 4, 3])])
    def test_rows_of_five_at_most_and_of_one_length(self, count, rows):
        drawn = page(Told("a"), words(count))
        frames = np.any([having(drawn, colour) for colour in figures.WORD_COLOURS], axis=0)
        bottoms = [y for y in range(1, drawn.height) if _long_runs(frames[y - 1]) and not _long_runs(frames[y])]
        upper_and_lower = [_long_runs(frames[y - 1]) for y in bottoms]
        assert upper_and_lower == [count for count in rows for _ in range(2)]
        fewer, more = (page(Told("a"), words(figures.MOST_MAPS + above)) for above in (0, 7))
        assert fewer.height < more.height < fewer.height + 50, "that there are too many is told"

    @pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1), (30, 20)])
    def test_any_size_of_picture_is_a_page_of_one_width(self, size):
        whole = [(0, 0, *size)]
        drawn = grounded_figure(photograph(*size), Told("dog " * 50), MAP, words(3), whole, true_boxes=whole)
        assert drawn.width == 1200
        assert drawn.height < 1600

    def test_text_stays_within_its_margins(self):
        drawn = np.asarray(page(Told("wide words " * 90), words(5)))
        for margin in (drawn[:12], drawn[-6:], drawn[:, :12], drawn[:, -12:]):
            assert (margin == figures.PAPER).all()

    def test_without_evidence_there_is_no_ring(self):
        shown, empty = (page(Told("dog"), plane=plane) for plane in (MAP, torch.zeros(3, 3)))
        assert having(shown, LIGHT)[40:230, 306:588].any()
        assert not having(empty, LIGHT)[40:230, 306:588].any()
