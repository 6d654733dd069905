"""The pages of the Pointing Game and of localisation, made of records whose outcome is known."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from pages import Page, table_with
from PIL import Image

from excite.attention import AttentionMap
from excite.datasets import Instance, Target
from excite.errors import ImageError
from excite.experiments.localization import report as localization
from excite.experiments.localization.report import LocalizationReport, manner
from excite.experiments.localization.run import RULES, LocalizationRun
from excite.experiments.localization.run import tally as tally_boxes
from excite.experiments.pointing import report as pointing
from excite.experiments.pointing.report import PointingReport
from excite.experiments.pointing.run import PointingRun, tally
from excite.experiments.published import CONTRAST, LOCALIZATION, WORDS
from excite.experiments.report.tables import DASH
from excite.methods import METHODS
from excite.metrics.boxes import box_iou

SIZE = (60, 40)
TOLERANCE = 15
HIT, MISS, NOWHERE = 0.0, 30.0, None
TRUTH = (10, 5, 40, 30)
FIT, SMALL, LARGE, ELSEWHERE = TRUTH, (20, 10, 30, 20), (0, 0, 60, 40), (45, 30, 60, 40)
AT = 2  # the threshold that fits: alpha 1, or a share of 0.04
ATTACK = "<script>x</script> \" onload='x' &"
LEFT_OUT = {"unknown": {"sofa": 3}, "difficult": 2, "empty": 0, "unreadable": {}}
ABOUT = {
    "data": {"folder": "my images", "split": "val"},
    "pictures": 12,
    "output": "each place",
    "left_out": LEFT_OUT,
    "failures": ["cannot read 'broken.jpg': it is cut off"],
}


def places_of(outcomes):
    return {place if isinstance(place, tuple) else (place, "top"): values for place, values in outcomes.items()}


def shows(places):
    """Recomputes maps: of all places, in an even image."""
    image = Image.new("RGB", SIZE, (90, 120, 150))
    return lambda _, category: [
        AttentionMap(torch.eye(4), category, layer, method, 1.0, SIZE, image=image) for method, layer in places
    ]


def a_game(outcomes, *, model="net", data="voc", difficult=True, share=0.1, categories=("cat", "dog"), **about):
    """One pair an image: outcomes give, for each method (and layer), how far beside it points."""
    places = places_of(outcomes)
    records = []
    for k in range(len(next(iter(places.values())))):
        maps = [
            {"method": method, "layer": layer, "point": None if far[k] is None else [20, 10], "distance": far[k]}
            for (method, layer), far in places.items()
        ]
        facts = {"category": categories[k % 2], "difficult": difficult and k % 2 == 0, "share": share}
        records.append({"key": str(k), "image": f"{k:03}", "size": list(SIZE), "targets": [facts | {"maps": maps}]})
    protocol = {"protocol": "authors", "tolerance": TOLERANCE, "inclusive": True, "difficult": "the paper's rule"}
    known = {**ABOUT, **protocol, **about}
    target = Target("cat", (Instance((5, 5, 30, 20)),))
    rows = tally(records, model, TOLERANCE)
    return PointingRun(model, rows, records, data, "val", known, shows(places), lambda *_: target)


def a_boxing(outcomes, *, held_out=None, model="net", data="imagenet", truths=None, categories=("n1", "n2"), **about):
    """One pair an image: outcomes give the box of each method (and layer); thresholds are chosen on one more."""
    places = places_of(outcomes)
    records = [a_record("held out", "n1", TRUTH, {place: (held_out or {}).get(place, FIT) for place in places})]
    for k in range(len(next(iter(places.values())))):
        boxes = {place: values[k] for place, values in places.items()}
        records.append(a_record(f"{k:03}", categories[k % 2], (truths or {}).get(k, TRUTH), boxes))
    protocol = {"shape": "squashed to a square", "canvas": [224, 224], "held_out": 0.2, "seed": 7}
    known = {**ABOUT, "concepts": {"n1": "tench", "n2": "goose"}, **protocol, **about}
    reported = frozenset(record["image"] for record in records[1:])
    rows = tally_boxes(records, model, reported)
    return LocalizationRun(model, rows, records, data, "val", known, shows(places), lambda *_: None, reported)


def a_record(image, category, truth, boxes):
    """A map has its box at one threshold and none that fits at the others."""
    maps = []
    for (method, layer), box in boxes.items():
        overlaps = {name: [0.0] * len(rule.thresholds) for name, rule in RULES.items()}
        for values in overlaps.values():
            values[AT] = 0.0 if box is None else float(box_iou([box], [truth])[0, 0])
        found = [None] * len(RULES["paper"].thresholds)
        if box is not None:
            found[0], found[AT] = list(LARGE), list(box)
        maps.append({"method": method, "layer": layer, "boxes": found, "overlaps": overlaps})
    target = {"category": category, "truth": [list(truth)], "maps": maps}
    return {"key": image, "image": image, "size": list(SIZE), "targets": [target]}


GAME = {
    "center": [MISS] * 8,
    "c-mwp": [HIT] * 7 + [MISS],
    "mwp": [HIT] * 5 + [MISS] * 3,
    "guided": [HIT] * 3 + [MISS] * 5,
    "c-grad": [NOWHERE] * 8,
    "grad": [HIT, MISS] * 4,
    "c-guided": [HIT] * 4 + [MISS] * 4,
}
BOXES = {
    "mwp": [FIT, FIT, FIT, FIT, FIT, FIT, SMALL, LARGE, ELSEWHERE, NOWHERE],
    "c-mwp": [FIT, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, LARGE, SMALL],
    "grad": [FIT, FIT, FIT, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE],
    "center": [SMALL] * 10,
}
POINTING = SimpleNamespace(run=a_game, report=PointingReport, good=HIT, bad=MISS, usual=GAME, main="c-mwp", first="cat")
BOXING = SimpleNamespace(
    run=a_boxing, report=LocalizationReport, good=FIT, bad=SMALL, usual=BOXES, main="mwp", first="tench"
)


def written(world, folder, *runs, command=""):
    return Page(world.report(runs).write_page(folder, command).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    """Pages of one network, read once by all tests that only look at them."""
    return written(POINTING, tmp_path_factory.mktemp("game"), a_game(GAME), command="excite bench --data 'my data'")


@pytest.fixture(scope="module")
def boxing(tmp_path_factory):
    return written(BOXING, tmp_path_factory.mktemp("boxing"), a_boxing(BOXES), command="excite bench --data 'my data'")


@pytest.mark.parametrize("world", [POINTING, BOXING], ids=["pointing", "localization"])
class TestBoth:
    def test_the_same_runs_give_the_same_bytes(self, world, tmp_path, game, boxing):
        again = written(world, tmp_path, world.run(world.usual), command="excite bench --data 'my data'")
        assert again.source == (game if world is POINTING else boxing).source

    def test_names_cannot_become_code(self, world, tmp_path):
        places = {(world.main, ATTACK): "good", (world.main, "$x$"): "bad", ("grad", ATTACK): "bad"}
        run = world.run(
            {place: [getattr(world, how)] * 2 for place, how in places.items()},
            model=ATTACK,
            categories=(ATTACK, "a & b"),
            failures=[ATTACK, "cannot read 'a\udcff.jpg'"],
            left_out={**LEFT_OUT, "unknown": {ATTACK: 1}},
        )
        page = written(world, tmp_path, run, command=ATTACK)
        assert not {"script", "link", "iframe"} & {tag for tag, _ in page.tags}
        assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
        assert ATTACK in page.text
        assert r"cannot read 'a\udcff.jpg'" in page.text

    def test_a_page_fetches_nothing_fits_everywhere_and_says_what_is_drawn(self, world, game, boxing):
        page = game if world is POINTING else boxing
        assert page.source.startswith("<!DOCTYPE html>\n")
        for word in ("prefers-color-scheme: dark", "@media print", "width=device-width", 'lang="en"'):
            assert word in page.source
        addresses = [attributes[name] for _, attributes in page.tags for name in ("src", "href") if name in attributes]
        targets = {f"#{attributes['id']}" for _, attributes in page.tags if "id" in attributes}
        assert {address for address in addresses if not address.startswith("data:image/jpeg;")} <= targets
        assert not re.search(r"url\((?!#)|@import", page.source)
        assert all(attributes["alt"] for tag, attributes in page.tags if tag == "img")
        labels = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
        assert len(set(labels)) == len(labels) > 0

    def test_many_methods_and_networks(self, world, tmp_path):
        """Ten maps of an example at most, and a dozen examples; facts that are the same are told once."""
        names = [*WORDS, *(f"m{k}" for k in range(4))]
        outcomes = {name: [world.good, world.bad] * 3 for name in names}
        outputs = ["each place", "each place", "the whole image"]
        nets = [world.run(outcomes, model=f"net {k}", output=output) for k, output in enumerate(outputs)]
        page = written(world, tmp_path, *nets)
        scores = table_with(page, "read at")
        assert scores[""][:3] == [net.classifier_name for net in nets]
        assert all(len(scores[name]) >= 9 for name in names)
        assert "Without the maps of m0, m1, m2, m3." in page.text
        strips = page.source.split('class="strip"')[1:]
        assert 0 < len(strips) <= 12
        assert max(len(re.findall("<img ", strip)) for strip in strips) == 1 + len(WORDS)
        assert ("There are no examples of net 2 here." in page.text) is (world is BOXING)
        assert "signal, net 2" in page.text
        assert page.text.count("12 asked for") == 1

    def test_a_method_that_one_network_cannot_be_read_by(self, world, tmp_path):
        one = world.run({world.main: [world.good, world.bad], "cam": [world.good] * 2}, model="one")
        other = world.run({"grad": [world.good, world.bad]}, model="two")
        scores = table_with(written(world, tmp_path, one, other), "read at")
        assert scores["cam"][3:6] == scores["grad"][:3] == [DASH] * 3

    def test_a_picture_that_vanished_or_changed_since(self, world, tmp_path):
        def show(image, category):
            if image == "000":
                raise ImageError("cannot read 000: no such file")
            size = (9, 9) if image == "001" else SIZE
            return [AttentionMap(torch.eye(4), category, "top", world.main, 1.0, size, image=Image.new("RGB", size))]

        run = replace(world.run({world.main: [world.good] * 2 + [world.bad]}), show=show)
        page = written(world, tmp_path, run)
        assert re.search(
            rf"{world.first} in 000, [\d.]+ % of the image: cannot be shown \(cannot read 000: no such file\)",
            page.text,
        )
        assert "cannot be shown (the image has changed since it was measured)" in page.text
        assert page.source.count('class="strip"') == 1


class TestPointing:
    def test_scores_with_intervals_the_best_and_the_second_best(self, game):
        scores = table_with(game, "read at")
        row = a_game(GAME).rows[1]
        assert scores["c-mwp"][0] == f"87.5{row.all.low:.1f}{DASH}{row.all.high:.1f}"
        assert scores["c-mwp"][2] == "top"
        assert [method for method in scores if method in GAME] == list(GAME)
        best = [value for at, value in game.marked["strong"] if at == 0]
        assert best == ["87.5", "100.0", "100.0"]  # grad is as good on Difficult
        assert [value for at, value in game.marked["u"]] == ["62.5", "75.0"]
        assert "net: c-mwp against mwp, the best of the others: +25.0 points" in game.text

    def test_contrast_table_with_what_was_played(self, game, tmp_path):
        contrast = table_with(game, "w/o norm")
        assert contrast["network"] == ["full", "post-norm", "w/o norm", "c-Grad", "c-Deconv (guided)", "c-CAM"]
        assert contrast["net"] == ["100.0", DASH, DASH, "zero everywhere (100.0)", "50.0 (50.0)", DASH]
        assert contrast["paper: GoogleNet"] == list(CONTRAST.values())
        assert "net: c-mwp > mwp > guided holds, on all pairs and on Difficult ones" in game.text
        assert "net: c-guided > guided holds on all pairs, but not on Difficult ones" in game.text
        plain = written(POINTING, tmp_path, a_game({"c-mwp": [HIT, MISS]}, data="own"))
        assert not {"Contrast, and the paper's order", "Layers"} & set(plain.headings)
        assert "TorchRay" not in plain.source

    def test_the_best_of_several_layers_is_in_the_table_and_all_are_in_a_figure(self, tmp_path):
        layers = {("c-mwp", "low"): [HIT, MISS, MISS], ("c-mwp", "high"): [HIT, HIT, MISS], ("center", "x"): [MISS] * 3}
        page = written(POINTING, tmp_path, a_game(layers))
        assert table_with(page, "read at")["c-mwp"][2] == "high"
        assert "a little too good" in page.text
        assert "Scores of each method at each layer of net" in page.source
        assert all(re.search(rf"<text[^>]*>{name}</text>", page.source) for name in ("low", "high"))

    def test_one_method_one_picture_nothing_difficult_and_no_examples(self, tmp_path):
        page = written(POINTING, tmp_path, a_game({"mwp": [HIT]}, difficult=False, share=0.9))
        assert table_with(page, "read at")["mwp"][1] == DASH
        assert page.text.count("There is no such case") == 3
        assert "<img" not in page.source
        assert "<img" not in written(POINTING, tmp_path, a_game({"c-grad": [NOWHERE, NOWHERE]})).source


class TestLocalization:
    def test_errors_with_intervals_thresholds_and_the_papers_beside_them(self, boxing, tmp_path):
        errors = table_with(boxing, "read at")
        low, high = a_boxing(BOXES).rows[0].error.interval
        assert errors["mwp"] == [f"40.0{100 * low:.1f}{DASH}{100 * high:.1f}", "1", "top", "38.7", "1.5"]
        assert errors["center"][3:] == [DASH, DASH]
        assert [value for at, value in boxing.marked["strong"] if at == 0] == ["40.0"]
        assert [value for at, value in boxing.marked["u"] if at == 0] == ["70.0"]
        assert "CAM 48.1, Feedback 38.8" in boxing.text
        assert "net: mwp against grad, the best of the others: -30.0 points (" in boxing.text
        page = written(BOXING, tmp_path, a_boxing({"mwp": [FIT, SMALL]}, data="voc"))
        assert table_with(page, "read at")["mwp"][1:] == ["1", "top"]
        assert "38.8" not in page.text

    def test_the_whole_picture_is_what_has_to_be_beaten(self, tmp_path):
        truths = {0: (0, 0, 60, 30), 1: (0, 0, 60, 40), 2: (0, 0, 20, 10)}
        page = written(BOXING, tmp_path, a_boxing({"mwp": [FIT] * 4}, truths=truths))
        assert table_with(page, "read at")["the whole image"][0].startswith("50.0")

    def test_other_ways_to_find_a_box(self, tmp_path):
        run = a_boxing({"mwp": [FIT, SMALL], "grad": [SMALL, SMALL]})
        v2 = {0.3: 90.0, 0.5: 70.0, 0.7: 20.0}
        rows = [replace(row, max_box_acc=75.0, max_box_acc_v2=v2) for row in run.rows]
        ways = table_with(written(BOXING, tmp_path, replace(run, rows=rows)), "best piece")
        assert ways["mwp"] == [*["50.0at 1"] * 2, *["50.0at 0.04"] * 3, "75.0", "90.0", "70.0", "20.0", "60.0"]
        assert ways["method"][5:] == ["IoU 0.5", "IoU 0.3", "IoU 0.5", "IoU 0.7", "mean"]

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
    def test_a_box_is_compared_with_the_object_it_overlaps_most(self, box, said):
        assert manner(box, [(0, 0, 10, 10), (40, 40, 50, 50)]) == said

    def test_a_fit_is_what_was_measured(self, tmp_path):
        """Boxes are written down with two decimals: what was just not a half must not become one on the page."""
        run = a_boxing({"mwp": [(10, 5, 25, 30), FIT]})
        run.records[1]["targets"][0]["maps"][0]["overlaps"]["paper"][AT] = 0.4999
        page = written(BOXING, tmp_path, replace(run, rows=tally_boxes(run.records, "net", run.reported)))
        assert table_with(page, "too small")["mwp"] == ["50.0", "50.0", "0.0", "0.0", "0.0"]
        assert table_with(page, "read at")["mwp"][0].startswith("50.0")

    def test_sizes_are_fifths_of_the_pairs(self, tmp_path):
        truths = {k: (0, 0, 60, 4 * k + 4) for k in range(10)}
        page = written(BOXING, tmp_path, a_boxing({"mwp": [FIT] * 10}, truths=truths))
        sizes = [f"10{DASH}20", f"30{DASH}40", f"50{DASH}60", f"70{DASH}80", f"90{DASH}100"]
        assert re.findall(rf"<text[^>]*>(\d+{DASH}\d+)</text>", page.source) == sizes
        assert "Small and large objects" not in written(BOXING, tmp_path, a_boxing({"mwp": [FIT] * 4})).headings

    def test_of_several_layers_the_held_out_pictures_choose(self, tmp_path):
        outcomes = {("mwp", "lucky"): [FIT, FIT], ("mwp", "good"): [FIT, SMALL], ("grad", "input"): [FIT, LARGE]}
        run = a_boxing(outcomes, held_out={("mwp", "lucky"): SMALL})
        page = written(BOXING, tmp_path, run)
        assert table_with(page, "best piece").keys() >= {"mwp", "grad"}
        assert "the one with the smallest error on held-out images is shown" in page.text
        (layers,) = [table for table in page.tables if table[0][:3] == ["method", "read at", "error"]]
        assert [line[1] for line in layers[1:]] == ["lucky", "good", "input"]
        (errors,) = [table for table in page.tables if "the whole image" in {line[0] for line in table}]
        assert [line[3] for line in errors[2:4]] == ["good", "input"]

    def test_maps_without_any_box_are_errors_and_no_examples(self, tmp_path):
        page = written(BOXING, tmp_path, a_boxing({"mwp": [FIT, SMALL], "c-grad": [NOWHERE, NOWHERE]}))
        assert "net: 2 of 2 maps of c-grad are empty and have no box: errors" in page.text
        assert "Without the maps of c-grad." in page.text


def test_methods_are_called_as_they_are():
    variants = {*pointing.VARIANTS, *(plain for _, plain in pointing.VARIANTS.values() if plain)}
    named = {*variants, *CONTRAST, *WORDS, *pointing.MAIN, *sum(pointing.ORDERS, ()), *LOCALIZATION, *localization.MAIN}
    assert named - {"excite", "feedback"} <= set(METHODS)
