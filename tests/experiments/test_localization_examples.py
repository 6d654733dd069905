"""Which examples of localisation are chosen, and what is drawn."""

import numpy as np
import pytest
import torch
from PIL import Image

from excite.attention import AttentionMap
from excite.experiments.localization.pairs import BoxExample
from excite.experiments.localization.report import BoxCases
from excite.experiments.localization.scores import LocalizationRow, LocalizationRun, RuleResult
from excite.experiments.report.examples import best_of_each_kind, dashed, framed
from excite.metrics.boxes import ALPHAS
from excite.metrics.statistics import Share
from excite.readouts.overlay import DARK, LIGHT

CASES = BoxCases()
ALL, ONLY, SMALL, LARGE, ELSEWHERE = CASES.kinds
SIZE = (320, 240)  # as wide as it is shown
TRUTH = (100, 100, 200, 200)
METHODS = ("mwp", "grad", "center")
GREY = (120, 120, 120)


def row(method, alpha):
    result = RuleResult("paper", alpha, Share(1, 2), (50.0,) * len(ALPHAS))
    return LocalizationRow("net", method, "top", {"paper": result}, 50.0, {0.5: 50.0}, 0, Share(1, 2))


ROWS = [row("mwp", 1.0), row("grad", 4.0), row("center", 0.0)]


def found(method, alpha, box, overlap):
    """A box at the threshold that was chosen; whatever is at the others must not count."""
    at = ALPHAS.index(alpha)
    boxes, overlaps = [[0, 0, 1, 1] for _ in ALPHAS], [0.99 if overlap < 0.5 else 0.0] * len(ALPHAS)
    boxes[at], overlaps[at] = box, overlap
    return {"method": method, "layer": "top", "boxes": boxes, "overlaps": {"paper": overlaps}}


def pair(image, box, overlap, other=0.2, *, category="cat", truth=TRUTH):
    maps = [
        found("mwp", 1.0, box, overlap),
        found("grad", 4.0, [0, 0, 320, 240], other),
        found("center", 0.0, [0, 0, 9, 9], 0.0),
    ]
    target = {"category": category, "truth": [list(truth)], "maps": maps}
    return {"image": image, "size": list(SIZE), "targets": [target]}


def a_run(records, reported=None):
    names = frozenset(record["image"] for record in records) if reported is None else frozenset(reported)
    return LocalizationRun(
        "net", ROWS, records, "imagenet", "val", {"concepts": {}}, lambda *_: [], lambda *_: None, names
    )


def examples(records, each=2, rows=ROWS, **more):
    return best_of_each_kind(*CASES.candidates(a_run(records, **more), rows), CASES.kinds, each)


def chosen(records, **more):
    return {kind: [one.image for one in found] for kind, found in examples(records, **more).items()}


def test_small_objects_that_all_fit():
    """The centre does not look, so it need not fit."""
    tiny, huge = (10, 10, 30, 30), (0, 0, 310, 230)
    records = [
        pair("huge", huge, 0.9, 0.9, truth=huge),
        pair("tiny", tiny, 0.6, 0.6, truth=tiny),
        pair("other misses", tiny, 0.6, 0.4, truth=tiny),
    ]
    assert chosen(records)[ALL] == ["tiny", "huge"]


def test_fits_where_others_do_not():
    records = [pair("just", TRUTH, 0.5), pair("well", TRUTH, 0.9), pair("both", TRUTH, 0.9, 0.9)]
    assert chosen(records)[ONLY] == ["well", "just"]


def test_worst_cases_by_how_the_main_box_misses():
    records = [
        pair("part", [110, 110, 150, 150], 0.16),
        pair("speck", [110, 110, 120, 120], 0.01),
        pair("twice", [100, 100, 310, 200], 0.47),
        pair("all", [0, 0, 320, 240], 0.08),
        pair("beside", [250, 210, 300, 230], 0.0),
        pair("half beside", [160, 100, 260, 200], 0.25),
        pair("nothing", None, 0.0),
    ]
    worst = chosen(records)
    assert worst[SMALL] == ["speck", "part"]
    assert worst[LARGE] == ["all", "twice"]
    assert worst[ELSEWHERE] == ["beside", "half beside"]
    assert worst[ALL] == worst[ONLY] == []


def test_pictures_that_chose_thresholds_are_no_examples():
    records = [pair("held out", TRUTH, 0.9), pair("reported", TRUTH, 0.6)]
    assert chosen(records, reported=["reported"])[ONLY] == ["reported"]


def test_one_method_alone():
    records = [pair("1", TRUTH, 0.9), pair("2", [110, 110, 120, 120], 0.01)]
    assert chosen(records, rows=ROWS[:1]) == {ALL: ["1"], ONLY: [], SMALL: ["2"], LARGE: [], ELSEWHERE: []}


def test_an_example_knows_the_chosen_thresholds_boxes():
    (example,) = examples([pair("1", TRUTH, 0.9)], each=1)[ONLY]
    assert [one["manner"] for one in example.maps] == ["fits", "too large", "elsewhere"]
    assert example.maps[0]["box"] == TRUTH
    assert example.share == pytest.approx(10000 / (320 * 240))


def drawn(box, truth=(TRUTH,), size=SIZE):
    picture = Image.new("RGB", size, GREY)
    values = torch.zeros(3, 4)
    values[0, 0] = 1.0
    run = LocalizationRun(
        "net",
        ROWS,
        [],
        "imagenet",
        "val",
        {"concepts": {}},
        lambda *_: [AttentionMap(values, "cat", "top", "mwp", 1.0, size, image=picture)],
        lambda *_: None,
        frozenset(),
    )
    maps = ({"method": "mwp", "layer": "top", "box": box, "overlap": 0.1, "manner": "too small"},)
    return [panel.image for panel in CASES.panels(run, BoxExample("1", size, "cat", 0.1, maps, truth))]


def colours(picture, y, x0, x1):
    """How many pixels of a row are light, and how many dark."""
    row = np.asarray(picture)[y, x0:x1]
    return tuple(int((row == colour).all(axis=1).sum()) for colour in (LIGHT, DARK))


def test_the_truth_is_dashed_and_the_box_is_solid():
    _, panel = drawn((20.0, 20.0, 80.0, 80.0))
    light, dark = colours(panel, 100, 100, 200)  # along the true box
    assert min(light, dark) > 30
    assert light + dark == 100
    assert colours(panel, 20, 20, 80) == (0, 60)  # along the found one: dark, then light
    assert colours(panel, 22, 30, 70) == (40, 0)
    assert colours(panel, 24, 30, 70) == (0, 40)


def test_the_photograph_shows_the_truth_only():
    photograph, _ = drawn((20.0, 20.0, 80.0, 80.0), truth=(TRUTH, (250, 50, 300, 90)))
    assert sum(colours(photograph, 100, 100, 200)) == 100
    assert sum(colours(photograph, 50, 250, 300)) == 50
    assert photograph.getpixel((20, 20)) == GREY


@pytest.mark.parametrize("size", [(32, 24), (1280, 960)])
def test_lines_look_the_same_on_small_and_on_large_pictures(size):
    scale = size[0] / SIZE[0]
    box, truth = (tuple(scale * side for side in one) for one in ((20.0, 20.0, 80.0, 80.0), TRUTH))
    photograph, panel = drawn(box, truth=(truth,), size=size)
    assert photograph.size == SIZE
    assert colours(panel, 22, 30, 70) == (40, 0)
    assert sum(colours(panel, 100, 100, 200)) == 100


def test_no_box_is_no_frame():
    _, panel = drawn(None)
    assert colours(panel, 20, 0, 90) == (0, 0)


def test_where_both_are_the_same_the_dashes_are_seen():
    _, panel = drawn(TRUTH)
    light, dark = colours(panel, 100, 100, 200)
    assert min(light, dark) > 30


@pytest.mark.parametrize("box", [(-5, -5, 500, 400), (0, 0, 1, 1), (319, 239, 320, 240), (10.2, 10.7, 10.9, 11.1)])
def test_boxes_at_the_edges_and_of_a_pixel(box):
    """Nothing of them is beyond the image, and something of them is to be seen."""
    plain = Image.new("RGB", SIZE, GREY)
    for made in (framed(plain, box), dashed(plain, [box])):
        assert made.size == SIZE
        assert made.tobytes() != plain.tobytes()
    assert plain.getpixel((0, 0)) == GREY
