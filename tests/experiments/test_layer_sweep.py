"""The layer sweep on coloured squares, with a network whose better layer is known."""

import sys
from itertools import islice

import pytest
import torch
from annotated import make_imagenet, scenes

import excite
from excite.datasets import open_dataset
from excite.errors import DataError
from excite.experiments.layer_sweep import LayerSweep, checked_measure, half_of, layer_figure, report
from excite.metrics.boxes import ALPHAS, box_distance

FINE, COARSE = "1", "2"


def measured(sweep, out, **options):
    return sweep.report(list(sweep.records(out)), **options)


class TestMeasuring:
    def test_figures_are_those_of_attend(self, classifier, dataset, tmp_path):
        """Counted again image by image, with the public function, on the half that nothing was chosen on."""
        found = measured(LayerSweep(classifier, dataset), tmp_path, tolerance=3)
        for row in found.rows:
            hits, masses = [], []
            for sample in dataset:
                for target in sample.targets if half_of(sample.name, 0) else ():
                    (one,) = excite.attend(classifier, sample.path, target.concept, layer=row.layer, method=row.method)
                    point = one.point()
                    hits.append(point is not None and min(box_distance(point, box) for box in target.boxes) <= 3)
                    masses.append(one.mass)
            assert (row.pointing.count, row.pointing.total) == (sum(hits), len(hits))
            assert row.mass == pytest.approx(sum(masses) / len(masses))

    def test_a_map_of_nothing_points_nowhere(self, classifier, tmp_path):
        with torch.no_grad():
            classifier.module[5].weight.copy_(-torch.eye(2))
            classifier.module[5].bias.fill_(9)  # excited by its bias alone
        dataset = open_dataset(make_imagenet(tmp_path / "imagenet", scenes(12), ["red", "green"]))
        found = measured(LayerSweep(classifier, dataset, layers=[FINE], methods=["mwp"]), tmp_path)
        assert found.recommended.pointing.count == found.recommended.mass == 0
        assert found.recommended.box_error.value == 1

    def test_boxes_of_many_objects_are_refused(self, dataset):
        with pytest.raises(DataError, match="one main object"):
            checked_measure("box", dataset)
        with pytest.raises(DataError, match="by 'iou'"):
            checked_measure("iou", dataset)


def entries(count, half, **distances):
    """Records of that many images of a half; for each layer the distances, repeated."""
    names = (f"{k}" for k in range(10**6))
    for k, name in enumerate(islice((name for name in names if half_of(name, 0) == half), count)):
        maps = [
            {"method": "mwp", "layer": layer, "mass": 0.5, "distance": values[k % len(values)]}
            for layer, values in distances.items()
        ]
        yield {"image": name, "targets": [{"concept": "cat", "maps": maps}]}


SIZES = {"low": (8, 8), "high": (4, 4)}


class TestReport:
    def test_chosen_on_onehalf_of_and_measured_on_the_other(self):
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

    def test_alpha_is_chosen_on_the_otherhalf_of(self):
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

    def test_a_figure_needs_matplotlib(self, tmp_path, monkeypatch):
        found = report([*entries(9, 0, low=[0], high=[9]), *entries(9, 1, low=[0, 9], high=[9])], SIZES, tolerance=1)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(DataError, match=r"pip install 'excite\[plots\]'"):
            layer_figure(found, "cats", tmp_path / "layers.png")
