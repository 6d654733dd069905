"""Figures of a corpus: the frequency curve of its tags, a word cloud, and a contact sheet of images with their tags."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from excite.errors import DataError, ImageError
from excite.io.files import atomic_write, save_png
from excite.tags import package
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary
from excite.tags.images import ImageSource

# the colours of the figures of the experiments, which this package may not import
INK, FAINT, BLUE, ORANGE = "#333333", "#DDDDDD", "#0072B2", "#D55E00"
GREY, PAPER = "#8A8A8A", "#FFFFFF"
SIZE = (1600, 900)  # of a cloud, in pixels
CAPTION = 64  # pixels below it
MOST_WORDS = 150
LONGEST = 40  # characters of a tag: a longer one is a sentence, and would leave no room for others
WIDTH, HEIGHT = 320, 240  # of an image on a contact sheet
GAP, TITLE = 24, 64
LETTERS = 19  # the size of the text below an image,
LINE, LINES, COLUMNS = 26, 3, 29  # the height of its lines, how many there are, and about how long they are
TEXT = LINES * LINE + 10
FITTING = 200  # characters: nothing longer fits, and a tag may have a million


def frequency_figure(counts: NDArray[np.int64], thresholds: Sequence[int], slope: float | None, path: Path) -> Path:
    """Draw the `frequency_curve` as PNG."""
    figure = frequency_curve(counts, thresholds, slope)
    return atomic_write(path, lambda file: figure.savefig(file, format="png", dpi=160, metadata={"Software": "excite"}))


def frequency_curve(counts: NDArray[np.int64], thresholds: Sequence[int], slope: float | None) -> Any:
    """How often the tags are listed by rank, log-log, and how many lie above each threshold that has room.

    ``counts`` decrease, ``slope`` is that of the line through the ranks 10 to 1000.
    """
    if not len(counts):
        raise DataError("the corpus lists no tags: there is no curve to draw")
    figure = package("matplotlib.figure").Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    ranks = np.unique(np.geomspace(1, len(counts), 2000).astype(int))
    axes.loglog(ranks, counts[ranks - 1], color=BLUE, linewidth=2.2, zorder=3, solid_capstyle="round")
    axes.set(xlim=(0.8, max(20, 2.5 * len(counts))), ylim=(0.7, 2.2 * counts[0]))
    for least in apart(thresholds, 1, int(counts[0])):
        _mark(axes, least, int((counts >= least).sum()))
    axes.set_xlabel("rank of the tag", color=INK)
    axes.set_ylabel("times listed", color=INK)
    fitted = "" if slope is None else f"; slope {slope:.2f} over the ranks 10 to 1000"
    axes.set_title(f"{len(counts):,} distinct tags, listed {counts.sum():,} times{fitted}", fontsize=10, color=INK)
    axes.grid(visible=True, which="major", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(INK)
    axes.tick_params(colors=INK, labelsize=9)
    return figure


def _mark(axes: Any, least: int, above: int) -> None:
    """Lines to the point where the curve falls below a threshold, and the number of tags above it."""
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    axes.plot([left, above, above], [least, least, bottom], color=ORANGE, linewidth=1, linestyle=(0, (4, 3)), zorder=2)
    axes.plot([above], [least], color=ORANGE, marker="o", markersize=5, zorder=4)
    tags = "1 tag" if above == 1 else f"{above:,} tags"
    below = axes.get_ylim()[1] < 8 * least  # where the curve begins there is no room above the line
    aside: dict[str, Any] = {"xytext": (6, -4), "va": "top"} if below else {"xytext": (6, 5)}
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0}
    style = {"textcoords": "offset points", "fontsize": 9, "color": INK, "zorder": 5, "bbox": box}
    axes.annotate(f"at least {least:,} times: {tags}", (left, least), **aside, **style)


def apart(thresholds: Iterable[int], least: int, most: int) -> list[int]:
    """The thresholds whose labels have room between the least and the most count; earlier ones take precedence."""
    room = 0.06 * (math.log(most) - math.log(least))  # a label's share of the height
    kept: list[int] = []
    for one in thresholds:
        if least <= one <= most and all(abs(math.log(one / other)) >= room for other in kept):
            kept.append(one)
    return kept


def cloud_figure(dictionary: Dictionary, is_visual: Callable[[str], bool], path: Path) -> dict[str, int]:
    """Draw a cloud of the most frequent tags, larger the more often they are listed: visual words blue, others grey.

    Returns the numbers of drawn tags, and of those left out before them: letters not in the font, or sentences.
    """
    chosen: dict[str, int] = {}
    left_out = {"not_in_font": 0, "too_long": 0}
    for tag, count in zip(dictionary.tags, dictionary.counts, strict=True):
        if len(chosen) == MOST_WORDS:
            break
        if len(tag) > LONGEST or not can_draw(tag):
            left_out["too_long" if len(tag) > LONGEST else "not_in_font"] += 1
        elif count > 0:
            chosen[tag] = count
    if not chosen:
        raise DataError("there is no tag that a word cloud could show: all are too long, or in letters the font lacks")
    page = {"width": SIZE[0], "height": SIZE[1], "margin": SIZE[1] // 70, "background_color": PAPER, "random_state": 0}
    letters = {"font_path": font_file(), "min_font_size": 15, "max_font_size": 190, "prefer_horizontal": 1.0}
    cloud = package("wordcloud").WordCloud(max_words=len(chosen), relative_scaling=0.6, **page, **letters)
    cloud.generate_from_frequencies(chosen).recolor(color_func=lambda word, **_: BLUE if is_visual(word) else GREY)
    drawn = Image.new("RGB", (SIZE[0], SIZE[1] + CAPTION), PAPER)
    drawn.paste(cloud.to_image())
    _legend(ImageDraw.Draw(drawn), len(cloud.layout_), sum(left_out.values()))
    save_png(drawn, path)
    return {"tags": len(cloud.layout_), **left_out}


def _legend(draw: ImageDraw.ImageDraw, drawn: int, omitted: int) -> None:
    font, left = _font(22), 24.0
    draw.line([(24, SIZE[1] + 6), (SIZE[0] - 24, SIZE[1] + 6)], fill=FAINT, width=2)
    more = f"   ({omitted} left out: no glyphs, or too long)" if omitted else ""
    texts = (f"the {drawn} most frequent tags:  ", "words for a known object  ", "other words", more)
    for text, colour in zip(texts, (INK, BLUE, GREY, INK), strict=True):
        draw.text((left, SIZE[1] + 20), text, fill=colour, font=font)
        left += font.getlength(text)


def can_draw(text: str) -> bool:
    """Whether the font has all characters of a text."""
    return all(letter == " " or ord(letter) in _letters() for letter in text)


@cache
def font_file() -> str:
    """The font of the figures, which comes with matplotlib and covers many scripts."""
    return str(Path(package("matplotlib").get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))


@cache
def _letters() -> frozenset[int]:
    return frozenset(package("matplotlib.ft2font").FT2Font(font_file()).get_charmap())


def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_file(), size)


def sample_rows(corpus: Corpus, number: int) -> list[tuple[str | None, list[str | None] | None]]:
    """Random images of a corpus with their tags: always the same ones, in the same order."""
    lots = np.random.default_rng(0).choice(corpus.rows, min(number, corpus.rows), replace=False)
    found = {}
    for group in corpus.row_groups:
        first, inside = group.first, lots[(lots >= group.first) & (lots < group.first + group.rows)]
        for batch in corpus.batches([group]) if len(inside) else ():
            for lot in inside[(inside >= first) & (inside < first + batch.num_rows)].tolist():
                row = batch.slice(lot - first, 1).to_pylist()[0]
                found[lot] = row["image"], row["tags"]
            first += batch.num_rows
    return [found[lot] for lot in lots.tolist()]


Tagged = tuple[Image.Image, list[str]]  # an image and its tags as listed


def read_images(
    wanted: Iterable[tuple[str | None, Sequence[str | None] | None]], images: ImageSource, most: int
) -> tuple[list[Tagged], list[str]]:
    """Read images until there are ``most``; also the reasons why others cannot be read: many are often gone."""
    found: list[Tagged] = []
    failures: list[str] = []
    for name, tags in wanted:
        if len(found) == most:
            break
        try:
            picture = images.read(name or "")
        except ImageError as error:
            failures.append(str(error))
        else:
            picture.thumbnail((2 * WIDTH, 2 * HEIGHT))  # to save memory
            found.append((picture, [tag for tag in tags or () if tag and tag.strip()]))
    if failures and not found:
        raise ImageError(f"none of {len(failures)} images can be read: {failures[0]}")
    return found, failures


def contact_sheet(tagged: Sequence[Tagged], title: str) -> Image.Image:
    """Draw images in rows, each with its first five tags; alphabetical lists are marked."""
    if not tagged:
        raise DataError("there are no images to show")
    columns = min(len(tagged), 8, math.ceil(math.sqrt(1.3 * len(tagged))))  # about as wide as a screen for its height
    rows = math.ceil(len(tagged) / columns)
    width, height = WIDTH + GAP, HEIGHT + TEXT + GAP
    sheet = Image.new("RGB", (GAP + columns * width, TITLE + rows * height), PAPER)
    heading = textwrap.shorten(title[:FITTING], sheet.width // 14, placeholder=" …")
    ImageDraw.Draw(sheet).text((GAP, 18), heading, fill=INK, font=_font(24))
    for number, (picture, tags) in enumerate(tagged):
        row, column = divmod(number, columns)
        sheet.paste(_cell(picture, tags), (GAP + column * width, TITLE + row * height))
    return sheet


def _cell(picture: Image.Image, tags: Sequence[str]) -> Image.Image:
    """An image with its text below; nothing is drawn beyond its borders."""
    cell, font = Image.new("RGB", (WIDTH, HEIGHT + TEXT), PAPER), _font(LETTERS)
    cell.paste(ImageOps.pad(picture.convert("RGB"), (WIDTH, HEIGHT), Image.Resampling.LANCZOS, color="#F2F2F2"))
    draw = ImageDraw.Draw(cell)
    draw.rectangle((0, 0, WIDTH - 1, HEIGHT - 1), outline=FAINT)
    if len(tags) > 1 and list(tags) == sorted(tags):  # so the most telling ones are not first
        draw.rectangle((0, 0, round(font.getlength("alphabetical")) + 16, LINE + 4), fill=ORANGE)
        draw.text((8, 3), "alphabetical", fill=PAPER, font=font)
    for line, text in enumerate(text_below(tags)):
        draw.text((0, HEIGHT + 8 + line * LINE), text, fill=INK, font=font)
    return cell


def text_below(tags: Sequence[str]) -> list[str]:
    """The lines of text below an image: its first tags. Those that the font lacks are counted at the end."""
    first = [tag[:FITTING] for tag in tags[:5]]
    shown = [tag for tag in first if can_draw(tag)]
    more = f" ({len(first) - len(shown)} not in the font)" if len(shown) < len(first) else ""
    text = (", ".join(shown) + more).strip() or "(no tags)"
    return textwrap.wrap(text, COLUMNS, max_lines=LINES, placeholder=" …")
