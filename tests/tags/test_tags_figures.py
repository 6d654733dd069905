"""The figures of a dictionary: everything is inside, nothing covers anything else, nothing is drawn as boxes."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw, ImageFont

from excite.errors import DataError, ImageError
from excite.tags import figures
from excite.tags.contact_sheet import (
    LETTERS,
    TaggedImage,
    contact_sheet,
    grid,
    is_alphabetical,
    read_images,
    sample_rows,
    words,
)
from excite.tags.corpus import Corpus, schema
from excite.tags.dictionary import Dictionary
from excite.tags.figures import (
    apart,
    can_draw,
    check_figures,
    cloud_figure,
    cloud_of,
    font_file,
    frequency_curve,
    frequency_figure,
)

BLUE, GREY, ORANGE = (0, 114, 178), (138, 138, 138), (213, 94, 0)
SIZE = (500, 280)
RED, GREEN = Image.new("RGB", (64, 48), "red"), Image.new("RGB", (30, 90), "green")


def zipf(number, top=100_000):
    return np.maximum(1, top // np.arange(1, number + 1))


def dictionary(number=40):
    names = [name for name in "beach dog sunset gypsy tag quay fjord Ågren woman".split() for _ in range(10)]
    return Dictionary(
        tuple(f"{name}{k}" for k, name in enumerate(names[:number])), tuple(range(900, 900 - 15 * number, -15))
    )


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def colours(picture):
    return set(map(tuple, np.asarray(picture).reshape(-1, 3).tolist()))


def inside(box, outer):
    return box[0] >= outer[0] and box[1] >= outer[1] and box[2] <= outer[2] and box[3] <= outer[3]


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
    figure = frequency_curve(zipf(2000, 1000), [100, 10, 5000], -0.987)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["at least 100 times: 10 tags", "at least 10 times: 100 tags"]
    assert "2,000 distinct tags" in axes.get_title()
    assert "slope -0.99" in axes.get_title()
    path = frequency_figure(zipf(2000, 1000), [100], None, tmp_path / "curve.png")
    with Image.open(path) as drawn:
        assert drawn.format == "PNG"
        assert len(drawn.convert("RGB").getcolors(100_000)) > 10


def test_labels_without_room_are_left_out():
    assert apart([1000, 1001, 990, 10], 1, 10_000) == [1000, 10]
    assert apart([10_001], 1, 10_000) == []


def test_no_tags_no_curve():
    with pytest.raises(DataError, match="lists no tags"):
        frequency_curve(np.array([], np.int64), [10], None)


def test_the_words_of_a_cloud():
    cloud = cloud_of(dictionary(), SIZE)
    assert [word.text for word in cloud.words] == list(dictionary().tags[: len(cloud.words)])
    assert len(cloud.words) > 25
    sizes = [word.size for word in cloud.words]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 1.5 * sizes[-1]
    assert sizes[-1] >= 14
    ink = np.zeros((SIZE[1], SIZE[0]), int)
    for word in cloud.words:
        assert inside(word.box, (0, 0, *SIZE))
        ink += drawn_alone(word)
    assert ink.max() == 1


def drawn_alone(word):
    """Where a word has ink, drawn as the figure draws it."""
    page = Image.new("L", SIZE)
    font = ImageFont.truetype(font_file(), word.size)
    left, top, _, _ = font.getbbox(word.text)
    ImageDraw.Draw(page).text((word.box[0] - left, word.box[1] - top), word.text, fill=255, font=font)
    found = np.asarray(page) > 100
    assert inside(page.getbbox(), word.box)
    return found.astype(int)


def test_always_the_same_cloud():
    assert cloud_of(dictionary(), SIZE) == cloud_of(dictionary(), SIZE)


def test_what_a_cloud_leaves_out():
    tags = ("dog", "猫", "x" * 41, "été", "кошка", "a\nb")
    cloud = cloud_of(Dictionary(tags, (9, 8, 7, 6, 5, 4)), SIZE)
    assert [word.text for word in cloud.words] == ["dog", "été", "кошка"]
    assert cloud.not_in_font == ("猫", "a\nb")
    assert cloud.too_long == ("x" * 41,)
    assert not can_draw("dog猫")
    assert [word.text for word in cloud_of(Dictionary(tags, (9, 8, 7, 6, 5, 4)), SIZE, most=1).words] == ["dog"]
    with pytest.raises(DataError, match="no tag that a word cloud could show"):
        cloud_of(Dictionary(("猫",), (9,)), SIZE)


def test_the_colours_of_a_cloud(tmp_path):
    cloud = cloud_of(Dictionary(("nature", "dog"), (9, 8)), SIZE)
    with Image.open(cloud_figure(cloud, tmp_path / "cloud.png", {"dog"}.__contains__, SIZE)) as drawn:
        assert drawn.format == "PNG"
        page = drawn.convert("RGB")
    nature, dog = (colours(page.crop(word.box)) for word in cloud.words)
    assert GREY in nature
    assert BLUE not in nature
    assert BLUE in dog
    assert GREY not in dog


def test_a_missing_package_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(figures, "import_module", missing)
    with pytest.raises(DataError, match=r"pip install 'excite\[tags\]'"):
        check_figures()


@pytest.mark.parametrize("number", [1, 2, 3, 5, 12, 24, 60])
def test_cells_do_not_overlap(number):
    cells, (width, height) = grid(number)
    boxes = [box for cell in cells for box in (cell.picture, cell.text)]
    assert len(cells) == number
    assert all(inside(box, (0, 0, width, height)) for box in boxes)
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize(
    "tags",
    [
        ["cat", "dog"],
        ["a rather long tag of several words"] * 5,
        ["x" * 1_000_000] * 5,
        ["猫", "dog", "W" * 30, "кошка", "fish", "never shown"],
        ["猫"],
        [],
    ],
)
def test_text_stays_in_its_place(tags):
    font = ImageFont.truetype(font_file(), LETTERS)
    box = grid(1)[0][0].text
    written = words(tags, box, font)
    assert written
    for left, top, text in written:
        assert inside((left, top, left + font.getlength(text), font.getbbox(text)[3] + top), box)
        assert can_draw(text)
    assert not any("never" in text for _, _, text in written)


def test_what_is_written():
    font, box = ImageFont.truetype(font_file(), LETTERS), grid(1)[0][0].text
    assert [text for _, _, text in words(["cat", "猫", "dog"], box, font)] == ["cat,", "dog", "(1 not in the font)"]
    assert [text for _, _, text in words([], box, font)] == ["(no tags)"]
    assert words(["x" * 90] * 5, box, font)[-1][2].endswith("…")


def test_a_sheet():
    sheet = contact_sheet([TaggedImage(RED, ("ant", "bee")), TaggedImage(GREEN, ("bee", "ant"))], "two")
    (one, other), size = grid(2)
    assert sheet.size == size
    middle = [sheet.getpixel(((b[0] + b[2]) // 2, (b[1] + b[3]) // 2)) for b in (one.picture, other.picture)]
    assert middle == [(255, 0, 0), (0, 128, 0)]
    assert ORANGE in colours(sheet.crop(one.picture))
    assert ORANGE not in colours(sheet.crop(other.picture))
    with pytest.raises(DataError, match="no images"):
        contact_sheet([], "none")


def test_alphabetical():
    assert is_alphabetical(["ant", "ant", "bee"])
    assert not is_alphabetical(["ant", "bee", "ant"])
    assert not is_alphabetical(["ant"])
    assert not is_alphabetical([])


class Source:
    """Pictures of which some are gone."""

    def read(self, name):
        if not name.startswith("red"):
            raise ImageError(f"there is no image {name!r}")
        return Image.new("RGB", (2000, 1000), "red")


def test_pictures_that_are_gone_are_counted():
    wanted = [("gone", ["a"]), ("red1", ["b", None, " "]), (None, ["c"]), ("red2", None), ("red3", ["d"])]
    found, failures = read_images(wanted, Source(), 2)
    assert [one.tags for one in found] == [("b",), ()]
    assert failures == ["there is no image 'gone'", "there is no image ''"]
    assert max(found[0].picture.size) <= 640
    with pytest.raises(ImageError, match="none of 2 images can be read: there is no image 'gone'"):
        read_images([("gone", []), ("lost", [])], Source(), 2)


def test_a_sample_is_the_same_however_the_corpus_is_cut_up(tmp_path, monkeypatch):
    table = pa.table(
        {"image": [f"{k}.jpg" for k in range(50)], "tags": [[f"tag{k}"] for k in range(50)], "user": ["ann"] * 50},
        schema=schema(),
    )
    found = []
    for group in (50, 7):
        pq.write_table(table, tmp_path / "corpus.parquet", row_group_size=group)
        found.append(sample_rows(Corpus(tmp_path / "corpus.parquet"), 9))
    whole = Corpus.batches
    monkeypatch.setattr(Corpus, "batches", lambda corpus, row_groups=None: whole(corpus, row_groups, rows=3))
    found.append(sample_rows(Corpus(tmp_path / "corpus.parquet"), 9))
    assert found[0] == found[1] == found[2]
    assert len({image for image, _ in found[0]}) == 9
    assert all(tags == [f"tag{image.removesuffix('.jpg')}"] for image, tags in found[0])
    assert len(sample_rows(Corpus(tmp_path / "corpus.parquet"), 99)) == 50
