"""The figures of a dictionary: everything is inside, nothing covers anything else, nothing is drawn as boxes."""

from itertools import combinations

import numpy as np
import pytest
from PIL import Image, ImageFont

from excite.errors import DataError, ImageError
from excite.tags import figures, package
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary
from excite.tags.figures import HEIGHT, WIDTH, cloud_figure, contact_sheet, frequency_curve, text_below

BLUE, GREY, ORANGE = (0, 114, 178), (138, 138, 138), (213, 94, 0)
RED, GREEN = Image.new("RGB", (64, 48), "red"), Image.new("RGB", (30, 90), "green")


def zipf(number, top=100_000):
    return np.maximum(1, top // np.arange(1, number + 1))


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def inside(box, outer):
    return box[0] >= outer[0] and box[1] >= outer[1] and box[2] <= outer[2] and box[3] <= outer[3]


def colours(picture):
    return set(map(tuple, np.asarray(picture).reshape(-1, 3).tolist()))


@pytest.mark.parametrize(
    ("counts", "thresholds"),
    [
        (zipf(50_000, 10_000_000), [1000, 10, 100, 1000, 10_000]),
        (zipf(2000, 900), [20, 10, 100, 1000]),
        (zipf(30, 12), [10, 5]),
        (np.array([1]), [10]),
        (np.array([3, 3, 3]), [3]),
    ],
)
def test_the_labels_of_a_curve(counts, thresholds):
    figure = frequency_curve(counts, thresholds, -1.0)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = [label.get_window_extent().extents for label in axes.texts]
    assert len(labels) == len({one for one in thresholds if one <= counts[0]})
    for one, other in combinations(labels, 2):
        assert not overlap(one, other)
    for text in (*labels, axes.title.get_window_extent().extents, axes.yaxis.label.get_window_extent().extents):
        assert inside(text, figure.bbox.extents)


def test_what_a_curve_says(tmp_path):
    (axes,) = frequency_curve(zipf(2000, 1000), [100, 101, 10, 5000], -0.987).axes  # two have no room
    assert [text.get_text() for text in axes.texts] == ["at least 100 times: 10 tags", "at least 10 times: 100 tags"]
    assert "2,000 distinct tags" in axes.get_title()
    assert "slope -0.99" in axes.get_title()
    with Image.open(figures.frequency_figure(zipf(2000, 1000), [100], None, tmp_path / "curve.png")) as drawn:
        assert drawn.format == "PNG"
        assert len(drawn.convert("RGB").getcolors(100_000)) > 10
    with pytest.raises(DataError, match="lists no tags"):
        frequency_curve(np.array([], np.int64), [10], None)


def test_a_cloud(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "SIZE", (500, 280))
    monkeypatch.setattr(figures, "MOST_WORDS", 4)
    tags = ("dog", "猫", "x" * 41, "été", "кошка", "a\nb", "nature", "never drawn")
    found = cloud_figure(Dictionary(tags, range(19, 11, -1)), {"dog"}.__contains__, tmp_path / "cloud.png")
    assert found == {"tags": 4, "not_in_font": 2, "too_long": 1}
    with Image.open(tmp_path / "cloud.png") as drawn:
        assert drawn.size == (500, 280 + figures.CAPTION)
        assert {BLUE, GREY} <= colours(drawn.crop((0, 0, 500, 280)))
    cloud_figure(Dictionary(tags, range(19, 11, -1)), {"dog"}.__contains__, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "cloud.png").read_bytes()
    cloud_figure(Dictionary(("nature",), (9,)), {"dog"}.__contains__, tmp_path / "grey.png")
    with Image.open(tmp_path / "grey.png") as drawn:
        assert BLUE not in colours(drawn.crop((0, 0, 500, 280)))
    with pytest.raises(DataError, match="no tag that a word cloud could show"):
        cloud_figure(Dictionary(("猫",), (9,)), bool, tmp_path / "cloud.png")


def test_a_missing_package_is_named():
    with pytest.raises(DataError, match=r"tags need the package nowhere: pip install 'excite\[tags\]'"):
        package("nowhere.at.all")


@pytest.mark.parametrize("number", [1, 2, 5, 12])
def test_a_sheet_of_many(number):
    """Each picture is there, whole, and nothing is drawn over another."""
    shades = [(20 * k, 0, 255 - 20 * k) for k in range(number)]
    tagged = [(Image.new("RGB", (4, 3), shade), ["W" * 200]) for shade in shades]
    pixels = np.asarray(contact_sheet(tagged, "many")).reshape(-1, 3)
    for shade in shades:
        assert (pixels == shade).all(1).sum() >= (WIDTH - 2) * (HEIGHT - 2)


def test_a_sheet():
    sheet = contact_sheet([(RED, ["ant", "ant", "bee"]), (GREEN, ["bee", "ant"])], "x" * 1000)
    left = [figures.GAP, figures.GAP + WIDTH + figures.GAP]
    cells = [sheet.crop((x, figures.TITLE, x + WIDTH, figures.TITLE + HEIGHT)) for x in left]
    assert [cell.getpixel((WIDTH // 2, HEIGHT // 2)) for cell in cells] == [(255, 0, 0), (0, 128, 0)]
    assert [ORANGE in colours(cell) for cell in cells] == [True, False]
    assert ORANGE not in colours(contact_sheet([(RED, ["ant"])], "one"))
    with pytest.raises(DataError, match="no images"):
        contact_sheet([], "none")


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        (["cat", "猫", "dog"], ["cat, dog (1 not in the font)"]),
        ([], ["(no tags)"]),
        (["猫"], ["(1 not in the font)"]),
        (["a long tag of several words"] * 2, ["a long tag of several words,", "a long tag of several words"]),
        ([*"abcde", "never shown"], ["a, b, c, d, e"]),
    ],
)
def test_what_is_written(tags, wanted):
    assert text_below(tags) == wanted
    font = ImageFont.truetype(figures.font_file(), figures.LETTERS)
    assert max(map(font.getlength, wanted)) < WIDTH


def test_what_has_no_room():
    for tag in ("x" * 1_000_000, "a " * 100):
        text = text_below([tag] * 5)
        assert len(text) == figures.LINES
        assert text[-1].endswith("…")


class Source:
    """Pictures of which some are gone."""

    def read(self, name):
        if not name.startswith("red"):
            raise ImageError(f"there is no image {name!r}")
        return Image.new("RGB", (2000, 1000), "red")


def test_pictures_that_are_gone_are_counted():
    wanted = [("gone", ["a"]), ("red1", ["b", None, " "]), (None, ["c"]), ("red2", None), ("red3", ["d"])]
    found, failures = figures.read_images(wanted, Source(), 2)
    assert [tags for _, tags in found] == [["b"], []]
    assert failures == ["there is no image 'gone'", "there is no image ''"]
    assert max(found[0][0].size) <= 640
    with pytest.raises(ImageError, match="none of 2 images can be read: there is no image 'gone'"):
        figures.read_images([("gone", []), ("lost", [])], Source(), 2)


def test_a_sample_is_the_same_however_the_corpus_is_cut_up(tmp_path, monkeypatch, write_rows):
    rows = [(f"{k}.jpg", [f"tag{k}"], "ann") for k in range(50)]
    found = [figures.sample_rows(Corpus(write_rows(tmp_path / "c.parquet", rows, group)), 9) for group in (50, 7)]
    whole = Corpus.batches
    monkeypatch.setattr(Corpus, "batches", lambda corpus, row_groups=None: whole(corpus, row_groups, rows=3))
    found.append(figures.sample_rows(Corpus(tmp_path / "c.parquet"), 9))
    assert found[0] == found[1] == found[2]
    assert len({image for image, _ in found[0]}) == 9
    assert all(tags == [f"tag{image.removesuffix('.jpg')}"] for image, tags in found[0])
    assert len(figures.sample_rows(Corpus(tmp_path / "c.parquet"), 99)) == 50
