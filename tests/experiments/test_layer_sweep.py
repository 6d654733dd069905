"""The layer sweep on coloured squares, with a network whose better layer is known."""

import json
import os
from dataclasses import replace
from itertools import islice

import pytest
import torch
from annotated import make_imagenet, make_voc, scenes, voc_object
from torch import nn

import excite
from excite.datasets import open_dataset
from excite.errors import ConceptError, DataError, LayerError, MethodError, ModelError, SignalError
from excite.experiments.layer_sweep import LayerSweep, _half, checked_measure, layer_figure, report
from excite.metrics.boxes import ALPHAS, box_distance
from excite.vocabulary import Labels

FINE, COARSE = "1", "2"


def measured(sweep, out, **options):
    return sweep.report(list(sweep.records(out)), **options)


class TestMeasuring:
    def test_the_better_layer_is_recommended(self, classifier, dataset, tmp_path):
        found = measured(LayerSweep(classifier, dataset), tmp_path, tolerance=0)
        assert found.recommended.layer == FINE
        assert {(row.method, row.layer): row.standing for row in found.rows if row.layer == COARSE} == {
            ("mwp", COARSE): "worse",
            ("c-mwp", COARSE): "worse",
        }
        assert {row.layer: row.size for row in found.rows} == {FINE: (24, 24), COARSE: (2, 2)}

    def test_figures_are_those_of_attend(self, classifier, dataset, tmp_path):
        """Counted again image by image, with the public function, on the half that nothing was chosen on."""
        found = measured(LayerSweep(classifier, dataset), tmp_path, tolerance=3)
        for row in found.rows:
            hits, masses = [], []
            for sample in dataset:
                for target in sample.targets if _half(sample.name, 0) else ():
                    (one,) = excite.attend(classifier, sample.path, target.concept, layer=row.layer, method=row.method)
                    point = one.point()
                    hits.append(point is not None and min(box_distance(point, box) for box in target.boxes) <= 3)
                    masses.append(one.mass)
            assert (row.pointing.count, row.pointing.total) == (sum(hits), len(hits))
            assert row.mass == pytest.approx(sum(masses) / len(masses))

    def test_one_look_a_picture(self, classifier, dataset, tmp_path, looks):
        """Whatever the number of layers, methods and targets; one more to try the layers."""
        sweep = LayerSweep(classifier, dataset, limit=7)
        list(sweep.records(tmp_path))
        assert sum(len(task.queries) for task in sweep.tasks) > 7
        assert len(looks) == 7 + 1

    def test_boxes_where_there_is_one_main_object(self, classifier, tmp_path):
        dataset = open_dataset(make_imagenet(tmp_path / "imagenet", scenes(24), ["red", "green"]))
        found = measured(LayerSweep(classifier, dataset, methods=["mwp"]), tmp_path, by="box")
        fine, coarse = found.rows
        assert found.recommended is fine
        assert fine.box_error.count < coarse.box_error.count
        assert fine.alpha in ALPHAS
        assert found.tolerance == 0

    def test_a_map_of_nothing_points_nowhere(self, classifier, tmp_path):
        with torch.no_grad():
            classifier.module[5].weight.copy_(-torch.eye(2))
            classifier.module[5].bias.fill_(9)  # excited by its bias alone
        dataset = open_dataset(make_imagenet(tmp_path / "imagenet", scenes(12), ["red", "green"]))
        found = measured(LayerSweep(classifier, dataset, layers=[FINE], methods=["mwp"]), tmp_path)
        assert found.recommended.pointing.count == found.recommended.mass == 0
        assert found.recommended.box_error.value == 1

    def test_some_of_the_pictures(self, classifier, dataset, tmp_path):
        sweep = LayerSweep(classifier, dataset, skip=3, limit=2)
        assert [record["image"] for record in sweep.records(tmp_path)] == ["000003", "000004"]

    def test_the_embedded_classifier_on_photographs(self, shared_data, tmp_path):
        dataset = open_dataset(shared_data / "imagenet")
        sweep = LayerSweep(excite.load("efficientnet-lite0"), dataset, layers=["blocks.10", "blocks.14"], limit=6)
        found = measured(sweep, tmp_path)
        assert sum(row.pointing.count for row in found.rows) > sum(row.pointing.total for row in found.rows) / 2


class TestLeftOut:
    def test_counted(self, classifier, tmp_path):
        folder = make_voc(tmp_path / "voc", [*scenes(12), ("blue", [("blue", (0, 0, 9, 9)), ("red", (9, 9, 20, 20))])])
        hard = voc_object("red", (0, 0, 8, 8), 1) + voc_object("green", (0, 0, 8, 8), 1)
        easier = hard + voc_object("green", (8, 8, 12, 12))
        (folder / "Annotations/000002.xml").write_text(f"<annotation>{hard}</annotation>")
        (folder / "Annotations/000003.xml").write_text(f"<annotation>{easier}</annotation>")
        sweep = LayerSweep(classifier, open_dataset(folder))
        assert sweep.unknown == {"blue": 1}
        assert (sweep.difficult, sweep.empty) == (3, 1)
        names = {task.name: task for task in sweep.tasks}
        assert "000002" not in names
        assert names["000003"].queries[0].target.boxes == (
            (0, 0, 8, 8),
            (8, 8, 12, 12),
        )  # difficult ones are truth, too
        assert sweep.about()["left_out"] == {"unknown": {"blue": 1}, "difficult": 3, "empty": 1}
        assert sweep.about()["concepts"] == {"red": "red", "green": "green"}

    def test_unreadable_pictures_and_annotations(self, classifier, dataset, tmp_path):
        (dataset.folder / "JPEGImages/000001.jpg").write_text("no image")
        (dataset.folder / "JPEGImages/000002.jpg").unlink()
        (dataset.folder / "Annotations/000004.xml").write_text("<a><object></a>")
        sweep = LayerSweep(classifier, dataset)
        records = list(sweep.records(tmp_path))
        assert [record["image"] for record in records] == [
            name for name in dataset.names if name not in {"000001", "000002", "000004"}
        ]
        broken, first, second = sweep.failures
        assert "000004.xml" in broken
        assert "000001.jpg" in first
        assert "000002.jpg" in second

    def test_all_unreadable(self, classifier, dataset, tmp_path):
        for path in (dataset.folder / "JPEGImages").iterdir():
            path.write_text("no image")
        sweep = LayerSweep(classifier, dataset)
        with pytest.raises(DataError, match=r"none of the 24 images could be read; the first: .*000000"):
            measured(sweep, tmp_path)


class TestRefused:
    def test_no_category_is_known(self, classifier, dataset):
        strange = replace(classifier, labels=Labels(["cat", "dog"]), name="pets")
        with pytest.raises(ConceptError, match="pets has no word for any category of these images: green, red"):
            LayerSweep(strange, dataset)

    def test_no_labels(self, classifier, dataset):
        with pytest.raises(ModelError, match="colours has no labels"):
            LayerSweep(replace(classifier, labels=None), dataset)

    @pytest.mark.parametrize(
        ("options", "kind", "words"),
        [
            ({"layers": ["9"]}, LayerError, "no layer '9'"),
            ({"layers": ["4"]}, LayerError, "'4' has no places"),
            ({"layers": ["5"], "methods": ["c-mwp"]}, LayerError, "'5' has no places"),
            ({"methods": ["mpw"]}, MethodError, "no method 'mpw'"),
            ({"skip": -1}, DataError, "leave no images"),
            ({"limit": 0}, DataError, "leave no images"),
            ({"skip": 24}, ConceptError, "none of these 0 images"),
        ],
    )
    def test_before_any_work(self, classifier, dataset, options, kind, words):
        with pytest.raises(kind, match=words):
            LayerSweep(classifier, dataset, **options)

    def test_contrast_above_the_weights(self, dataset):
        conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        classifier = excite.wrap(conv, labels=["red", "green"])
        with pytest.raises(SignalError, match="above the classifier's weights"):
            LayerSweep(classifier, dataset, layers=["2"])

    def test_boxes_of_many_objects(self, dataset):
        with pytest.raises(DataError, match="one main object"):
            checked_measure("box", dataset)
        with pytest.raises(DataError, match="by 'iou'"):
            checked_measure("iou", dataset)


class TestResuming:
    def test_goes_on_where_it_was(self, classifier, dataset, tmp_path, looks):
        whole = list(LayerSweep(classifier, dataset).records(tmp_path / "whole"))
        first = LayerSweep(classifier, dataset).records(tmp_path / "stopped")
        list(islice(first, 5))
        first.close()
        store = tmp_path / "stopped/records.jsonl"
        with store.open("r+") as file:
            file.truncate(store.stat().st_size - 40)  # killed while writing: the fifth line is cut off
        looks.clear()
        again = list(LayerSweep(classifier, dataset).records(tmp_path / "stopped"))
        assert again == whole
        assert len(looks) == 1 + len(dataset) - 4
        assert (tmp_path / "whole/records.jsonl").read_text() == store.read_text()

    def test_other_questions_of_the_same_records(self, classifier, dataset, tmp_path, looks):
        """Tolerance and seed need no second look."""
        records = list(LayerSweep(classifier, dataset).records(tmp_path))
        looks.clear()
        sweep = LayerSweep(classifier, dataset)
        assert list(sweep.records(tmp_path)) == records
        assert len(looks) == 1
        strict, lax = (sweep.report(records, tolerance=tolerance) for tolerance in (0, 48))
        assert sum(row.pointing.count for row in strict.rows) < sum(row.pointing.count for row in lax.rows)

    @pytest.mark.parametrize(
        "change", ["weights", "architecture", "layers", "methods", "picture", "annotation", "preprocess"]
    )
    def test_what_has_changed_is_done_again(self, classifier, dataset, tmp_path, change):
        keys = {record["key"] for record in LayerSweep(classifier, dataset, limit=2).records(tmp_path)}
        options = {}
        if change == "weights":
            classifier.module[5].bias.data[0] += 1
        elif change == "architecture":
            classifier.module[1] = nn.ReLU6()
        elif change == "layers":
            options["layers"] = [FINE]
        elif change == "methods":
            options["methods"] = ["mwp"]
        elif change == "preprocess":
            classifier = replace(classifier, preprocess=replace(classifier.preprocess, shorter_side=36))
        for name in ("000000", "000001"):
            if change == "picture":
                os.utime(dataset.folder / f"JPEGImages/{name}.jpg", (1, 1))
            elif change == "annotation":
                content = f"<annotation>{voc_object('red', (0, 0, 9, 9))}</annotation>"
                (dataset.folder / f"Annotations/{name}.xml").write_text(content)
        again = {record["key"] for record in LayerSweep(classifier, dataset, limit=2, **options).records(tmp_path)}
        assert not keys & again

    @pytest.mark.usefixtures("quick_workers")
    def test_several_workers_give_the_same(self, classifier, dataset, tmp_path):
        one = LayerSweep(classifier, dataset, limit=6)
        two = LayerSweep(classifier, dataset, limit=6)
        assert list(one.records(tmp_path / "one")) == list(two.records(tmp_path / "two", workers=2))
        assert (tmp_path / "one/records.jsonl").read_text() == (tmp_path / "two/records.jsonl").read_text()


def entries(count, half, **distances):
    """Records of that many images of a half; for each layer the distances, repeated."""
    names = (f"{k}" for k in range(10**6))
    for k, name in enumerate(islice((name for name in names if _half(name, 0) == half), count)):
        maps = [
            {"method": "mwp", "layer": layer, "mass": 0.5, "distance": values[k % len(values)]}
            for layer, values in distances.items()
        ]
        yield {"image": name, "targets": [{"concept": "cat", "maps": maps}]}


SIZES = {"low": (8, 8), "high": (4, 4)}


class TestReport:
    def test_chosen_on_one_half_and_measured_on_the_other(self):
        """The choice turns out badly: that is told, not hidden."""
        records = [*entries(10, 0, low=[0], high=[9]), *entries(20, 1, low=[9], high=[0, 0, 0, 9])]
        found = report(records, SIZES, tolerance=1)
        low, high = found.rows
        assert found.recommended is low
        assert (low.pointing.count, low.pointing.total, found.chosen_on) == (0, 20, 10)
        assert (high.pointing.count, high.pointing.total, high.standing) == (15, 20, "better")
        assert "mwp at high did better than what was chosen" in " ".join(found.sentences())

    def test_layers_that_cannot_be_told_apart(self):
        records = [*entries(10, 0, low=[0], high=[0, 9]), *entries(20, 1, low=[0, 0, 0, 9], high=[0, 9])]
        found = report(records, SIZES, tolerance=1)
        assert [row.standing for row in found.rows] == ["recommended", "tied"]  # 5 of 20 differ: p = 0.0625
        assert "these images cannot tell it from: mwp at high (paired test, 5 %)" in found.sentences()

    def test_a_clear_choice(self):
        records = [*entries(10, 0, low=[0], high=[0, 9]), *entries(40, 1, low=[0], high=[0, 9])]
        found = report(records, SIZES, tolerance=1)
        assert [row.standing for row in found.rows] == ["recommended", "worse"]
        assert found.sentences()[0].startswith("recommended: low with mwp, best on 10 targets; on 40 others, 100.0 %")

    def test_of_equals_the_shortest_way_down(self):
        records = [*entries(4, 0, low=[0], high=[0]), *entries(4, 1, low=[0], high=[0])]
        assert report(records, SIZES, tolerance=1).recommended.layer == "high"

    def test_the_tolerance_is_included(self):
        records = [*entries(2, 0, low=[15.0]), *entries(4, 1, low=[15.0, 15.01, None, 0.0])]
        assert report(records, SIZES, tolerance=15).rows[0].pointing.count == 2

    def test_alpha_is_chosen_on_the_other_half(self):
        def with_overlaps(records, good):
            for record in records:
                for found in record["targets"][0]["maps"]:
                    found["overlaps"] = [0.6 if k == good else 0.5 if k == 9 else 0.4 for k in range(len(ALPHAS))]
                yield record

        first = with_overlaps(entries(4, 0, low=[0]), good=3)  # alpha 1.5 comes before 4.5, both fit
        second = with_overlaps(entries(4, 1, low=[0]), good=7)
        (row,) = report([*first, *second], SIZES, tolerance=0, by="box").rows
        assert row.alpha == 1.5
        assert row.box_error.value == 1.0  # on the half where 1.5 does not fit

    def test_another_seed_shares_out_differently(self):
        names = [f"{k}" for k in range(200)]
        halves = [[_half(name, seed) for name in names] for seed in (0, 0, 1)]
        assert halves[0] == halves[1] != halves[2]
        assert all(80 < sum(half) < 120 for half in halves)

    def test_too_few(self):
        for records in ([], [*entries(5, 0, low=[0])], [*entries(5, 1, low=[0])]):
            with pytest.raises(DataError, match="too few images"):
                report(records, SIZES, tolerance=0)

    def test_no_boxes(self):
        records = [*entries(2, 0, low=[0]), *entries(2, 1, low=[0])]
        with pytest.raises(DataError, match="one main object"):
            report(records, SIZES, tolerance=0, by="box")

    def test_plain_values(self):
        records = [*entries(10, 0, low=[0], high=[9]), *entries(20, 1, low=[0, 9], high=[9])]
        found = json.loads(json.dumps(report(records, SIZES, tolerance=1).to_dict()))
        assert found["recommended"] == {"method": "mwp", "layer": "low", "alpha": None}
        assert found["rows"][0]["pointing"] == pytest.approx(
            {"value": 0.5, "low": 0.2993, "high": 0.7007, "count": 10, "total": 20}, abs=1e-4
        )


class TestFigure:
    @pytest.fixture
    def found(self):
        return report([*entries(9, 0, low=[0], high=[9]), *entries(9, 1, low=[0, 9], high=[9])], SIZES, tolerance=1)

    def test_drawn(self, found, tmp_path):
        from PIL import Image

        with Image.open(layer_figure(found, "cats", tmp_path / "layers.png")) as drawn:
            assert drawn.format == "PNG"
            assert drawn.width > 600
            assert drawn.convert("L").getextrema() < (200, 256)  # there is ink on it

    def test_without_matplotlib(self, found, tmp_path, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(DataError, match=r"pip install 'excite\[plots\]'"):
            layer_figure(found, "cats", tmp_path / "layers.png")
