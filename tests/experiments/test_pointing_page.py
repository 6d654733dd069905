"""The page of the Pointing Game, made of records whose outcome is known."""

import re
from dataclasses import replace

import pytest
import torch
from pages import Page, table_with
from PIL import Image

from excite.attention import AttentionMap
from excite.datasets import Instance, Target
from excite.errors import ImageError
from excite.experiments.pointing.report import DASH, MAIN, ORDERS, VARIANTS, write
from excite.experiments.pointing.scores import PointingRun, tally
from excite.experiments.published import CONTRAST, WORDS
from excite.methods import METHODS

SIZE = (60, 40)
HIT, MISS, NOWHERE = 0.0, 30.0, None
TOLERANCE = 15
ATTACK = "<script>x</script>"
LEFT_OUT = {
    "unknown": {"sofa": 3},
    "difficult": 2,
    "empty": 0,
    "unreadable": {},
    "no_pairs": [],
    "no_difficult_pairs": [],
}


def a_run(outcomes, *, model="net", data="voc", difficult=True, shares=None, categories=("cat", "dog"), **about):
    """A game with one pair an image: outcomes give, for each method (and layer), how far beside it points."""
    places = {place if isinstance(place, tuple) else (place, "top"): far for place, far in outcomes.items()}
    pairs = len(next(iter(places.values())))
    records = []
    for k in range(pairs):
        maps = [
            {"method": method, "layer": layer, "point": None if far[k] is None else [20, 10], "distance": far[k]}
            for (method, layer), far in places.items()
        ]
        target = {
            "category": categories[k % len(categories)],
            "difficult": difficult and k % 2 == 0,
            "share": (shares or [0.1] * pairs)[k],
            "maps": maps,
        }
        records.append({"key": str(k), "image": f"{k:03}", "size": list(SIZE), "targets": [target]})

    def show(image, category):
        picture = Image.new("RGB", SIZE, (90, 120, 150))
        return [
            AttentionMap(torch.eye(4), category, layer, method, 1.0, SIZE, image=picture) for method, layer in places
        ]

    known = {
        "data": {"format": data, "folder": "VOC2007", "split": "val"},
        "pictures": pairs + 1,
        "protocol": "authors",
        "tolerance": TOLERANCE,
        "inclusive": True,
        "difficult": "the paper's rule",
        "output": "each place",
        "left_out": LEFT_OUT,
        "failures": ["cannot read 'broken.jpg': it is cut off"],
        **about,
    }
    rows = tally(records, model, TOLERANCE)
    return PointingRun(
        model,
        rows,
        records,
        data,
        "val",
        known,
        show,
        lambda _, category: Target(category, (Instance((5, 5, 30, 20)),)),
    )


def written(tmp_path, *runs, command=""):
    path = write(tmp_path, runs, command=command)
    assert path == tmp_path / "pointing.html"
    return Page(path.read_text(encoding="utf-8"))


GAME = {
    "center": [MISS] * 8,
    "c-mwp": [HIT] * 7 + [MISS],
    "mwp": [HIT] * 5 + [MISS] * 3,
    "guided": [HIT] * 3 + [MISS] * 5,
    "c-grad": [NOWHERE] * 8,
    "grad": [HIT, MISS] * 4,
    "c-guided": [HIT] * 4 + [MISS] * 4,
}


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A page of one network, read once by all tests that only look at it."""
    return written(tmp_path_factory.mktemp("page"), a_run(GAME), command="excite bench pointing --data 'my data'")


def test_scores_with_intervals_the_best_and_the_second_best(full):
    scores = table_with(full, "read at")
    assert [re.match(r"[\d.]+?\.\d", cell)[0] for cell in (scores["c-mwp"][0], scores["mwp"][0])] == ["87.5", "62.5"]
    assert scores["c-mwp"][2] == "top"
    assert [method for method in scores if method in GAME] == list(GAME)
    assert [value for at, value in full.marked["strong"] if at == 0] == [
        "87.5",
        "100.0",
        "100.0",
    ]  # grad is as good on Difficult
    assert [value for at, value in full.marked["u"]] == ["62.5", "75.0"]


def test_intervals_stand_beside_scores(full):
    row = a_run(GAME).rows[1]
    assert table_with(full, "read at")["c-mwp"][0] == f"87.5{row.all.low:.1f}{DASH}{row.all.high:.1f}"


def test_published_numbers_are_marked_as_others(full, tmp_path):
    published = table_with(full, "GoogleNet")
    assert published["c-MWP"] == ["78.7 / 61.7", "80.0 / 66.8", "85.1 / 72.3", "79.9 / 66.5", "90.7 / 82.1"]
    assert "other networks, on VOC07 test" in full.source
    coco = written(tmp_path, a_run({"c-mwp": [HIT, MISS]}, data="coco"))
    assert table_with(coco, "GoogleNet")["c-MWP"] == ["43.0 / 37.0", "49.6 / 44.2", "53.8 / 48.3", "58.5 / 53.6"]
    own = written(tmp_path, a_run({"c-mwp": [HIT, MISS]}, data="own"))
    assert "TorchRay" not in own.source


def test_contrast_table_with_what_was_played(full):
    contrast = table_with(full, "w/o norm")
    assert contrast["network"] == ["full", "post-norm", "w/o norm", "c-Grad", "c-Deconv (guided)", "c-CAM"]
    assert contrast["net"] == ["100.0", DASH, DASH, "zero everywhere (100.0)", "50.0 (50.0)", DASH]
    assert contrast["paper: GoogleNet"] == ["70.6", "58.1", "41.6", "zero everywhere", "67.7 (49.4)", "61.9 (61.9)"]
    assert "net: c-mwp > mwp > guided holds, on all pairs and on Difficult ones" in full.text
    assert "net: c-guided > guided holds on all pairs, but not on Difficult ones" in full.text


def test_no_contrast_and_no_layers_where_none_were_played(tmp_path):
    page = written(tmp_path, a_run({"c-mwp": [HIT, MISS]}))
    assert not {"Contrast, and the paper's order", "Layers"} & set(page.headings)
    assert "w/o norm" not in page.source


def test_the_best_of_several_layers_is_in_the_table_and_all_are_in_a_figure(tmp_path):
    game = {("c-mwp", "low"): [HIT, MISS, MISS], ("c-mwp", "high"): [HIT, HIT, MISS], ("center", "input"): [MISS] * 3}
    page = written(tmp_path, a_run(game))
    assert table_with(page, "read at")["c-mwp"][2] == "high"
    assert "a little too good" in page.text
    assert "Layers" in page.headings
    assert "Scores of each method at each layer of net" in page.source
    assert all(re.search(rf"<text[^>]*>{name}</text>", page.source) for name in ("low", "high"))
    assert not re.search(r"<text[^>]*>input</text>", page.source)


def test_categories_and_who_wins_them(full):
    categories = table_with(full, "pairs")
    assert categories["category"] == ["pairs", *GAME]
    assert categories["cat"][:4] == ["4", "0.0", "100.0", "75.0"]
    assert categories["dog"][:4] == ["4", "0.0", "75.0", "50.0"]
    assert categories["mean"][:4] == ["8", "0.0", "87.5", "62.5"]
    assert categories["categories won"] == ["2", "0", "2", "0", "0", "0", "1", "0"]


def test_what_was_measured_and_what_was_not(full):
    for said in (
        "voc, split val, in VOC2007",
        "9 asked for, 8 played",
        "8 of an image and a category in it, 4 of them Difficult",
        "up to and including 15 pixels",
        "sofa (3)",
        "broken.jpg",
        "net: 8 of 8 maps of c-grad are empty",
        "excite bench pointing --data 'my data'",
    ):
        assert said in full.text


def test_the_main_method_against_the_best_of_the_others(full):
    assert "net: c-mwp against mwp, the best of the others: +25.0 points" in full.text


def test_examples_tell_hits_from_misses_in_words(full):
    assert {
        "Every method that looks hits a small object",
        "c-mwp hits where others miss",
        "c-mwp misses, by the most",
    } <= set(full.headings)
    assert "✓ hit" in full.text
    assert "✗ missed, 30 px beside" in full.text
    assert "Without the maps of c-grad." in full.text
    assert all(re.search(r'alt="[^"]+"', image) for image in re.findall(r"<img [^>]*>", full.source))


def test_the_same_runs_give_the_same_bytes(tmp_path):
    first, second = (write(tmp_path / name, [a_run(GAME)]).read_bytes() for name in "ab")
    assert first == second
    assert write(tmp_path, [a_run({**GAME, "mwp": [MISS] * 8})]).read_bytes() != first


def test_names_cannot_become_code(tmp_path):
    run = a_run(
        {("c-mwp", ATTACK): [HIT, MISS], ("c-mwp", "$x$"): [HIT, HIT], ("mwp", ATTACK): [MISS, MISS]},
        model=ATTACK,
        categories=(ATTACK, "a & b"),
        failures=[ATTACK],
        left_out={**LEFT_OUT, "unknown": {ATTACK: 1}},
    )
    page = written(tmp_path, run, command=ATTACK)
    assert "<script" not in page.source
    assert table_with(page, "pairs")[ATTACK][0] == "1"


def test_a_file_name_that_is_no_text(tmp_path):
    run = a_run({"c-mwp": [HIT, MISS]}, failures=["cannot read 'a\udcff.jpg'"])
    assert r"cannot read 'a\udcff.jpg'" in written(tmp_path, run).text


def test_one_method_one_picture_nothing_difficult_and_no_examples(tmp_path):
    page = written(tmp_path, a_run({"mwp": [HIT]}, difficult=False, shares=[0.9]))
    assert table_with(page, "read at")["mwp"][1] == DASH
    assert page.text.count("There is no such case") == 3
    assert "<img" not in page.source


def test_maps_that_are_all_empty_leave_no_examples(tmp_path):
    page = written(tmp_path, a_run({"c-grad": [NOWHERE, NOWHERE]}))
    assert "net: 2 of 2 maps of c-grad are empty" in page.text
    assert "<img" not in page.source


def test_twenty_methods_and_four_networks(tmp_path):
    names = [*WORDS, *(f"m{k}" for k in range(12))]
    game = {name: [HIT, MISS, HIT, MISS, HIT, MISS] for name in names}
    nets = [a_run(game, model=f"net {k}") for k in range(4)]
    page = written(tmp_path, *nets)
    scores = table_with(page, "read at")
    assert scores[""] == [net.classifier_name for net in nets]
    assert all(len(scores[name]) == 12 for name in names)
    assert 0 < page.source.count('class="strip"') <= 12
    assert "net 3: c-mwp misses, by the most" in page.headings
    assert max(len(re.findall("<img ", strip)) for strip in page.source.split('class="strip"')[1:]) == 1 + len(WORDS)


def test_facts_that_differ_between_networks_are_told_apart(tmp_path):
    game = {"mwp": [HIT, MISS]}
    page = written(tmp_path, a_run(game, model="one"), a_run(game, model="two", output="the whole image"))
    assert "signal, one" in page.text
    assert "signal, two" in page.text
    assert page.text.count("3 asked for, 2 played") == 1


def test_a_method_that_one_network_cannot_be_read_by(tmp_path):
    page = written(
        tmp_path,
        a_run({"c-mwp": [HIT, MISS], "cam": [HIT, HIT]}, model="one"),
        a_run({"mwp": [HIT, MISS]}, model="two"),
    )
    scores = table_with(page, "read at")
    assert scores["cam"][3:] == [DASH] * 3
    assert scores["mwp"][:3] == [DASH] * 3
    assert "two: mwp misses, by the most" in page.headings


def test_a_picture_that_vanished_or_changed_since(tmp_path):
    def show(image, category):
        if image == "000":
            raise ImageError("cannot read 000: no such file")
        size = (9, 9) if image == "001" else SIZE
        return [AttentionMap(torch.eye(4), category, "top", "c-mwp", 1.0, size, image=Image.new("RGB", size))]

    page = written(tmp_path, replace(a_run({"c-mwp": [HIT, HIT, HIT, MISS]}), show=show))
    assert "cat in 000, 10.0 % of the image: cannot be shown (cannot read 000: no such file)" in page.text
    assert "dog in 001, 10.0 % of the image: cannot be shown (the image has changed since" in page.text
    assert page.source.count('class="strip"') == 2


def test_methods_are_called_as_they_are():
    named = {*VARIANTS, *(plain for _, plain in VARIANTS.values() if plain), *CONTRAST, *WORDS, *MAIN, *sum(ORDERS, ())}
    assert named - {"excite"} <= set(METHODS)
