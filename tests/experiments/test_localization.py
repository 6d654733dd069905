"""Localisation on coloured squares; boxes by every rule, counts and held-out images against slow ones and skimage."""

import hashlib
import math
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from annotated import COLOURS, SIDE, annotate, voc_object
from PIL import Image
from skimage.measure import label, regionprops

from excite.errors import DataError
from excite.experiments.base import held_out
from excite.experiments.localization.run import RULES, Localization, boxes_of, difference, overlaps_of, squared, tally
from excite.metrics.boxes import box_iou
from excite.metrics.statistics import Share, interval, paired_test, resampled_means
from excite.models.classifier import identity
from excite.readouts.overlay import upsample

FINE, COARSE = "1", "2"
CANVAS = 224


@pytest.fixture
def boxer(planted):
    """Makes a method whose map is 1 in known boxes of the canvas and 0 elsewhere, whatever it is asked."""

    def make(name, *boxes):
        values = torch.zeros(1, CANVAS, CANVAS)
        for x0, y0, x1, y1 in boxes:
            values[0, y0:y1, x0:x1] = 1.0
        return planted(name, values)

    return make


def as_tensor(picture):
    """A preparation of one's own; a function of a module, so that it can go to another process."""
    return torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1) / 255


def wide(folder, name, box, size=(2 * SIDE, SIDE)):
    """An image twice as wide as high, with a red box."""
    drawn = Image.new("RGB", size)
    drawn.paste(COLOURS["red"], box)
    drawn.save(folder / f"JPEGImages/{name}.jpg", format="PNG")
    annotate(folder, name, voc_object("red", box))


def measured(boxing, out, **options):
    records = list(boxing.records(out, **options))
    return records, boxing.rows(records)


class TestMeasuring:
    def test_records_are_facts(self, classifier, dataset, tmp_path, boxer):
        names = [boxer("half", (0, 0, 112, 224)), boxer("two", (0, 0, 56, 56), (168, 168, 224, 224)), boxer("none")]
        annotate(dataset.folder, "000000", voc_object("red", (0, 0, 24, 48)), voc_object("green", (36, 36, 48, 48)))
        (record,) = Localization(classifier, dataset, names, limit=1).records(tmp_path)
        assert len(record.pop("key")) == 16
        assert (record["image"], record["size"]) == ("000000", [SIDE, SIDE])
        green, red = record["targets"]
        assert (green["category"], green["truth"]) == ("green", [[36, 36, 48, 48]])
        assert (red["category"], red["truth"]) == ("red", [[0, 0, 24, 48]])
        assert [(found["method"], found["layer"]) for found in red["maps"]] == [(name, FINE) for name in names]
        half, two, none = red["maps"]
        assert half["boxes"] == [[0, 0, 24, 48]] * 4 + [None] * 17  # from twice its mean on, nothing is above
        assert half["overlaps"]["paper"] == [1.0] * 4 + [0.0] * 17
        assert half["overlaps"]["any"] == [1.0] * 50
        assert two["boxes"][0] == [0, 0, 48, 48]
        assert two["overlaps"]["paper"][0] == 0.5
        quarter = math.floor(1e4 * 12 * 12 / (24 * 48)) / 1e4
        assert two["overlaps"]["largest"][0] == two["overlaps"]["any"][0] == quarter
        assert green["maps"][1]["overlaps"]["largest"][0] == 0.0  # of equals, the upper one
        assert green["maps"][1]["overlaps"]["any"] == [1.0] * 50
        assert none["boxes"] == [None] * 21
        assert not any(value for values in none["overlaps"].values() for value in values)

    def test_several_objects_of_a_category(self, classifier, dataset, tmp_path, boxer):
        """The best of the true boxes counts; a category whose objects are all flagged is not asked for."""
        name = boxer("corner", (168, 168, 224, 224))
        annotate(
            dataset.folder,
            "000000",
            voc_object("red", (0, 0, 8, 8)),
            voc_object("red", (36, 36, 48, 48)),
            voc_object("green", (36, 36, 48, 48), 1),
        )
        boxing = Localization(classifier, dataset, [name], limit=1)
        (record,) = boxing.records(tmp_path)
        (red,) = record["targets"]
        assert red["truth"] == [[0, 0, 8, 8], [36, 36, 48, 48]]
        assert red["maps"][0]["overlaps"]["paper"][0] == 1.0
        assert boxing.difficult == 1


class TestShape:
    def test_boxes_are_in_the_pictures_pixels(self, classifier, dataset, tmp_path, boxer):
        wide(dataset.folder, "000000", (48, 0, 96, 24))
        (record,) = Localization(classifier, dataset, [boxer("part", (112, 0, 224, 112))], limit=1).records(tmp_path)
        (found,) = record["targets"][0]["maps"]
        assert record["size"] == [96, 48]
        assert found["boxes"][0] == [48, 0, 96, 24]
        assert found["overlaps"]["paper"][0] == 1.0

    def test_squashed_or_not(self, classifier, dataset, tmp_path):
        """Both find the red box; only the input that the network saw is of another shape."""
        wide(dataset.folder, "000000", (64, 8, 92, 40))
        records, shapes = [], []
        for own_shape in (False, True):
            boxing = Localization(classifier, dataset, ["mwp"], limit=1, own_shape=own_shape)
            records += boxing.records(tmp_path)
            shapes.append(boxing.show("000000", "red")[0].values.shape)
        assert shapes == [(24, 24), (24, 48)]
        assert records[0]["key"] != records[1]["key"]
        for record in records:
            assert max(record["targets"][0]["maps"][0]["overlaps"]["paper"]) > 0.8

    def test_a_preparation_of_ones_own(self, classifier):
        """It gets a square of the shorter side; what is kept by it is the same in another process, and can go there."""
        own = replace(classifier, preprocess=as_tensor)
        picture = Image.linear_gradient("L").convert("RGB").resize((90, 60))
        square = squared(own)
        assert torch.equal(square.prepared(picture), as_tensor(picture.resize((60, 60), Image.Resampling.BICUBIC)))
        assert identity(square)[1] == "squashed as_tensor"
        assert identity(square) != identity(own)
        sent = pickle.loads(pickle.dumps(square))  # noqa: S301 - our own
        assert identity(sent) == identity(square)


def boxes_by_skimage(rule, values, threshold):
    low, high, mean = values.min(), values.max(), values.mean()
    level = {"mean": max(threshold * mean, 0), "max": threshold * high, "range": low + threshold * (high - low)}
    above = (values > level[rule.of]).astype(int)
    found = regionprops(above if rule.region == "all" else label(above, connectivity=2))
    found.sort(key=lambda region: (-region.area, region.bbox[:2]))
    boxes = [(x0, y0, x1, y1) for y0, x0, y1, x1 in (region.bbox for region in found)]
    return boxes[:1] if rule.region == "largest" else boxes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RULES)
def test_against_skimage(name, seed):
    torch.manual_seed(seed)
    stretched = upsample(torch.rand(5, 7) ** 4, (36, 28))
    rule, values = RULES[name], stretched.double().numpy()
    found = boxes_of(stretched)[name]
    expected = [boxes_by_skimage(rule, values, threshold) for threshold in rule.thresholds]
    assert [sorted(map(tuple, boxes.tolist())) for boxes in found] == [sorted(boxes) for boxes in expected]
    assert [tuple(boxes[0]) for boxes in found if len(boxes)] == [boxes[0] for boxes in expected if boxes]
    assert len({tuple(boxes) for boxes in expected}) > 5

    truth = [(3, 4, 20, 18), (25, 2, 33, 27)]
    best = [box_iou(boxes, truth).max() if boxes else 0.0 for boxes in expected]
    overlaps = overlaps_of(found, np.array(truth, dtype=float))
    assert overlaps == pytest.approx(best, abs=1e-4)
    assert all(short <= exact for short, exact in zip(overlaps, best, strict=True))
    assert 0.1 < max(overlaps) < 1


def test_empty_and_even_maps():
    """An even one is all above zero, and nowhere above its own mean, or anywhere from its minimum to its maximum."""
    found = boxes_of(torch.zeros(9, 9))
    assert {len(boxes) for by_rule in found.values() for boxes in by_rule} == {0}
    assert overlaps_of(found["any"], np.array([[0, 0, 9, 9.0]])) == [0.0] * 50
    found = boxes_of(torch.ones(9, 9))
    assert [len(boxes) for boxes in found["paper"][:3]] == [1, 1, 0]
    assert ({len(boxes) for boxes in found["max"]}, {len(boxes) for boxes in found["any"]}) == ({1}, {0})


def test_a_half_is_a_half():
    """Whatever the image's scale: a box twice as large as the truth overlaps by a half, not by a bit less."""
    for width in range(3, 500):
        box = np.array([[0, 0, 224, 224.0]]) * (width / 224)
        assert overlaps_of([box], np.array([[0, 0, width / 2, width]])) == [0.5]


PLACES = [("mwp", "a"), ("mwp", "b"), ("grad", "input")]
VALUES = [0.0, 0.2999, 0.3, 0.4999, 0.5, 0.6, 0.7, 1.0]


def found(place, values=None, luck=None, *, empty=False):
    overlaps = {
        rule.name: [0.0 if empty else values if luck is None else luck.choice(VALUES) for _ in rule.thresholds]
        for rule in RULES.values()
    }
    boxes = [None if empty else [0, 0, 9, 9] for _ in RULES["paper"].thresholds]
    return {"method": place[0], "layer": place[1], "boxes": boxes, "overlaps": overlaps}


def a_record(name, *targets):
    listed = [{"category": f"c{k}", "truth": [[0, 0, 9, 9]], "maps": maps} for k, maps in enumerate(targets)]
    return {"key": name, "image": name, "size": [9, 9], "targets": listed}


def a_game(pictures, seed=0):
    """Random records, each image with one to three pairs."""
    luck = random.Random(seed)
    for k in range(pictures):
        pairs = range(luck.randint(1, 3))
        yield a_record(
            f"p{k}", *([found(place, luck=luck, empty=luck.random() < 0.1) for place in PLACES] for _ in pairs)
        )


def maps(records, place, names):
    targets = [target for each in records if each["image"] in names for target in each["targets"]]
    return [one for target in targets for one in target["maps"] if (one["method"], one["layer"]) == place]


def misses(some, rule, at, enough=0.5):
    return [one["overlaps"][rule][at] < enough for one in some]


def chosen(some, rule):
    """The first of the thresholds with the fewest misses."""
    counts = [sum(misses(some, rule, at)) for at in range(len(RULES[rule].thresholds))]
    return counts.index(min(counts))


class TestTally:
    @pytest.mark.parametrize("seed", range(3))
    def test_against_a_count_by_hand(self, seed):
        records = list(a_game(60, seed))
        names = {each["image"] for each in records}
        reported = frozenset(name for name in names if int(name[1:]) % 3)
        rows = tally(records, "net", reported)
        assert [(row.model, row.method, row.layer) for row in rows] == [("net", *place) for place in PLACES]
        for row, place in zip(rows, PLACES, strict=True):
            held, told = maps(records, place, names - reported), maps(records, place, reported)
            for name, result in row.rules.items():
                at = chosen(held, name)
                assert result.threshold == RULES[name].thresholds[at]
                assert result.error == Share(sum(misses(told, name, at)), len(told))
                curve = [100 * sum(misses(told, name, k)) / len(told) for k in range(len(RULES[name].thresholds))]
                assert result.curve == pytest.approx(curve)
                assert result.curve[at] == pytest.approx(100 * result.error.value)
            best = max(100 - 100 * sum(misses(told, "max-largest", k)) / len(told) for k in range(50))
            assert row.max_box_acc == pytest.approx(best)
            for enough in (0.3, 0.5, 0.7):
                best = max(100 - 100 * sum(misses(told, "any", k, enough)) / len(told) for k in range(50))
                assert row.max_box_acc_v2[enough] == pytest.approx(best)
            assert row.v2_mean == pytest.approx(sum(row.max_box_acc_v2.values()) / 3)
            assert row.empty == sum(one["boxes"][0] is None for one in told) > 0
            assert (row.alpha, row.error) == (row.rules["paper"].threshold, row.rules["paper"].error)
        assert list(rows[0].rules) == ["paper", "largest", "max", "max-largest", "any"]

    def test_nothing_is_chosen_on_what_is_reported(self):
        """There the best threshold is another one; it shows in the curve only, and in what others call MaxBoxAcc."""
        place = PLACES[0]
        first, last = found(place, 0.0), found(place, 0.0)
        for rule in ("paper", "max-largest"):
            first["overlaps"][rule][3] = last["overlaps"][rule][7] = 0.9
        (row,) = tally([a_record("a", [first]), a_record("b", [last])], "net", {"b"})
        assert (row.alpha, row.error) == (1.5, Share(1, 1))
        assert row.rules["paper"].curve[7] == 0.0
        assert row.max_box_acc == 100.0

    def test_refused(self):
        one = a_record("a", [found(PLACES[0], 0.5)])
        with pytest.raises(DataError, match="different methods or layers"):
            tally([one, a_record("b", [found(PLACES[1], 0.5)])], "net", {"b"})
        for reported in (set(), {"a"}):
            with pytest.raises(DataError, match="none on one of the sides"):
                tally([one], "net", reported)


def test_difference_of_two_methods():
    """The interval is that of a bootstrap over images."""
    records = list(a_game(300))
    held, reported = ({f"p{k}" for k in side} for side in (range(50), range(50, 300)))
    rows = {(row.method, row.layer): row for row in tally(records, "net", reported)}
    gap = difference(records, reported, PLACES[0], PLACES[2])
    assert gap.value == pytest.approx(100 * (rows[PLACES[0]].error.value - rows[PLACES[2]].error.value))
    back = difference(records, reported, PLACES[2], PLACES[0])
    assert (back.low, back.high, back.p) == pytest.approx((-gap.high, -gap.low, gap.p))
    missed = [
        misses(maps(records, place, reported), "paper", chosen(maps(records, place, held), "paper"))
        for place in (PLACES[0], PLACES[2])
    ]
    assert gap.p == paired_test(*missed)
    pairs = [len(each["targets"]) for each in records if each["image"] in reported]
    owners = np.repeat(np.arange(len(pairs)), pairs)
    counts = [np.bincount(owners, weights=each).astype(int)[:, None] for each in missed]
    one, other = resampled_means(np.array(pairs)[:, None], counts)
    assert (gap.low, gap.high) == pytest.approx(interval(100 * (one - other)), abs=1.2)


class TestHeldOut:
    def test_by_hand(self):
        names = [f"ILSVRC2012_val_{k:08}" for k in range(1, 1001)]
        ordered = sorted(names, key=lambda name: hashlib.sha256(f"7 {name}".encode()).digest())
        held = held_out(names, 0.2, seed=7)
        assert held == set(ordered[:200])
        assert held == held_out(reversed(names), 0.2, seed=7)
        assert held != held_out(names, 0.2, seed=8)
        assert len(held_out(["a", "b\udcff", "c\ud800"], 0.5)) == 2  # names that are no text

    @pytest.mark.parametrize("share", [0, 1, -1, 2, math.nan, math.inf])
    def test_no_such_share(self, share):
        with pytest.raises(DataError, match="give one between 0 and 1"):
            held_out(["a", "b"], share)

    def test_too_few(self, classifier, dataset, tmp_path):
        with pytest.raises(DataError, match="at least 2"):
            measured(Localization(classifier, dataset, ["mwp"], limit=1), tmp_path)
