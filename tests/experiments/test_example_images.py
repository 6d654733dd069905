"""Which examples of the Pointing Game and of localisation are chosen, and what is drawn."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from excite.attention import AttentionMap
from excite.datasets import Instance, Mask, Target
from excite.experiments.localization.report import BoxCases, BoxExample
from excite.experiments.pointing.report import PointingCases
from excite.experiments.report.examples import Example, best_of_each_kind, dashed, framed
from excite.metrics.boxes import ALPHAS
from excite.readouts.overlay import DARK, LIGHT

GREY = (120, 120, 120)


def chosen(cases, records, rows, each=2, **run):
    """The names of the images of each kind, in the order of the kinds."""
    found = cases.candidates(SimpleNamespace(records=records, **run), rows)
    kinds = best_of_each_kind(*found, cases.kinds, each).values()
    return [[example.image for example in examples] for examples in kinds]


def shown(size, *methods):
    """Recomputes maps whose upper left corner is highest, in an even image."""
    values = torch.zeros(3, 4)
    values[0, 0] = 1.0
    image = Image.new("RGB", size, GREY)
    return lambda *_: [AttentionMap(values, "cat", "1", method, 1.0, size, image=image) for method in methods]


class TestPointing:
    CASES = PointingCases(lambda far: far is not None and far <= 15)
    PLACES = (("c-mwp", "1"), ("mwp", "1"), ("center", "1"), ("c-grad", "1"))
    SIZE = (400, 300)

    def found(self, place, far):
        return {"method": place[0], "layer": place[1], "point": None if far is None else [1, 1], "distance": far}

    def pair(self, image, far, other=0.0, *, category="cat", share=0.1, size=(100, 75)):
        """The centre always misses, c-grad points nowhere, and there is a layer that is not shown."""
        fars = [*zip(self.PLACES, (far, other, 70.0, None), strict=True), (("mwp", "2"), 50.0)]
        maps = [self.found(*both) for both in fars]
        return {"image": image, "size": list(size), "targets": [{"category": category, "share": share, "maps": maps}]}

    def chosen(self, *records, each=2):
        rows = [SimpleNamespace(method=place[0], layer=place[1], key=place) for place in self.PLACES]
        return chosen(self.CASES, records, rows, each)

    def test_small_objects_that_all_hit(self):
        """The centre and a method that never points anywhere do not count, nor does a layer that is not shown."""
        pair = self.pair
        every, _, _ = self.chosen(
            pair("large", 0.0, share=0.2), pair("small", 15.0, share=0.01), pair("huge", 0, share=1)
        )
        assert every == ["small", "large"]

    def test_hits_where_others_miss(self):
        outcomes = {"a": (0.0, 16.0, 0.2), "b": (0.0, 99.0, 0.1), "c": (0.0, 0.0, 0.1), "d": (20.0, 99.0, 0.1)}
        records = [self.pair(name, far, other, share=share) for name, (far, other, share) in outcomes.items()]
        assert self.chosen(*records)[1] == ["b", "a"]

    def test_the_farthest_misses_in_diagonals(self):
        pair = self.pair
        records = [pair("near", 20.0), pair("far", 60.0), pair("nowhere", None), pair("wide", 61.0, size=(1000, 750))]
        assert self.chosen(*records, each=4)[2] == ["far", "near", "wide", "nowhere"]

    def test_a_picture_once_and_categories_in_turns(self):
        records = [self.pair("1", 90.0), self.pair("2", 80.0), self.pair("3", 70.0, category="dog")]
        records[0]["targets"] += self.pair("1", 95.0, category="cow")["targets"]
        assert self.chosen(*records, each=3)[2] == ["1", "3", "2"]
        assert self.chosen(*records, each=2)[2] == ["1", "3"]
        assert self.chosen(*(self.pair(name, 50.0) for name in "cab"))[2] == ["c", "a"]  # equals keep their order
        assert self.chosen() == [[], [], []]

    def drawn(self, *instances):
        run = SimpleNamespace(show=shown(self.SIZE, "c-mwp", "mwp"), target=lambda *_: Target("cat", instances))
        found = {**self.found(self.PLACES[0], 0.0), "point": [350, 250]}
        return [panel.image for panel in self.CASES.panels(run, Example("1", self.SIZE, "cat", 0.1, (found,)))]

    SQUARE = ((100, 100, 200, 100, 200, 200, 100, 200),)

    @pytest.mark.parametrize(
        "instance",
        [Instance((100, 100, 200, 200)), Instance((0, 0, 400, 300), mask=Mask(json.dumps(SQUARE)))],
        ids=["box", "mask"],
    )
    def test_objects_are_outlined_by_light_between_dark(self, instance):
        if instance.mask is not None:
            pytest.importorskip("pycocotools")
        pictures = self.drawn(instance)
        for picture in pictures:
            row = np.asarray(picture)[150, 90:120]
            light, dark = (np.flatnonzero((row == colour).all(axis=1)) for colour in (LIGHT, DARK))
            assert light[0] == 10  # the object's own first pixel
            assert dark[0] < light[0] < light[-1] < dark[-1]
        assert pictures[0].getpixel((150, 150)) == GREY

    def test_edges_the_point_and_the_map(self):
        picture, panel = self.drawn(Instance((-5, 0, 400, 300)))
        corners = [picture.getpixel(corner) for corner in ((0, 0), (399, 0), (0, 299), (399, 299), (200, 0))]
        assert corners == [LIGHT] * 5
        assert panel.getpixel((350, 250)) == LIGHT
        assert panel.getpixel((40, 40)) != panel.getpixel((200, 150))


class TestLocalization:
    CASES = BoxCases()
    ROWS = tuple(
        SimpleNamespace(method=method, layer="1", key=(method, "1"), alpha=alpha)
        for method, alpha in (("mwp", 1.0), ("grad", 4.0), ("center", 0.0))
    )
    SIZE = (320, 240)  # as wide as it is shown
    TRUTH = (100, 100, 200, 200)

    def found(self, row, box, overlap):
        """A box at the threshold that was chosen; whatever is at the others must not count."""
        at = ALPHAS.index(row.alpha)
        boxes, overlaps = [[0, 0, 1, 1] for _ in ALPHAS], [0.99 if overlap < 0.5 else 0.0] * len(ALPHAS)
        boxes[at], overlaps[at] = box, overlap
        return {"method": row.method, "layer": "1", "boxes": boxes, "overlaps": {"paper": overlaps}}

    def pair(self, image, box, overlap, other=0.2, *, truth=TRUTH):
        boxes = [(box, overlap), ([0, 0, 320, 240], other), ([0, 0, 9, 9], 0.0)]
        maps = [self.found(row, *each) for row, each in zip(self.ROWS, boxes, strict=True)]
        target = {"category": "cat", "truth": [list(truth)], "maps": maps}
        return {"image": image, "size": list(self.SIZE), "targets": [target]}

    def chosen(self, *records, reported=None):
        names = {record["image"] for record in records} if reported is None else reported
        return chosen(self.CASES, records, self.ROWS, reported=names)

    def test_small_objects_that_all_fit_and_those_that_others_miss(self):
        """The centre does not look, so it need not fit; images that chose thresholds are no examples."""
        tiny, huge = (10, 10, 30, 30), (0, 0, 310, 230)
        records = [
            self.pair("huge", huge, 0.9, 0.9, truth=huge),
            self.pair("tiny", tiny, 0.6, 0.6, truth=tiny),
            self.pair("just", self.TRUTH, 0.5),
            self.pair("well", self.TRUTH, 0.9),
            self.pair("held out", self.TRUTH, 0.99),
        ]
        every, only, *others = self.chosen(*records, reported={"huge", "tiny", "just", "well"})
        assert (every, only, others) == (["tiny", "huge"], ["well", "just"], [[], [], []])

    def test_worst_cases_by_how_the_main_box_misses(self):
        records = [
            self.pair("part", [110, 110, 150, 150], 0.16),
            self.pair("speck", [110, 110, 120, 120], 0.01),
            self.pair("twice", [100, 100, 310, 200], 0.47),
            self.pair("all", [0, 0, 320, 240], 0.08),
            self.pair("beside", [250, 210, 300, 230], 0.0),
            self.pair("half beside", [160, 100, 260, 200], 0.25),
            self.pair("nothing", None, 0.0),
        ]
        assert self.chosen(*records) == [[], [], ["speck", "part"], ["all", "twice"], ["beside", "half beside"]]

    def drawn(self, box, truth=(TRUTH,), size=SIZE):
        run = SimpleNamespace(show=shown(size, "mwp"), about={"concepts": {}})
        found = {"method": "mwp", "layer": "1", "box": box, "overlap": 0.1, "manner": "too small"}
        example = BoxExample("1", size, "cat", 0.1, (found,), truth)
        return [panel.image for panel in self.CASES.panels(run, example)]

    def colours(self, picture, y, x0, x1):
        """How many pixels of a row are light, and how many dark."""
        row = np.asarray(picture)[y, x0:x1]
        return tuple(int((row == colour).all(axis=1).sum()) for colour in (LIGHT, DARK))

    @pytest.mark.parametrize("size", [SIZE, (32, 24), (1280, 960)])
    def test_the_truth_is_dashed_and_the_box_is_solid_on_any_size(self, size):
        scale = size[0] / self.SIZE[0]
        box, truth = (tuple(scale * side for side in one) for one in ((20.0, 20.0, 80.0, 80.0), self.TRUTH))
        photograph, panel = self.drawn(box, (truth,), size)
        assert photograph.size == self.SIZE
        light, dark = self.colours(panel, 100, 100, 200)  # along the true box
        assert min(light, dark) > 30
        assert light + dark == sum(self.colours(photograph, 100, 100, 200)) == 100
        assert self.colours(panel, 20, 20, 80) == (0, 60)  # along the found one: dark, then light
        assert self.colours(panel, 22, 30, 70) == (40, 0)
        assert self.colours(panel, 24, 30, 70) == (0, 40)
        assert photograph.getpixel((20, 20)) == GREY

    def test_no_box_is_no_frame(self):
        _, panel = self.drawn(None)
        assert self.colours(panel, 20, 0, 90) == (0, 0)

    @pytest.mark.parametrize("box", [(-5, -5, 500, 400), (0, 0, 1, 1), (319, 239, 320, 240), (10.2, 10.7, 10.9, 11.1)])
    def test_boxes_at_the_edges_and_of_a_pixel(self, box):
        """Nothing of them is beyond the image, and something of them is to be seen."""
        plain = Image.new("RGB", self.SIZE, GREY)
        for made in (framed(plain, box), dashed(plain, [box])):
            assert made.size == self.SIZE
            assert made.tobytes() != plain.tobytes()
