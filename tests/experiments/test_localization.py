"""Localisation on coloured squares: methods with known boxes, and a network with known maps."""

import math
import pickle
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from annotated import COLOURS, SIDE, scenes, voc_object
from PIL import Image

import excite
from excite.errors import DataError
from excite.experiments.localization.run import Localization, squared
from excite.experiments.localization.scores import RULES
from excite.methods import METHODS, Method
from excite.metrics.boxes import ALPHAS, box_iou
from excite.models.classifier import identity
from excite.readouts.box import threshold_box

FINE, COARSE = "1", "2"
CANVAS = 224


@pytest.fixture
def boxer(monkeypatch):
    """Makes a method whose map is 1 in known boxes of the canvas and 0 elsewhere, whatever it is asked."""

    def make(name, *boxes):
        values = torch.zeros(1, CANVAS, CANVAS)
        for x0, y0, x1, y1 in boxes:
            values[0, y0:y1, x0:x1] = 1.0

        def maps(_passes, units, layers):
            return dict.fromkeys(layers, values.expand(len(units), -1, -1, -1))

        monkeypatch.setitem(METHODS, name, Method(name, "boxes what it was told", maps))
        return name

    return make


def as_tensor(picture):
    """A preparation of one's own; a function of a module, so that it can go to another process."""
    return torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1) / 255


def annotate(folder, name, *objects):
    (folder / f"Annotations/{name}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")


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
        for target in record["targets"]:
            assert [(found["method"], found["layer"]) for found in target["maps"]] == [(name, FINE) for name in names]
            for found in target["maps"]:
                assert {name: len(found["overlaps"][name]) for name in RULES} == {
                    name: len(rule.thresholds) for name, rule in RULES.items()
                }
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

    def test_figures_are_those_of_attend(self, classifier, dataset, tmp_path):
        """Boxed again image by image, with the public functions; some objects are larger than what is coloured."""
        for k, (name, ((colour, (x0, y0, x1, y1)), *_)) in enumerate(scenes(24)):
            annotate(dataset.folder, name, voc_object(colour, (x0, y0, x1 + k % 7, y1 + k % 7)))
        boxing = Localization(classifier, dataset, ["mwp"], layers=[COARSE, FINE], held_out=0.4, limit=7)
        records, rows = measured(boxing, tmp_path)
        reported = boxing.reported(records)
        for row in rows:
            fits = {True: [], False: []}
            for sample in islice(dataset, 7):
                for target in sample.targets:
                    asked = {"layer": row.layer, "method": row.method}
                    (one,) = excite.attend(squared(classifier), sample.path, target.concept, **asked)
                    boxes = [threshold_box(one.values, (CANVAS, CANVAS), alpha) for alpha in ALPHAS]
                    scaled = [box and tuple(side * SIDE / CANVAS for side in box) for box in boxes]
                    best = [box_iou([box], target.boxes).max() if box else 0.0 for box in scaled]
                    fits[sample.name in reported].append([value >= 0.5 for value in best])
            errors = [sum(not each[k] for each in fits[False]) for k in range(21)]
            chosen = errors.index(min(errors))
            assert row.alpha == ALPHAS[chosen]
            assert (row.error.count, row.error.total) == (sum(not each[chosen] for each in fits[True]), len(fits[True]))
            curve = [100 * sum(not each[k] for each in fits[True]) / len(fits[True]) for k in range(21)]
            assert row.rules["paper"].curve == pytest.approx(curve)
        assert len({row.error.count for row in rows}) > 1
        assert any(0 < row.error.count < row.error.total for row in rows)

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

    def test_maps_can_be_shown_again(self, classifier, dataset, tmp_path):
        boxing = Localization(classifier, dataset, ["c-mwp", "mwp"], layers=[FINE, COARSE], limit=2)
        records = list(boxing.records(tmp_path))
        run = boxing.run(records)
        target = records[0]["targets"][1]
        shown = run.show("000000", "red")
        assert [(one.method, one.layer) for one in shown] == [(one["method"], one["layer"]) for one in target["maps"]]
        for one, found in zip(shown, target["maps"], strict=True):
            assert one.image.size == (SIDE, SIDE)
            box = threshold_box(one.values, (CANVAS, CANVAS), ALPHAS[1])
            assert found["boxes"][1] == pytest.approx([side * SIDE / CANVAS for side in box], abs=0.01)
        assert run.target("000000", "red").boxes == ((36, 36, 44, 44),)
        assert len(run.reported) == 1
        assert run.reported < {"000000", "000001"}


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


class TestBroken:
    def test_a_single_picture(self, classifier, dataset, tmp_path):
        with pytest.raises(DataError, match="too few images"):
            measured(Localization(classifier, dataset, ["mwp"], limit=1), tmp_path)
