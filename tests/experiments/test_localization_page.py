"""The page of localisation, made of records whose outcome is known."""

import re
from dataclasses import replace

import pytest
import torch
from pages import Page, table_with
from PIL import Image

from excite.attention import AttentionMap
from excite.datasets import Instance, Target
from excite.errors import ImageError
from excite.experiments.localization.pairs import BoxExample, manner, whole_picture
from excite.experiments.localization.report import MAIN, write
from excite.experiments.localization.scores import RULES, LocalizationRun, best_layers, tally
from excite.experiments.published import LOCALIZATION, WORDS
from excite.experiments.report.tables import DASH
from excite.methods import METHODS
from excite.metrics.boxes import box_iou

SIZE = (60, 40)
TRUTH = (10, 5, 40, 30)
FIT, SMALL, LARGE, ELSEWHERE, NOWHERE = TRUTH, (20, 10, 30, 20), (0, 0, 60, 40), (45, 30, 60, 40), None
AT = 2  # the threshold that fits: alpha 1, or a share of 0.04
ATTACK = "<script>x</script>"
KINDS = (
    "Every method that looks fits the object",
    "mwp fits where others do not",
    "mwp finds a part: its box is far too small",
    "mwp finds more than the object: its box is far too large",
    "mwp looks elsewhere",
)


def found(place, box, truth):
    """A map that has this box at one threshold and none that fits at the others."""
    fitting = 0.0 if box is None else float(box_iou([box], [truth])[0, 0])
    overlaps = {name: [0.0] * len(rule.thresholds) for name, rule in RULES.items()}
    for values in overlaps.values():
        values[AT] = fitting
    boxes = [None] * len(RULES["paper"].thresholds)
    if box is not None:
        boxes[0], boxes[AT] = list(LARGE), list(box)
    return {"method": place[0], "layer": place[1], "boxes": boxes, "overlaps": overlaps}


def a_run(outcomes, *, held_out=None, model="net", data="imagenet", truths=None, categories=("n1", "n2"), **about):
    """One pair an image: outcomes give the box of each method (and layer); thresholds are chosen on one more."""
    places = {place if isinstance(place, tuple) else (place, "top"): boxes for place, boxes in outcomes.items()}
    pairs = len(next(iter(places.values())))
    truths = truths or [TRUTH] * pairs
    records = [a_record("held out", "n1", TRUTH, {place: (held_out or {}).get(place, FIT) for place in places})]
    for k in range(pairs):
        boxes = {place: boxes[k] for place, boxes in places.items()}
        records.append(a_record(f"{k:03}", categories[k % len(categories)], truths[k], boxes))

    def show(image, category):
        picture = Image.new("RGB", SIZE, (90, 120, 150))
        return [
            AttentionMap(torch.eye(4), category, layer, method, 1.0, SIZE, image=picture) for method, layer in places
        ]

    known = {
        "data": {"format": data, "folder": "my images", "split": "val"},
        "pictures": pairs + 2,
        "concepts": {"n1": "tench", "n2": "goose"},
        "output": "the whole image",
        "shape": "squashed to a square",
        "canvas": [224, 224],
        "held_out": 0.2,
        "seed": 7,
        "left_out": {"unknown": {"sofa": 3}, "difficult": 0, "empty": 2, "unreadable": {"cam at top": "no such layer"}},
        "failures": ["cannot read 'broken.jpg': it is cut off"],
        **about,
    }
    reported = frozenset(record["image"] for record in records[1:])
    rows = tally(records, model, reported)
    target = Target("n1", (Instance(TRUTH),))
    return LocalizationRun(model, rows, records, data, "val", known, show, lambda *_: target, reported)


def a_record(image, category, truth, boxes):
    maps = [found(place, box, truth) for place, box in boxes.items()]
    target = {"category": category, "truth": [list(truth)], "maps": maps}
    return {"key": image, "image": image, "size": list(SIZE), "targets": [target]}


def written(tmp_path, *runs, command=""):
    path = write(tmp_path, runs, command=command)
    assert path == tmp_path / "localization.html"
    return Page(path.read_text(encoding="utf-8"))


OUTCOMES = {
    "mwp": [FIT, FIT, FIT, FIT, FIT, FIT, SMALL, LARGE, ELSEWHERE, NOWHERE],
    "c-mwp": [FIT, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, LARGE, SMALL],
    "grad": [FIT, FIT, FIT, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE],
    "center": [SMALL] * 10,
}


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A page of one network, read once by all tests that only look at it."""
    folder = tmp_path_factory.mktemp("page")
    return written(folder, a_run(OUTCOMES), command="excite bench localization --data 'my data'")


def test_errors_with_intervals_thresholds_and_the_papers_beside_them(full):
    errors = table_with(full, "read at")
    low, high = a_run(OUTCOMES).rows[0].error.interval
    assert errors["mwp"] == [f"40.0{100 * low:.1f}{DASH}{100 * high:.1f}", "1", "top", "38.7", "1.5"]
    assert errors["c-mwp"][3:] == ["57.0", "0"]
    assert errors["center"][3:] == [DASH, DASH]
    assert [value for at, value in full.marked["strong"] if at == 0] == ["40.0"]
    assert [value for at, value in full.marked["u"] if at == 0] == ["70.0"]
    assert "CAM 48.1, Feedback 38.8" in full.text


def test_the_whole_picture_is_what_has_to_be_beaten(tmp_path):
    truths = [(0, 0, 60, 30), (0, 0, 60, 40), (0, 0, 20, 10), TRUTH]
    page = written(tmp_path, a_run({"mwp": [FIT] * 4}, truths=truths))
    assert table_with(page, "read at")["the whole image"][0].startswith("50.0")
    pairs = [
        BoxExample("1", (10, 10), "cat", 0, (), truth) for truth in (((0, 0, 9, 9), (0, 0, 1, 1)), ((0, 0, 1, 1),))
    ]
    assert whole_picture(pairs).count == 1


def test_the_papers_numbers_are_for_its_data_only(tmp_path):
    page = written(tmp_path, a_run({"mwp": [FIT, SMALL]}, data="voc"))
    assert table_with(page, "read at")["mwp"][1:] == ["1", "top"]
    assert "38.8" not in page.text


def test_other_ways_to_find_a_box(tmp_path):
    run = a_run({"mwp": [FIT, SMALL], "grad": [SMALL, SMALL]})
    rows = [
        replace(row, max_box_acc=75.0 - k, max_box_acc_v2={0.3: 90.0 - k, 0.5: 70.0 - k, 0.7: 20.0 - k})
        for k, row in enumerate(run.rows)
    ]
    ways = table_with(written(tmp_path, replace(run, rows=rows)), "best piece")
    assert ways["mwp"] == [*["50.0at 1"] * 2, *["50.0at 0.04"] * 3, "75.0", "90.0", "70.0", "20.0", "60.0"]
    assert ways["grad"][5:] == ["74.0", "89.0", "69.0", "19.0", "59.0"]
    assert ways["method"][5:] == ["IoU 0.5", "IoU 0.3", "IoU 0.5", "IoU 0.7", "mean"]


def test_how_boxes_miss(full):
    manners = table_with(full, "too small")
    assert manners["method"] == ["fits", "too small", "too large", "elsewhere", "no box"]
    assert manners["mwp"] == ["60.0", "10.0", "10.0", "10.0", "10.0"]
    assert manners["c-mwp"] == ["10.0", "80.0", "10.0", "0.0", "0.0"]


@pytest.mark.parametrize(
    ("box", "said"),
    [
        ((0, 0, 10, 5), "fits"),  # exactly half
        ((0, 0, 10, 4.99), "too small"),
        ((0, 0, 21, 10), "too large"),
        ((7, 0, 17, 10), "elsewhere"),
        ((40, 40, 49, 49), "fits"),  # the other object
        ((40, 40, 44, 44), "too small"),
        (None, "no box"),
    ],
)
def test_a_box_is_compared_with_the_object_it_overlaps_most(box, said):
    assert manner(box, [(0, 0, 10, 10), (40, 40, 50, 50)]) == said


def test_a_fit_is_what_was_measured(tmp_path):
    """Boxes are written down with two decimals: what was just not a half must not become one on the page."""
    run = a_run({"mwp": [(10, 5, 25, 30), FIT]})
    run.records[1]["targets"][0]["maps"][0]["overlaps"]["paper"][AT] = 0.4999
    page = written(tmp_path, replace(run, rows=tally(run.records, "net", run.reported)))
    assert table_with(page, "too small")["mwp"] == ["50.0", "50.0", "0.0", "0.0", "0.0"]
    assert table_with(page, "read at")["mwp"][0].startswith("50.0")


def test_curves_with_the_papers_optima(full):
    times = "\N{MULTIPLICATION SIGN}"
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', full.source)
    assert f"net: error of each method by threshold, \N{GREEK SMALL LETTER ALPHA} {times} mean, around all" in labels
    assert f"net: error of each method by threshold, t {times} max, around all" in labels
    assert len(set(labels)) == len(labels)
    assert "(GoogleNet, ImageNet val): Grad 5, Deconv (guided backprop) 4.5, LRP 1" in full.text


def test_sizes_are_fifths_of_the_pairs(tmp_path):
    truths = [(0, 0, 60, 4 * k) for k in range(1, 11)]
    page = written(tmp_path, a_run({"mwp": [FIT] * 10}, truths=truths))
    assert "net: error of each method by the size of the object" in page.source
    sizes = [f"10{DASH}20", f"30{DASH}40", f"50{DASH}60", f"70{DASH}80", f"90{DASH}100"]
    assert re.findall(rf"<text[^>]*>(\d+{DASH}\d+)</text>", page.source) == sizes
    assert "Small and large objects" not in written(tmp_path, a_run({"mwp": [FIT] * 4})).headings


def test_what_was_measured_and_what_was_not(full):
    for said in (
        "imagenet, split val, in my images",
        "12 asked for, 11 measured",
        "1 only chose thresholds (20%, drawn by the seed 7); all numbers are of the other 10",
        "in one piece, squashed to a square",
        "stretched to 224 x 224",
        "sofa (3)",
        "cam at top",
        "broken.jpg",
        "excite bench localization --data 'my data'",
    ):
        assert said in full.text


def test_the_main_method_against_the_best_of_the_others(full, tmp_path):
    assert "net: mwp against grad, the best of the others: -30.0 points (" in full.text
    alone = written(tmp_path, a_run({"mwp": [FIT]}))
    assert "the best of the others" not in alone.text


def test_maps_without_any_box_are_errors_and_no_examples(tmp_path):
    run = a_run({"mwp": [FIT, SMALL], "c-grad": [NOWHERE, NOWHERE]})
    page = written(tmp_path, run)
    assert "net: 2 of 2 maps of c-grad are empty and have no box: errors" in page.text
    assert "Without the maps of c-grad." in page.text
    assert "<img" not in written(tmp_path, a_run({"c-grad": [NOWHERE, NOWHERE]})).source


def test_of_several_layers_the_held_out_pictures_choose(tmp_path):
    outcomes = {("mwp", "lucky"): [FIT, FIT], ("mwp", "good"): [FIT, SMALL], ("grad", "input"): [FIT, LARGE]}
    run = a_run(outcomes, held_out={("mwp", "lucky"): SMALL})
    assert [row.layer for row in best_layers(run.rows)] == ["good", "input"]
    page = written(tmp_path, run)
    assert "the one with the smallest error on held-out images is shown" in page.text
    (layers,) = [table for table in page.tables if table[0][:3] == ["method", "read at", "error"]]
    assert [line[1] for line in layers[1:]] == ["lucky", "good", "input"]


def test_examples_tell_fits_in_words_and_name_what_was_looked_for(full):
    assert set(KINDS) <= set(full.headings)
    assert "tench" in full.text
    assert "n1" not in full.text
    for said in ("✓ fits, IoU 1.00", "✗ too small, IoU 0.13", "✗ too large, IoU 0.31", "✗ elsewhere, IoU 0.00"):
        assert said in full.text
    assert "Dashed: where the object is" in full.text
    assert all(re.search(r'alt="[^"]+"', image) for image in re.findall(r"<img [^>]*>", full.source))


def test_the_same_runs_give_the_same_bytes(tmp_path):
    first, second = (write(tmp_path / name, [a_run(OUTCOMES)]).read_bytes() for name in "ab")
    assert first == second
    assert write(tmp_path, [a_run({**OUTCOMES, "grad": [SMALL] * 10})]).read_bytes() != first


def test_names_cannot_become_code(tmp_path):
    run = a_run(
        {("mwp", ATTACK): [FIT, SMALL], ("mwp", "$x$"): [FIT, FIT], ("grad", ATTACK): [LARGE, LARGE]},
        model=ATTACK,
        categories=(ATTACK, "a & b"),
        failures=[ATTACK, "cannot read 'a\udcff.jpg'"],
    )
    page = written(tmp_path, run, command=ATTACK)
    assert "<script" not in page.source
    assert r"cannot read 'a\udcff.jpg'" in page.text


def test_ten_methods_of_a_dozen_and_the_first_networks_have_examples(tmp_path):
    names = [*WORDS, *(f"m{k}" for k in range(4))]
    outcomes = {name: [FIT, SMALL, LARGE, ELSEWHERE] for name in names}
    nets = [a_run(outcomes, model=f"net {k}") for k in range(3)]
    page = written(tmp_path, *nets)
    errors = table_with(page, "read at")
    assert errors[""][:3] == [net.classifier_name for net in nets]
    assert all(len(errors[name]) == 3 * 3 + 2 for name in names)
    assert 0 < page.source.count('class="strip"') <= 12
    assert "net 1: mwp looks elsewhere" in page.headings
    assert "There are no examples of net 2 here." in page.text
    assert max(len(re.findall("<img ", strip)) for strip in page.source.split('class="strip"')[1:]) <= 11


def test_a_method_that_one_network_cannot_be_read_by(tmp_path):
    page = written(
        tmp_path,
        a_run({"mwp": [FIT, SMALL], "cam": [FIT, FIT]}, model="one"),
        a_run({"grad": [FIT, SMALL]}, model="two"),
    )
    errors = table_with(page, "read at")
    assert errors["cam"][3:6] == [DASH] * 3
    assert errors["grad"][:3] == [DASH] * 3
    assert "two: grad finds a part: its box is far too small" in page.headings


def test_a_picture_that_vanished_or_changed_since(tmp_path):
    def show(image, category):
        if image == "000":
            raise ImageError("cannot read 000: no such file")
        size = (9, 9) if image == "001" else SIZE
        return [AttentionMap(torch.eye(4), category, "top", "mwp", 1.0, size, image=Image.new("RGB", size))]

    page = written(tmp_path, replace(a_run({"mwp": [FIT, FIT, SMALL]}), show=show))
    assert "tench in 000, 31 % of the image: cannot be shown (cannot read 000: no such file)" in page.text
    assert "goose in 001, 31 % of the image: cannot be shown (the image has changed since" in page.text
    assert page.source.count('class="strip"') == 1


def test_methods_are_called_as_they_are():
    assert {*LOCALIZATION, *MAIN} - {"feedback", "excite-box"} <= set(METHODS)
