"""Figures of a dictionary: the frequency curve of its tags, and a word cloud."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from excite.errors import DataError
from excite.io.files import atomic_write, save_png

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from excite.tags.dictionary import Dictionary

# the colours of the figures of the experiments, which this package may not import
INK, FAINT, BLUE, ORANGE = "#333333", "#DDDDDD", "#0072B2", "#D55E00"
GREY, PAPER = "#8A8A8A", "#FFFFFF"
SIZE = (1600, 900)  # of a cloud, in pixels
CAPTION = 64  # pixels below it
MOST_WORDS = 150
LARGEST, SMALLEST = 190, 15  # font sizes
LONGEST = 40  # characters of a tag: a longer one is a sentence, and would leave no room for others
LABEL = 0.06  # of the height of a curve's figure
MOST_POINTS = 2000  # of a curve


def check_figures() -> None:
    """Fail before the work if a package for the figures is missing.

    Raises:
        DataError: a package is missing; the message says how to get it.
    """
    for package in ("matplotlib", "wordcloud"):
        _package(package)


def frequency_figure(counts: NDArray[np.int64], thresholds: Sequence[int], slope: float | None, path: Path) -> Path:
    """Draw how often the tags are listed by rank, log-log, and how many lie above each threshold.

    Args:
        counts: how often each tag is listed, decreasing.
        thresholds: counts to mark, the most important first; omitted if out of range or too close.
        slope: of the line through the ranks 10 to 1000, for the title.
        path: the PNG file.

    Raises:
        DataError: there are no tags, or matplotlib is missing.

    Example:
        >>> frequency_figure(6000 // np.arange(1, 500), [10, 100], -1.0, Path("frequency.png"))
        PosixPath('frequency.png')
    """
    figure = frequency_curve(counts, thresholds, slope)
    return atomic_write(path, lambda file: figure.savefig(file, format="png", dpi=160, metadata={"Software": "excite"}))


def frequency_curve(counts: NDArray[np.int64], thresholds: Sequence[int], slope: float | None) -> Any:
    """The matplotlib figure that `frequency_figure` writes."""
    if not len(counts):
        raise DataError("the corpus lists no tags: there is no curve to draw")
    _package("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    ranks = np.unique(np.geomspace(1, len(counts), MOST_POINTS).astype(int))
    axes.loglog(ranks, counts[ranks - 1], color=BLUE, linewidth=2.2, zorder=3, solid_capstyle="round")
    axes.set_xlim(0.8, max(20, 2.5 * len(counts)))
    axes.set_ylim(0.7, 2.2 * counts[0])
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
    room = LABEL * (math.log(most) - math.log(least))
    kept: list[int] = []
    for one in thresholds:
        if least <= one <= most and all(abs(math.log(one / other)) >= room for other in kept):
            kept.append(one)
    return kept


@dataclass(frozen=True)
class Word:
    """A tag in a cloud: its text, font size, and the box (left, top, right, bottom) of its ink."""

    text: str
    size: int
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class Cloud:
    """The layout of a word cloud.

    Attributes:
        words: the drawn tags, the most frequent first.
        not_in_font: frequent tags left out because the font lacks a character.
        too_long: frequent tags left out because they are sentences.
    """

    words: tuple[Word, ...]
    not_in_font: tuple[str, ...]
    too_long: tuple[str, ...]


def cloud_of(dictionary: Dictionary, size: tuple[int, int] = SIZE, most: int = MOST_WORDS) -> Cloud:
    """Lay out the most frequent tags, larger the more often they are listed; deterministic.

    Raises:
        DataError: no tag can be drawn, or the package wordcloud is missing.

    Example:
        >>> from excite.tags.dictionary import Dictionary
        >>> cloud = cloud_of(Dictionary(("dog", "猫", "cat"), (9, 5, 1)), (400, 200))
        >>> [word.text for word in cloud.words], cloud.not_in_font
        (['dog', 'cat'], ('猫',))
    """
    chosen: dict[str, int] = {}
    without_glyphs, too_long = [], []
    for tag, count in zip(dictionary.tags, dictionary.counts, strict=True):
        if len(chosen) == most:
            break
        if len(tag) > LONGEST:
            too_long.append(tag)
        elif not can_draw(tag):
            without_glyphs.append(tag)
        elif count > 0:
            chosen[tag] = count
    if not chosen:
        raise DataError("there is no tag that a word cloud could show: all are too long, or in letters the font lacks")
    return Cloud(tuple(_placed(chosen, size)), tuple(without_glyphs), tuple(too_long))


def _placed(counts: dict[str, int], size: tuple[int, int]) -> list[Word]:
    width, height = size
    maker = _package("wordcloud").WordCloud(
        font_path=font_file(),
        width=width,
        height=height,
        margin=max(2, height // 70),
        max_words=len(counts),
        min_font_size=min(SMALLEST, height // 20),
        max_font_size=round(LARGEST * height / SIZE[1]),
        relative_scaling=0.6,
        prefer_horizontal=1.0,
        random_state=0,
    )
    maker.generate_from_frequencies(counts)
    words = []
    for (text, _), letters, (top, left), _, _ in maker.layout_:  # the ink begins there, without the letters' bearing
        box = ImageFont.truetype(font_file(), letters).getbbox(text)
        right, bottom = int(left) + int(box[2] - box[0]), int(top) + int(box[3] - box[1])
        words.append(Word(text, letters, (int(left), int(top), right, bottom)))
    return words


def cloud_figure(cloud: Cloud, path: Path, is_visual: Callable[[str], bool], size: tuple[int, int] = SIZE) -> Path:
    """Draw a cloud: visual words in blue, the others in grey, and a legend.

    Example:
        >>> from excite.tags.dictionary import Dictionary
        >>> cloud = cloud_of(Dictionary(("nature", "cat"), (9, 5)))
        >>> cloud_figure(cloud, Path("cloud.png"), {"cat"}.__contains__)
        PosixPath('cloud.png')
    """
    page = Image.new("RGB", (size[0], size[1] + CAPTION), PAPER)
    draw = ImageDraw.Draw(page)
    for word in cloud.words:
        font = ImageFont.truetype(font_file(), word.size)
        left, top, _, _ = word.box
        shift = font.getbbox(word.text)
        draw.text((left - shift[0], top - shift[1]), word.text, fill=BLUE if is_visual(word.text) else GREY, font=font)
    _legend(draw, cloud, size)
    return save_png(page, path)


def _legend(draw: ImageDraw.ImageDraw, cloud: Cloud, size: tuple[int, int]) -> None:
    font = ImageFont.truetype(font_file(), 22)
    omitted = len(cloud.not_in_font) + len(cloud.too_long)
    parts = [
        (f"the {len(cloud.words)} most frequent tags:  ", INK),
        ("words for a known object  ", BLUE),
        ("other words", GREY),
        (f"   ({omitted} left out: no glyphs, or too long)" if omitted else "", INK),
    ]
    left = 24.0
    draw.line([(24, size[1] + 6), (size[0] - 24, size[1] + 6)], fill=FAINT, width=2)
    for text, colour in parts:
        draw.text((left, size[1] + 20), text, fill=colour, font=font)
        left += font.getlength(text)


def can_draw(text: str) -> bool:
    """Whether the font has all characters of a text.

    Example:
        >>> [can_draw(text) for text in ("dog", "été", "кошка", "猫")]
        [True, True, True, False]
    """
    return all(letter == " " or ord(letter) in _letters() for letter in text)


@cache
def font_file() -> str:
    """The font of the figures, which comes with matplotlib and covers many scripts."""
    return str(Path(_package("matplotlib").get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))


@cache
def _letters() -> frozenset[int]:
    _package("matplotlib")
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(font_file()).get_charmap())


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise DataError(f"the figures of tags are drawn with {name}: pip install 'excite[tags]'") from None
