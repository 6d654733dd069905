"""Localisation on coloured squares: methods with known boxes, and a network with known maps."""

import math
import os
import pickle
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from annotated import COLOURS, SIDE, make_voc, scenes, voc_object
from PIL import Image

import excite
from excite.datasets import open_dataset
from excite.errors import ConceptError, DataError, LayerError, MethodError
from excite.experiments.localization.report import write_tables
from excite.experiments.localization.run import Localization, squared
from excite.experiments.localization.scores import RULES
from excite.methods import METHODS, Method
from excite.metrics.boxes import ALPHAS, box_iou
from excite.models.classifier import identity
from excite.readouts.box import threshold_box
from excite.vocabulary import Labels

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
        boxing = Localization(classifier, dataset, ["c-mwp", "mwp"], layers=[COARSE, FINE], held_out=0.25)
        records, rows = measured(boxing, tmp_path)
        reported = boxing.reported(records)
        for row in rows:
            fits = {True: [], False: []}
            for sample in dataset:
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

    def test_one_look_a_picture(self, classifier, dataset, tmp_path, looks):
        boxing = Localization(classifier, dataset, ["c-mwp", "mwp"], layers=[FINE, COARSE], limit=7)
        looks.clear()
        list(boxing.records(tmp_path))
        assert len(looks) == 7

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

    def test_what_it_is_about(self, classifier, dataset, tmp_path):
        boxing = Localization(classifier, dataset, ["mwp"], held_out=0.25, seed=3)
        about = boxing.run(list(boxing.records(tmp_path))).about
        assert (about["held_out_pictures"], about["reported"]) == (6, 18)
        assert (about["held_out"], about["seed"], about["shape"]) == (0.25, 3, "squashed to a square")
        assert about["layers"] == {"mwp": [FINE]}
        assert about["left_out"]["unreadable"] == {}


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

    def test_a_known_preparation(self, classifier):
        square = squared(classifier)
        assert square.prepared(Image.new("RGB", (90, 60))).shape == (3, 24, 24)
        assert replace(square.preprocess, square=False) == classifier.preprocess
        assert classifier.preprocess.square is False

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


class TestPlaces:
    def test_named_layers_are_rows(self, classifier, dataset, tmp_path):
        boxing = Localization(classifier, dataset, ["mwp", "center"], layers=[COARSE, FINE, COARSE], limit=2)
        _, rows = measured(boxing, tmp_path)
        assert [(row.method, row.layer) for row in rows][:2] == [("mwp", COARSE), ("mwp", FINE)]
        assert [row.method for row in rows] == ["mwp", "mwp", "center"]

    def test_a_method_that_cannot_be_read_is_told(self, classifier, dataset, monkeypatch):
        def maps(_passes, _units, _layers):
            raise LayerError("not on this network")

        monkeypatch.setitem(METHODS, "picky", Method("picky", "", maps))
        about = Localization(classifier, dataset, ["mwp", "picky"], limit=2).about()
        assert about["left_out"]["unreadable"] == {f"picky at {FINE}": "not on this network"}


class TestBroken:
    def test_named_and_the_rest_is_complete(self, classifier, dataset, tmp_path):
        whole, _ = measured(Localization(classifier, dataset, ["mwp"]), tmp_path / "whole")
        (dataset.folder / "JPEGImages/000001.jpg").write_text("no image")
        (dataset.folder / "JPEGImages/000002.jpg").unlink()
        (dataset.folder / "Annotations/000004.xml").write_text("<annotation><object></annotation>")
        size = "<size><width>20</width><height>30</height></size>"
        annotate(dataset.folder, "000005", size, voc_object("red", (0, 0, 9, 9)))
        boxing = Localization(classifier, dataset, ["mwp"])
        records, (row,) = measured(boxing, tmp_path / "broken")
        lost = {"000001", "000002", "000004", "000005"}
        assert records == [record for record in whole if record["image"] not in lost]
        assert [sum(name in failure for failure in boxing.failures) for name in sorted(lost)] == [1, 1, 1, 1]
        assert len(boxing.reported(records)) == 16
        told = sum(len(record["targets"]) for record in records if record["image"] in boxing.reported(records))
        assert row.error.total == told

    def test_all_unreadable(self, classifier, dataset, tmp_path):
        for path in (dataset.folder / "JPEGImages").iterdir():
            path.write_text("no image")
        with pytest.raises(DataError, match=r"none of the 24 images could be read; the first: .*000000"):
            measured(Localization(classifier, dataset, ["mwp"]), tmp_path)

    def test_a_single_picture(self, classifier, dataset, tmp_path):
        with pytest.raises(DataError, match="too few images"):
            measured(Localization(classifier, dataset, ["mwp"], limit=1), tmp_path)

    def test_refused_before_any_work(self, classifier, dataset):
        with pytest.raises(MethodError, match="no method 'mpw'"):
            Localization(classifier, dataset, ["mpw"])
        for share in (0, 1, -0.2, 1.5, math.nan):
            with pytest.raises(DataError, match="cannot be held out"):
                Localization(classifier, dataset, ["mwp"], held_out=share)
        with pytest.raises(ConceptError, match="no word for any category"):
            Localization(replace(classifier, labels=Labels(["cat", "dog"])), dataset, ["mwp"])


class TestResuming:
    def test_goes_on_where_it_was(self, classifier, dataset, tmp_path, looks):
        whole, rows = measured(Localization(classifier, dataset, ["c-mwp", "mwp"]), tmp_path / "whole")
        first = Localization(classifier, dataset, ["c-mwp", "mwp"]).records(tmp_path / "stopped")
        list(islice(first, 5))
        first.close()
        store = tmp_path / "stopped/records.jsonl"
        with store.open("r+") as file:
            file.truncate(store.stat().st_size - 40)  # killed while writing: the fifth line is cut off
        boxing = Localization(classifier, dataset, ["c-mwp", "mwp"])
        looks.clear()
        assert measured(boxing, tmp_path / "stopped") == (whole, rows)
        assert len(looks) == len(dataset) - 4

    def test_what_is_held_out_needs_no_second_look(self, classifier, dataset, tmp_path, looks):
        list(Localization(classifier, dataset, ["mwp"]).records(tmp_path))
        boxing = Localization(classifier, dataset, ["mwp"], held_out=0.5, seed=1)
        looks.clear()
        _, (row,) = measured(boxing, tmp_path)
        assert (row.error.total < 32, looks) == (True, [])

    @pytest.mark.parametrize("change", ["weights", "layers", "methods", "shape", "picture", "annotation"])
    def test_what_has_changed_is_done_again(self, classifier, dataset, tmp_path, change):
        keys = {record["key"] for record in Localization(classifier, dataset, ["mwp"], limit=2).records(tmp_path)}
        options = {"methods": ["mwp"]}
        if change == "weights":
            classifier.module[5].bias.data[0] += 1
        elif change == "layers":
            options["layers"] = [COARSE]
        elif change == "methods":
            options["methods"] = ["mwp", "c-mwp"]
        elif change == "shape":
            options["own_shape"] = True
        for name in ("000000", "000001"):
            if change == "picture":
                os.utime(dataset.folder / f"JPEGImages/{name}.jpg", (1, 1))
            elif change == "annotation":
                annotate(dataset.folder, name, voc_object("red", (0, 0, 9, 9)))
        again = {record["key"] for record in Localization(classifier, dataset, limit=2, **options).records(tmp_path)}
        assert not keys & again

    @pytest.mark.usefixtures("quick_workers")
    def test_several_workers_give_the_same_bytes(self, classifier, dataset, tmp_path):
        for workers in (1, 2):
            boxing = Localization(classifier, dataset, ["c-mwp", "mwp"], limit=6)
            run = boxing.run(list(boxing.records(tmp_path / f"{workers}", workers=workers)))
            write_tables([run], tmp_path / f"{workers}")
        for name in ("records.jsonl", "rows.json", "rows.csv", "curves.csv", "table.md"):
            assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_photographs(shared_data, tmp_path):
    """Two of ImageNet, boxed again with the public functions on the squashed images."""
    dataset = open_dataset(shared_data / "imagenet")
    classifier = excite.load("efficientnet-lite0")
    boxing = Localization(classifier, dataset, ["mwp"], layers=["blocks.14"], limit=2)
    for record, task in zip(boxing.records(tmp_path), boxing.tasks, strict=True):
        (target,) = record["targets"]
        (found,) = target["maps"]
        (one,) = excite.attend(squared(classifier), task.sample.path, task.queries[0].concept, method="mwp")
        assert one.values.shape == (7, 7)
        width, height = one.image_size
        assert record["size"] == [width, height]
        for alpha, box, value in zip(ALPHAS, found["boxes"], found["overlaps"]["paper"], strict=True):
            made = threshold_box(one.values, (CANVAS, CANVAS), alpha)
            if made is None:
                assert (box, value) == (None, 0.0)
                continue
            scaled = [side * full / CANVAS for side, full in zip(made, (width, height) * 2, strict=True)]
            assert box == pytest.approx(scaled, abs=0.006)
            assert value == pytest.approx(box_iou([scaled], target["truth"]).max(), abs=1.1e-4)


def test_scenes_with_both_colours(classifier, tmp_path):
    """Every category of an image is a pair, and is asked for on its own."""
    dataset = open_dataset(make_voc(tmp_path / "voc", scenes(9)))
    records = list(Localization(classifier, dataset, ["c-mwp"]).records(tmp_path))
    assert [len(record["targets"]) for record in records] == [2, 1, 1] * 3
