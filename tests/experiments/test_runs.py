"""What all experiments on annotated images share: they resume, look once, name what is broken and refuse early."""

import os
from dataclasses import replace
from itertools import islice

import pytest
from annotated import annotate, make_voc, scenes, voc_object
from torch import nn

from excite.datasets import open_dataset
from excite.errors import ConceptError, DataError, LayerError, MethodError, ModelError
from excite.experiments.base import chosen_methods
from excite.experiments.layer_sweep import LayerSweep
from excite.experiments.localization import run as localization
from excite.experiments.localization.run import Localization
from excite.experiments.pointing.run import PointingGame, find_protocol
from excite.methods import METHODS
from excite.vocabulary import Labels

FINE, COARSE = "1", "2"


@pytest.fixture
def dataset(tmp_path):
    return open_dataset(make_voc(tmp_path / "voc", scenes(6)))


@pytest.fixture(params=[PointingGame, Localization, LayerSweep], ids=lambda kind: kind.__name__)
def start(request, classifier, dataset, monkeypatch):
    """Makes an experiment; other classifiers and options may be given."""
    monkeypatch.setattr(localization, "CANVAS", (48, 48))  # boxes at 150 thresholds are most of the time

    def make(network=classifier, **options):
        return request.param(network, dataset, **{"methods": ["c-mwp", "mwp"], "layers": [FINE, COARSE], **options})

    return make


def test_killed_while_writing_it_goes_on_where_it_was(start, dataset, tmp_path, looks):
    whole = list(start().records(tmp_path / "whole"))
    first = start().records(tmp_path / "stopped")
    list(islice(first, 5))
    first.close()
    store = tmp_path / "stopped/records.jsonl"
    with store.open("r+") as file:
        file.truncate(store.stat().st_size - 40)  # the fifth line is cut off
    again = start()
    looks.clear()
    assert list(again.records(tmp_path / "stopped")) == whole
    assert len(looks) == len(dataset) - 4  # one look a picture, whatever the number of categories, methods and layers
    assert sum(len(record["targets"]) for record in whole) > len(whole)
    assert store.read_bytes() == (tmp_path / "whole/records.jsonl").read_bytes()


CHANGES = ["weights", "architecture", "preprocess", "outputs", "layers", "methods", "picture", "annotation"]


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_done_again(start, classifier, dataset, tmp_path, change):
    ((key, name),) = [(record["key"], record["image"]) for record in start(limit=1).records(tmp_path)]
    other = {
        "layers": {"layers": [COARSE]},
        "methods": {"methods": ["mwp"]},
        "outputs": {"network": replace(classifier, multilabel=True)},
        "preprocess": {"network": replace(classifier, preprocess=replace(classifier.preprocess, shorter_side=36))},
    }.get(change, {})
    if change == "weights":
        classifier.module[5].bias.data[0] += 1
    elif change == "architecture":
        classifier.module[1] = nn.ReLU6()
    elif change == "picture":
        os.utime(dataset.folder / f"JPEGImages/{name}.jpg", (1, 1))
    elif change == "annotation":  # another object makes no other pair, but may make it difficult
        annotate(dataset.folder, name, voc_object("red", (0, 0, 9, 9)), voc_object("blue", (0, 0, 9, 9)))
    assert [record["key"] for record in start(limit=1, **other).records(tmp_path)] != [key]


def test_questions_of_one_experiment(classifier, dataset, tmp_path):
    """Another protocol, Difficult list or shape is another question; another tolerance, share or seed is none."""

    def key(kind, **options):
        return next(iter(kind(classifier, dataset, ["mwp"], limit=2, **options).records(tmp_path)))["key"]

    listed = frozenset({("000000", "red")})
    others = [{}, {"protocol": find_protocol("torchray")}, {"difficult": frozenset()}, {"difficult": listed}]
    assert len({key(PointingGame, **options) for options in others}) == 4
    assert key(PointingGame, protocol=find_protocol("authors", 48)) == key(PointingGame)
    assert key(Localization, own_shape=True) != key(Localization) == key(Localization, held_out=0.5, seed=1)


def test_broken_ones_are_named_and_the_rest_is_complete(start, dataset, tmp_path):
    whole = list(start().records(tmp_path / "whole"))
    (dataset.folder / "JPEGImages/000001.jpg").write_text("no image")
    (dataset.folder / "JPEGImages/000002.jpg").unlink()
    (dataset.folder / "Annotations/000004.xml").write_text("<annotation><object></annotation>")
    experiment = start()
    records = list(experiment.records(tmp_path / "broken"))
    lost = ["000001", "000002", "000004"]
    assert records == [record for record in whole if record["image"] not in lost]
    assert [sum(name in failure for failure in experiment.failures) for name in lost] == [1, 1, 1]
    assert experiment.about()["failures"] == experiment.failures


@pytest.mark.parametrize("kind", [PointingGame, Localization])
def test_a_picture_of_another_size_than_annotated(kind, classifier, dataset, tmp_path):
    annotate(
        dataset.folder, "000000", "<size><width>20</width><height>30</height></size>", voc_object("red", (0, 0, 9, 9))
    )
    experiment = kind(classifier, dataset, ["mwp"], limit=2)
    assert [record["image"] for record in experiment.records(tmp_path)] == ["000001"]
    assert "000000" in experiment.failures[0]


def test_all_unreadable(start, dataset, tmp_path):
    for path in (dataset.folder / "JPEGImages").iterdir():
        path.write_text("no image")
    experiment = start()
    counted = getattr(experiment, "rows", None) or experiment.report
    with pytest.raises(DataError, match=r"none of the 6 images could be read; the first: .*000000"):
        counted(list(experiment.records(tmp_path)))


@pytest.mark.usefixtures("quick_workers")
def test_several_workers_give_the_same_bytes(classifier, dataset, tmp_path):
    for workers in (1, 2):
        list(Localization(classifier, dataset, ["mwp"], limit=3).records(tmp_path / f"{workers}", workers=workers))
    assert (tmp_path / "1/records.jsonl").read_bytes() == (tmp_path / "2/records.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"methods": ["mpw"]}, MethodError, "no method 'mpw'"),
        ({"layers": ["9"]}, LayerError, "no layer '9'"),
        ({"layers": ["4"]}, LayerError, "'4' has no places"),
        ({"skip": -1}, DataError, "leave no images"),
        ({"limit": 0}, DataError, "leave no images"),
        ({"skip": 9}, ConceptError, "none of these 0 images"),
    ],
)
def test_refused_before_any_work(start, options, kind, words):
    with pytest.raises(kind, match=words):
        start(**options)


def test_classifiers_without_a_word_for_anything(start, classifier):
    with pytest.raises(ConceptError, match="pets has no word for any category of these images: green, red"):
        start(replace(classifier, labels=Labels(["cat", "dog"]), name="pets"))
    with pytest.raises(ModelError, match="colours has no labels"):
        start(replace(classifier, labels=None))


def test_what_was_left_out_is_counted(classifier, tmp_path):
    folder = make_voc(tmp_path / "voc", [*scenes(12), ("blue", [("blue", (0, 0, 9, 9)), ("red", (9, 9, 20, 20))])])
    hard = voc_object("red", (0, 0, 8, 8), 1) + voc_object("green", (0, 0, 8, 8), 1)
    annotate(folder, "000002", hard)
    annotate(folder, "000003", hard, voc_object("green", (8, 8, 12, 12)))
    sweep = LayerSweep(classifier, open_dataset(folder))
    names = {task.name: task for task in sweep.tasks}
    assert "000002" not in names
    assert names["000003"].queries[0].target.boxes == ((0, 0, 8, 8), (8, 8, 12, 12))  # difficult ones are truth, too
    assert sweep.about()["left_out"] == {"unknown": {"blue": 1}, "difficult": 3, "empty": 1}
    assert sweep.about()["concepts"] == {"red": "red", "green": "green"}


def test_methods_as_typed():
    assert chosen_methods("c-mwp, mwp") == ["c-mwp", "mwp"]
    assert chosen_methods("all") == list(METHODS)
    with pytest.raises(MethodError, match="no method ''"):
        chosen_methods("mwp,")
